"""`beautiful_mnist.py` on several devices, data parallel.

    GPUS=2 python examples/beautiful_mnist_multigpu.py
    mpiexec -n 2 python examples/beautiful_mnist_multigpu.py

The code of the model is the same. Its parameters are replicated, and each batch is sharded along
its first axis. Gradients and BatchNorm statistics are those of the global batch. Under `mpiexec`,
each process has one of the devices, or RANK_DEVICES.

Settings: GPUS=2 (devices), BS=512 (images a step on all devices together), STEPS=70,
TARGET_EVAL_ACC_PCT (exit with an error below it).
"""

from collections.abc import Callable

from example_settings import count, number
from tinygrad import Device, GlobalCounters, Tensor, TinyJit, nn
from tinygrad.helpers import colored, trange
from tinygrad.nn.datasets import mnist
from tinygrad.ranks import join, rank

BS, STEPS = count("BS", 512, maximum=60_000), count("STEPS", 70)
TARGET = number("TARGET_EVAL_ACC_PCT", 0.0)
# each device has at least one image of a batch
GPUS = tuple(f"{Device.DEFAULT}:{i}" for i in range(count("GPUS", 2, maximum=BS)))


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
    # the processes of a launcher of MPI, if there is one, share the devices
    join()
    X_train, Y_train, X_test, Y_test = mnist()
    # each device keeps its shard of the test images
    X_test.shard_(GPUS, axis=0)
    Y_test.shard_(GPUS, axis=0)

    model = Model()
    # replicate every parameter
    for param in nn.state.get_parameters(model):
        param.shard_(GPUS)
    opt = nn.optim.Adam(nn.state.get_parameters(model))

    # the first call runs normally, the second is captured, later ones replay the capture
    @TinyJit
    @Tensor.train()
    def train_step() -> Tensor:
        opt.zero_grad()
        samples = Tensor.randint(BS, high=X_train.shape[0])
        # each device gets its shard of the batch
        Xt, Yt = X_train[samples].shard_(GPUS, axis=0), Y_train[samples].shard_(GPUS, axis=0)
        loss = model(Xt).sparse_categorical_crossentropy(Yt).backward()
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
        if rank() == 0:
            print(colored(f"{test_acc=:.2f} reaches {TARGET}", "green"))
