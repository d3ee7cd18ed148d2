"""ZeRO-3, or fully sharded data parallelism: parameters and optimizer state are sharded.

    GPUS=4 python examples/sharding_zero.py

The program differs from data parallel training only in the axis given to `shard_`. A parameter is
all-gathered where it is used with a sharded batch, and its gradient has the parameter's layout, so
it is reduce-scattered. Each of n devices sends 2 (n - 1) / n times the size of the model, as in an
all-reduce. (If a batch is smaller than a parameter, the batch is sent instead: `BS=32` takes a
tenth of these bytes.)

Settings: GPUS=4 (devices), BS=512 (images a step on all devices together), STEPS=40.
"""

from math import prod

from example_settings import count
from sharding_report import report
from tinygrad import Device, Sharding, Tensor, TinyJit, nn
from tinygrad.engine import CommTrace
from tinygrad.nn.datasets import mnist
from tinygrad.nn.state import get_parameters

BS, STEPS = count("BS", 512, maximum=60_000), count("STEPS", 40)
# each device has at least one image of a batch
GPUS = tuple(f"{Device.DEFAULT}:{i}" for i in range(count("GPUS", 4, maximum=BS)))


class Model:
    """Images (batch, 784) to logits of the ten digits (batch, 10)."""

    def __init__(self) -> None:
        self.layers = [nn.Linear(784, 256), nn.Linear(256, 256), nn.Linear(256, 10)]

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x)


def train(devices: tuple[str, ...]) -> tuple[list[float], CommTrace, int]:
    """The loss of each step, the communication of the last one, and the bytes of model and
    optimizer on each device.
    """
    images, labels, _, _ = mnist()
    steps = len(images) // BS
    # all batches of an epoch; each device keeps its shard of every one
    images = images[: steps * BS].reshape(steps, BS, 784).shard_(devices, axis=1).realize()
    labels = labels[: steps * BS].reshape(steps, BS).shard_(devices, axis=1).realize()

    Tensor.manual_seed(0)
    model = Model()
    for parameter in get_parameters(model):
        parameter.shard_(devices, axis=0)
    optimizer = nn.optim.Adam(get_parameters(model), lr=0.002)

    @TinyJit
    @Tensor.train()
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x / 255).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    losses = []
    for number in range(STEPS):
        x, y = images[number % steps], labels[number % steps]
        with CommTrace() as trace:
            loss = step(x.contiguous(), y.contiguous())
        losses.append(loss.item())
    return losses, trace, kept([model, optimizer])


def kept(state: object) -> int:
    """The bytes of the tensors in `state` on each device that they are on."""
    total = 0
    for x in set(get_parameters(state)):
        local = x.device.local_shape(x.shape) if isinstance(x.device, Sharding) else x.shape
        total += prod(local) * x.element_size()
    return total


def bound() -> int:
    """The bytes of ZeRO: all-gathers and reduce-scatters of parameters. Small batches take fewer:
    the rows that a gradient is computed from are sent in place of the gradient.
    """
    nbytes: int = sum(parameter.nbytes() for parameter in get_parameters(Model()))
    return 2 * (len(GPUS) - 1) * nbytes


if __name__ == "__main__":
    losses, trace, part = train(GPUS)
    alone, _, whole = train(GPUS[:1])
    print(f"each device keeps {part:,} bytes of model and optimizer, of {whole:,}")
    report({f"{len(GPUS)} devices": losses, "one device": alone}, trace, bound())
