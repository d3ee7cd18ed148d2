"""A training step of a language model of two LSTM layers, whose steps the program unrolls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from test.benchmark.measure import Benchmark, median_ms, peak_mb, synchronize
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.optim import SGD
from tinygrad.nn.state import get_parameters

WORDS, BATCH, LENGTH, LAYERS = 10_000, 20, 35, 2
SIZES = (256, 650)


def unrolled(cells: Sequence[nn.LSTMCell], x: Tensor) -> Tensor:
    """The states (batch, length, size) of the last of several layers of LSTM cells."""
    values = [x[:, step] for step in range(int(x.shape[1]))]
    for cell in cells:
        state, states = None, []
        for value in values:
            state = cell(value, state)
            states.append(state[0])
        values = states
    return Tensor.stack(*values, dim=1)


class LanguageModel:
    """Logits (batch, length, words) of the next word, from numbers of words (batch, length)."""

    def __init__(self, size: int, words: int) -> None:
        self.embedding = nn.Embedding(words, size)
        self.cells = [nn.LSTMCell(size, size) for _ in range(LAYERS)]
        self.out = nn.Linear(size, words)

    def __call__(self, x: Tensor) -> Tensor:
        return self.out(unrolled(self.cells, self.embedding(x)))


def training_step(
    size: int, words: int = WORDS, length: int = LENGTH
) -> Callable[[], list[Tensor]]:
    """A step on one random batch, which is not realized; it returns the loss and new weights."""
    model = LanguageModel(size, words)
    optimizer = SGD(get_parameters(model), lr=0.1)
    x, y = (Tensor.randint(BATCH, length, high=words).realize() for _ in range(2))

    @Tensor.train()
    def step() -> list[Tensor]:
        optimizer.zero_grad()
        loss = model(x).flatten(0, 1).sparse_categorical_crossentropy(y.flatten()).backward()
        return [loss, *optimizer.schedule_step()]

    return step


def ours(size: int, words: int = WORDS, length: int = LENGTH) -> float:
    lazy_step = training_step(size, words, length)

    @TinyJit
    def step() -> Tensor:
        loss, *updates = lazy_step()
        return loss.realize(*updates)

    return median_ms(lambda: synchronize(step()), repeats=5)


def memory(size: int) -> float:
    step = training_step(size)
    Tensor.realize(*step())
    return peak_mb(step)


def theirs(size: int) -> float:
    import torch

    layers = torch.nn

    class Model(layers.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = layers.Embedding(WORDS, size)
            self.cells = layers.LSTM(size, size, LAYERS, batch_first=True)
            self.out = layers.Linear(size, WORDS)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.cells(self.embedding(x))[0])

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = (torch.randint(WORDS, (BATCH, LENGTH)) for _ in range(2))

    def step() -> object:
        optimizer.zero_grad()
        loss = layers.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return median_ms(step, repeats=5)


BENCHMARKS = [
    Benchmark(
        f"lstm step, {LAYERS} x {size}",
        partial(ours, size),
        partial(theirs, size),
        memory=partial(memory, size),
        small=partial(ours, 8, 20, 3),
    )
    for size in SIZES
]
