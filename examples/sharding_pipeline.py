"""Pipeline parallelism: each device has some layers, and microbatches pass through them.

    GPUS=4 MICROBATCHES=8 python examples/sharding_pipeline.py

The batch is split into microbatches. A stage sends the activations of each one forward, and their
gradient backward: the width of the model for every image, once each way between neighbours.
Schedules differ in the number of microbatches in flight, whose inputs a stage keeps.

Settings: GPUS=4 (stages), MICROBATCHES=8, SCHEDULE=1f1b (or gpipe), BS=512 (images a
step), STEPS=40.
"""

from collections.abc import Callable

from example_settings import choice, count, multiple
from sharding_report import report
from tinygrad import Device, Tensor, TinyJit, nn
from tinygrad.engine import CommTrace
from tinygrad.nn.datasets import mnist
from tinygrad.nn.pipeline import Pipeline
from tinygrad.nn.state import get_parameters

# stages are compiled one by one, so more take minutes
GPUS = tuple(f"{Device.DEFAULT}:{i}" for i in range(count("GPUS", 4, maximum=64)))
MICROBATCHES, SCHEDULE = count("MICROBATCHES", 8), choice("SCHEDULE", "1f1b", "gpipe")
BS, STEPS = multiple("BS", 512, "MICROBATCHES", MICROBATCHES), count("STEPS", 40)
WIDTH = 128


class Block:
    """x + a network of one hidden layer: (batch, width) to the same."""

    def __init__(self) -> None:
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def __call__(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(self.norm(x)).relu())


def build(devices: tuple[str, ...]) -> Pipeline:
    """A model with a stage for each of GPUS, on `devices` in order."""
    stages: list[list[Callable[[Tensor], Tensor]]] = [[Block()] for _ in GPUS]
    stages[0].insert(0, nn.Linear(784, WIDTH))
    stages[-1].append(nn.Linear(WIDTH, 10))
    places = [devices[number % len(devices)] for number in range(len(stages))]
    return Pipeline(stages, places, MICROBATCHES, SCHEDULE)


def train(devices: tuple[str, ...]) -> tuple[list[float], CommTrace]:
    """The loss of each step, and the communication of the last one; without a pipeline on one
    device.
    """
    images, labels, _, _ = mnist()
    steps = len(images) // BS
    # images are on the devices of the first stage, labels on those of the last
    images = images[: steps * BS].reshape(steps, BS, 784).to(devices[0]).realize()
    labels = labels[: steps * BS].reshape(steps, BS).to(devices[-1]).realize()

    Tensor.manual_seed(0)
    model = build(devices)
    optimizer = nn.optim.Adam(get_parameters(model.stages), lr=0.001)

    @TinyJit
    @Tensor.train()
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        if len(devices) > 1:
            loss = model.step(Tensor.sparse_categorical_crossentropy, x / 255, y)
        else:
            loss = model(x / 255).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    losses = []
    for number in range(STEPS):
        x, y = images[number % steps], labels[number % steps]
        with CommTrace() as trace:
            loss = step(x.contiguous(), y.contiguous())
        losses.append(loss.item())
    return losses, trace


def bound() -> int:
    """The lower bound of the bytes of a step: between neighbours, each way."""
    return 2 * (len(GPUS) - 1) * BS * WIDTH * 4


if __name__ == "__main__":
    timetable = build(GPUS).timetable
    print(timetable)
    print(f"stages wait for {timetable.idle:.0%} of {len(timetable)} ticks", end=", ")
    print("and remember", *timetable.in_flight, "microbatches\n")

    losses, trace = train(GPUS)
    alone, _ = train(GPUS[:1])
    # Adam divides gradients by their size, also those that are near the rounding
    report({f"{len(GPUS)} devices": losses, "one device": alone}, trace, bound(), tolerance=1e-2)
