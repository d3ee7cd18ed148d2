"""Replays copy nothing within a device that a kernel may write to its place."""

from __future__ import annotations

import random

import numpy as np
import pytest

from test.devices import device_names, only_one_process
from tinygrad import Sharding, Tensor, TinyJit
from tinygrad.execution.realize import BufferCopy

FOUR = device_names(4)


def own_copies(step: TinyJit[..., object]) -> int:
    """The bytes that rounds of messages copy within a device."""
    copies = [item for item in step.jit_cache if isinstance(item, BufferCopy)]
    return sum(d.nbytes for item in copies for d, s in item.pairs if d.device == s.device)


@only_one_process("looks at the messages of all devices")
def test_a_shard_is_computed_in_its_place_of_the_gathered_value() -> None:
    x = Tensor(np.arange(64, dtype=np.float32).reshape(8, 8)).shard(FOUR, 0).realize()

    @TinyJit
    def gather() -> Tensor:
        y = (x + 1).contiguous()
        return (y.to(Sharding(FOUR)) * 2).realize()

    @TinyJit
    def again() -> Tensor:
        y = (x + 1).contiguous()
        return (y * y.to(Sharding(FOUR)).contiguous().max()).realize()

    # what something else reads later is computed once, and copied
    @TinyJit
    def kept() -> Tensor:
        y = (x + 1).contiguous()
        return Tensor.realize(y, y.to(Sharding(FOUR)) * 2)

    for step, copied, factor in ((gather, 0, 2), (kept, 64 * 4, 1), (again, 64 * 4, 64)):
        for _ in range(3):
            found = step()
            assert isinstance(found, Tensor)
        assert own_copies(step) == copied
        wanted = np.arange(1, 65, dtype=np.float32).reshape(8, 8)
        assert (found.numpy() == wanted * factor).all()


@only_one_process("looks at the messages of all devices")
@pytest.mark.parametrize(("count", "columns"), [(2, 6), (3, 1 << 16), (4, 1 << 14)])
def test_a_device_reads_its_own_partial_sum_where_it_is(count: int, columns: int) -> None:
    rows = np.random.default_rng(0).integers(-8, 8, (count, columns)).astype(np.float32)
    for dtype in (np.float32, np.float16):
        x = Tensor(rows.astype(dtype)).shard(device_names(count), 0).realize()
        step = TinyJit(lambda x=x: ((x * 2).sum(0) + 1).realize())
        for _ in range(3):
            found = step()
        first = [x for x in step.jit_cache if isinstance(x, BufferCopy) and x.number == 0]
        assert first and all(d.device != s.device for x in first for d, s in x.pairs)
        for part in found.shards:
            assert (part.numpy() == rows.sum(0) * 2 + 1).all()


def test_sums_by_scattering_begin_with_zeros() -> None:
    index = np.array([1, 0, 1, 3, 2, 1, 0, 2])
    table = Tensor.zeros(6, 4).contiguous().shard(FOUR).realize()
    rows, x = Tensor(index).shard(FOUR, 0).realize(), Tensor.ones(8, 4).shard(FOUR, 0).realize()

    @TinyJit
    def gradient(x: Tensor) -> Tensor:
        return (table[rows] * x).sum().gradient(table)[0].realize()

    for factor in range(1, 6):
        wanted = np.zeros((6, 4), np.float32)
        np.add.at(wanted, index, factor)
        assert (gradient((x * factor).realize()).numpy() == wanted).all()


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(6))
def test_replays_of_random_layouts_have_the_values_of_plain_runs(seed: int) -> None:
    generator = random.Random(seed)
    layouts = [Sharding(FOUR, 0), Sharding(FOUR, 1), Sharding(FOUR), Sharding(FOUR[:2], 0)]

    def chain(x: Tensor) -> list[Tensor]:
        choices = random.Random(seed)
        found, values = [], [x]
        for _ in range(10):
            y = choices.choice(values)
            y = choices.choice(
                [
                    lambda y: (y + 1).contiguous(),
                    lambda y: y.to(choices.choice(layouts)),
                    lambda y: y + y.sum(choices.randrange(2), keepdim=True),
                    lambda y: (y * 3).to(choices.choice(layouts)).contiguous(),
                ]
            )(y)
            values.append(y % 1000)
            if choices.random() < 0.3:
                found.append(values[-1])
        return [*found, values[-1]]

    @TinyJit
    def step(x: Tensor) -> list[Tensor]:
        return chain(x)

    for _ in range(4):
        rows = np.array([[generator.randrange(100) for _ in range(8)] for _ in range(8)])
        x = Tensor(rows).shard(FOUR, 0).realize()
        wanted = [y.numpy() for y in chain(x)]
        found = [y.numpy() for y in step(x)]
        for one, other in zip(wanted, found, strict=True):
            assert (one == other).all()
