"""Random programs of tensors, shards and stacks of shards, and writes to them, against numpy.

A shard is modelled by a view of its tensor's array; every other value by a separate array.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from test.sharding.common import TWO, Array, integers, on
from tinygrad import Sharding, Tensor, TinyJit

pytestmark = pytest.mark.usefixtures("verified_replays")

LAYOUTS = [on(0), on(1), on((0, 1), (2, 2)), Sharding(TWO, 0)]
SHAPES = [(8, 4), (5, 3), (10, 6), (6, 7)]


@dataclass(eq=False)
class Value:
    """A tensor and the array that it must equal; `is_stored` if views of it see writes."""

    tensor: Tensor
    array: Array
    is_stored: bool


class Program:
    """A random program; its state is the values so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.layout = self.random.choice(LAYOUTS)
        self.shape = self.random.choice(SHAPES)
        self.shards: list[Value] = []
        array = integers(*self.shape, seed=seed)
        stored = Tensor(array.copy()).to(self.layout).realize()
        self.tensors = [Value(stored, array, True)]

    def cut(self, array: Array) -> list[Array]:
        """The views of an array that model its shards."""
        regions = self.layout.regions(self.shape)
        return [array[tuple(slice(*bounds) for bounds in region)] for region in regions]

    def take_shards(self) -> None:
        x = self.random.choice(self.tensors)
        pieces = self.cut(x.array if x.is_stored else x.array.copy())
        self.shards += [
            Value(shard, piece, x.is_stored)
            for shard, piece in zip(x.tensor.shards, pieces, strict=True)
        ]

    def stack(self) -> None:
        parts, array = [], np.zeros(self.shape, np.float32)
        for number, piece in enumerate(self.cut(array)):
            x, added = self.random.choice(self.tensors), self.random.randrange(2)
            shard = x.tensor.shards[number]
            parts.append(shard + added if added else shard)
            piece[...] = self.cut(x.array)[number] + added
        is_stored = self.random.random() < 0.5
        stacked = Tensor.from_shards(parts, self.layout)
        self.tensors.append(Value(stacked.realize() if is_stored else stacked, array, is_stored))

    def compute(self) -> None:
        x = self.random.choice(self.tensors)
        self.tensors.append(Value(x.tensor * 2, x.array * 2, False))

    def write(self) -> None:
        x = self.random.choice([x for x in self.tensors if x.is_stored])
        y = self.random.choice(self.tensors)
        x.tensor.assign(y.tensor - 1).realize()
        x.array[...] = y.array - 1

    def write_to_a_shard(self) -> None:
        views = [x for x in self.shards if x.is_stored and x.array.size]
        if views:
            x = self.random.choice(views)
            if self.random.random() < 0.5:
                x.tensor[0:1] = 7.0
                x.array[0:1] = 7
            else:
                x.tensor.assign(x.tensor * 2 + 1)
                x.array[...] = x.array * 2 + 1

    def realize(self) -> None:
        values = [*self.tensors, *self.shards]
        Tensor.realize(*(x.tensor for x in self.random.sample(values, min(3, len(values)))))

    def check(self) -> None:
        values = [*self.tensors, *self.shards]
        for x in self.random.sample(values, len(values)):
            np.testing.assert_array_equal(x.tensor.numpy(), x.array)


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", range(60))
def test_only_shards_see_writes_to_a_tensor(seed: int) -> None:
    program = Program(seed)
    steps = [
        *(program.take_shards, program.stack, program.compute, program.realize),
        *(program.write, program.write_to_a_shard, program.write_to_a_shard),
    ]
    for _ in range(program.random.randint(4, 14)):
        program.random.choice(steps)()
    program.check()


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(20))
def test_captured_programs_of_shards_replay_what_they_compute(seed: int) -> None:
    layout, shape = random.Random(seed).choice(LAYOUTS), random.Random(-seed).choice(SHAPES)
    states = [Tensor(integers(*shape)).to(layout).realize() for _ in range(2)]

    def run(state: Tensor, x: Tensor) -> list[Tensor]:
        choose = random.Random(seed)
        values, results = [x, state, x + state], []
        for _ in range(choose.randint(2, 6)):
            y, shard = choose.choice(values), choose.randrange(len(layout))
            match choose.randrange(4):
                case 0:
                    values.append(Tensor.from_shards([s * 2 for s in y.shards], layout))
                case 1:
                    results.append(y.shards[shard] + 1)
                case 2:
                    state.assign(state + y).realize()
                case 3 if state.shards[shard].numel():
                    state.shards[shard].assign(state.shards[shard] - 3)
        return [result.realize() for result in (*results, values[-1] * 1)]

    captured = TinyJit(lambda x: run(states[0], x))
    for call in range(4):
        x = Tensor(integers(*shape, seed=call)).to(layout).realize()
        for found, expected in zip(captured(x), run(states[1], x), strict=True):
            np.testing.assert_array_equal(found.numpy(), expected.numpy())
        np.testing.assert_array_equal(states[0].numpy(), states[1].numpy())
