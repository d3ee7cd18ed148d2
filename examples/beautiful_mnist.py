"""Train a CNN on MNIST: 98% accuracy after 70 steps.

    python examples/beautiful_mnist.py

Settings: BS=512 (images a step), STEPS=70, TARGET_EVAL_ACC_PCT (exit with an error below it).
"""

from collections.abc import Callable

from example_settings import count, number
from tinygrad import GlobalCounters, Tensor, TinyJit, nn
from tinygrad.helpers import colored, trange
from tinygrad.nn.datasets import mnist

BS, STEPS = count("BS", 512, maximum=60_000), count("STEPS", 70)
TARGET = number("TARGET_EVAL_ACC_PCT", 0.0)


class Model:
    """Images (batch, 1, 28, 28) to logits of the ten digits (batch, 10)."""

    def __init__(self) -> None:
        self.layers: list[Callable[[Tensor], Tensor]] = [
            nn.Conv2d(1, 32, 5), Tensor.relu,
            nn.Conv2d(32, 32, 5), Tensor.relu,
            nn.BatchNorm(32), Tensor.max_pool2d,
            nn.Conv2d(32, 64, 3), Tensor.relu,
            nn.Conv2d(64, 64, 3), Tensor.relu,
            nn.BatchNorm(64), Tensor.max_pool2d,
            lambda x: x.flatten(1), nn.Linear(576, 10),
        ]  # fmt: skip

    def __call__(self, x: Tensor) -> Tensor:
        return x.sequential(self.layers)


if __name__ == "__main__":
    X_train, Y_train, X_test, Y_test = mnist()

    model = Model()
    opt = nn.optim.Adam(nn.state.get_parameters(model))

    # the first call runs normally, the second is captured, later ones replay the capture
    @TinyJit
    @Tensor.train()
    def train_step() -> Tensor:
        opt.zero_grad()
        samples = Tensor.randint(BS, high=X_train.shape[0])
        loss = model(X_train[samples]).sparse_categorical_crossentropy(Y_train[samples]).backward()
        return loss.realize(*opt.schedule_step())

    @TinyJit
    def get_test_acc() -> Tensor:
        return (model(X_test).argmax(axis=1) == Y_test).mean() * 100

    test_acc = float("nan")
    for i in (progress := trange(STEPS)):
        GlobalCounters.reset()
        loss = train_step()
        if i % 10 == 9:
            test_acc = get_test_acc().item()
        progress.set_description(f"loss: {loss.item():6.2f} test_accuracy: {test_acc:5.2f}%")

    if TARGET:
        test_acc = get_test_acc().item()
        if test_acc < TARGET:
            raise SystemExit(colored(f"{test_acc=:.2f} is below {TARGET}", "red"))
        print(colored(f"{test_acc=:.2f} reaches {TARGET}", "green"))
