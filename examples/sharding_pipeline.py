"""A pipeline: each device has some layers, and parts of the batch follow each other through them.

    GPUS=4 MICROBATCHES=8 python examples/sharding_pipeline.py

The batch is cut into microbatches. A stage sends each one on, and its gradient back: that is all
that moves, the width of the model for every image, once each way between neighbours. How many
microbatches a stage must remember is what schedules differ in.

Settings: GPUS (stages, 2 or more, 4), MICROBATCHES (8), SCHEDULE (1f1b or gpipe), BS (images a
step, 512), STEPS (40).
"""

from collections.abc import Callable

from sharding_report import report
from tinygrad import Device, Tensor, TinyJit, nn
from tinygrad.engine import CommTrace
from tinygrad.helpers import getenv
from tinygrad.nn.datasets import mnist
from tinygrad.nn.pipeline import Pipeline
from tinygrad.nn.state import get_parameters

GPUS = tuple(f"{Device.DEFAULT}:{i}" for i in range(getenv("GPUS", 4)))
MICROBATCHES, SCHEDULE = getenv("MICROBATCHES", 8), getenv("SCHEDULE", "1f1b")
BS, STEPS = getenv("BS", 512), getenv("STEPS", 40)
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
    """A model of as many stages as there are GPUS, on `devices` in turn."""
    stages: list[list[Callable[[Tensor], Tensor]]] = [[Block()] for _ in GPUS]
    stages[0].insert(0, nn.Linear(784, WIDTH))
    stages[-1].append(nn.Linear(WIDTH, 10))
    places = [devices[number % len(devices)] for number in range(len(stages))]
    return Pipeline(stages, places, MICROBATCHES, SCHEDULE)


def train(devices: tuple[str, ...]) -> tuple[list[float], CommTrace]:
    """The loss of each step, and what the last one moved; on one device, without a pipeline."""
    images, labels, _, _ = mnist()
    steps = len(images) // BS
    # images are where the first stage is, labels where the last one is
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
    """The bytes that must move in a step: between neighbours, each way."""
    return 2 * (len(GPUS) - 1) * BS * WIDTH * 4


if __name__ == "__main__":
    timetable = build(GPUS).timetable
    print(timetable)
    print(f"stages wait for {timetable.idle:.0%} of {len(timetable)} ticks", end=", ")
    print("and remember", *timetable.in_flight, "microbatches\n")

    losses, trace = train(GPUS)
    alone, _ = train(GPUS[:1])
    report({f"{len(GPUS)} devices": losses, "one device": alone}, trace, bound())
