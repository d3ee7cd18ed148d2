"""Data parallelism: the model is replicated, and each batch is sharded.

    GPUS=4 python examples/sharding_data_parallel.py

It differs from the program for one device by two calls of `shard_`. Gradients of replicated
parameters are all-reduced: each of n devices sends 2 (n - 1) / n times the size of the model, for
any batch size. Nothing else is sent but the loss.

Settings: GPUS=4 (devices), BS=512 (images a step on all devices together), STEPS=40.
"""

from example_settings import count
from sharding_report import report
from tinygrad import Device, Tensor, TinyJit, nn
from tinygrad.engine import CommTrace
from tinygrad.nn.datasets import mnist
from tinygrad.nn.state import get_parameters

BS, STEPS = count("BS", 512, maximum=60_000), count("STEPS", 40)
# each device has at least one image of a batch
GPUS = tuple(f"{Device.DEFAULT}:{i}" for i in range(count("GPUS", 4, maximum=BS)))


class Model:
    """Images (batch, 1, 28, 28) to logits of the ten digits (batch, 10)."""

    def __init__(self) -> None:
        self.conv = nn.Conv2d(1, 16, kernel_size=5, stride=2)
        self.hidden = nn.Linear(16 * 12 * 12, 64)
        self.out = nn.Linear(64, 10)

    def __call__(self, x: Tensor) -> Tensor:
        return self.out(self.hidden(self.conv(x).relu().flatten(1)).relu())


def train(devices: tuple[str, ...]) -> tuple[list[float], CommTrace]:
    """The loss of each step, and the communication of the last one."""
    images, labels, _, _ = mnist()
    steps = len(images) // BS
    # all batches of an epoch; each device keeps its shard of every one
    images = images[: steps * BS].reshape(steps, BS, 1, 28, 28).shard_(devices, axis=1).realize()
    labels = labels[: steps * BS].reshape(steps, BS).shard_(devices, axis=1).realize()

    Tensor.manual_seed(0)
    model = Model()
    for parameter in get_parameters(model):
        parameter.shard_(devices)
    optimizer = nn.optim.Adam(get_parameters(model), lr=0.002)

    @TinyJit
    @Tensor.train()
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x / 255).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    losses = []
    for number in range(STEPS):
        with CommTrace() as trace:
            x, y = images[number % steps], labels[number % steps]
            loss = step(x.contiguous(), y.contiguous())
        losses.append(loss.item())
    return losses, trace


def bound() -> int:
    """The lower bound of the bytes of a step: each parameter's all-reduce, on all devices."""
    nbytes: int = sum(parameter.nbytes() for parameter in get_parameters(Model()))
    return 2 * (len(GPUS) - 1) * nbytes


if __name__ == "__main__":
    losses, trace = train(GPUS)
    alone, _ = train(GPUS[:1])
    report({f"{len(GPUS)} devices": losses, "one device": alone}, trace, bound())
