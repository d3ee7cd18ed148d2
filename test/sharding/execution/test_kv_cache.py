"""A key-value cache on four devices, written at a symbolic position, in captured functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from test.devices import DEVICE, nth
from test.sharding.common import (
    DEVICES,
    GRID,
    REPLICATED,
    Array,
    array,
    integers,
    moved,
    on,
    parts,
)
from test.together import CommTrace, GlobalCounters
from tinygrad import Tensor, TinyJit, Variable
from tinygrad.device import Sharding
from tinygrad.settings import Context

HEADS, LENGTH, DIM = 4, 16, 8
BY_HEAD, BY_POSITION = on(1), on(2)


def stored(value: Array, layout: Any) -> Tensor:
    """A realized tensor without a gradient."""
    return (Tensor(value) if layout is None else Tensor(value).to(layout)).contiguous().realize()


def decoded(
    layout: Sharding | None, steps: int, masked: bool = True
) -> tuple[list[Array], list[dict[str, int]], int]:
    """Attention over a growing cache, `masked` or over its prefix: outputs, bytes of communication
    in each step, and Python calls.
    """
    cache = stored(np.zeros((2, HEADS, LENGTH, DIM), np.float32), layout and on(layout.axes[0]))
    beside = layout and (layout if layout is BY_HEAD else REPLICATED)
    position = Variable("position", 0, LENGTH - 1)
    calls = Mock()

    @TinyJit
    def step(query: Tensor, new: Tensor, start: Any) -> Tensor:
        calls()
        cache[:, :, start : start + 1].assign(new).realize()
        seen = Tensor.arange(LENGTH) <= start if masked else None
        keys, values = cache[:1], cache[1:]
        if not masked:
            keys, values = keys[:, :, : start + 1], values[:, :, : start + 1]
        return query.scaled_dot_product_attention(keys, values, attn_mask=seen).realize()

    outputs, kinds = [], []
    for i in range(steps):
        query = stored(array(1, HEADS, 1, DIM, seed=i), beside)
        new = stored(array(2, HEADS, 1, DIM, seed=i + 50), beside)
        with CommTrace() as trace:
            out = step(query, new, position.bind(i))
        kinds.append(trace.kinds())
        outputs.append(out.numpy())
    return outputs, kinds, calls.call_count


def test_a_cache_sharded_by_head_moves_nothing() -> None:
    expected, _, _ = decoded(None, 6)
    found, kinds, calls = decoded(BY_HEAD, 6)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert kinds == [{}] * 6
    # an ordinary call, and a captured one
    assert calls == 2


@pytest.mark.parametrize("masked", [True, False])
def test_a_cache_sharded_by_position_is_not_moved(masked: bool) -> None:
    expected, _, _ = decoded(None, 6)
    with Context(SHARDING="strict"):
        found, kinds, calls = decoded(BY_POSITION, 6, masked)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    # all-reduces of the maximum, the sum and the mean of the values per head; nothing of the cache
    assert kinds == [{"all_reduce": 4 * 3 * 4 * (HEADS + HEADS + HEADS * DIM)}] * 6
    assert calls == 2


def test_only_the_owner_of_a_position_writes() -> None:
    cache = stored(np.zeros((1, HEADS, 4096, DIM), np.float32), BY_POSITION)
    position = Variable("position", 0, 4095).bind(3000)
    new = stored(array(1, HEADS, 1, DIM), REPLICATED)
    GlobalCounters.reset()
    with CommTrace() as trace:
        cache[:, :, position : position + 1] = new
    assert trace.records == []
    # each device reads and stores as much as is written; the block is 512 times that
    assert GlobalCounters.global_mem == 4 * 3 * new.nbytes()
    blocks = parts(cache)
    np.testing.assert_array_equal(blocks[2][:, :, 3000 - 2048], new.numpy()[:, :, 0])
    blocks[2][:, :, 3000 - 2048] = 0
    assert not any(block.any() for block in blocks)


# ---- slice assignment along a sharded axis ----

WRITES: dict[str, Any] = {
    "item": lambda x, part, v: x.__setitem__(part, v),
    "assign": lambda x, part, v: x[part].assign(v).realize(),
    "assign to a view": lambda x, part, v: x[part].T.flip(1).assign(v.flip(0).T).realize(),
}
LAYOUTS = [on(0), on(1), on((0, 1), GRID), on((0, None), GRID), on((0, 0), GRID)]


@pytest.mark.sample(8)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("how", WRITES)
def test_slice_assignment_along_a_sharded_axis(how: str, layout: Sharding) -> None:
    random = np.random.default_rng(0)
    for rows in (3, 8, 10):
        count = int(random.integers(2, rows))
        start = int(random.integers(0, rows - count + 1))
        position = Variable("start", 0, rows - count).bind(start)
        expected, value = array(rows, 6), array(count, 4, seed=1)
        expected[start : start + count, 1:5] = value
        firsts: list[Any] = [start, position] if how != "assign to a view" else [start]
        for first in firsts:
            for given in (layout.replicated(), layout):
                x, v = stored(array(rows, 6), layout), stored(value, given)
                beside = x * 1
                with Context(SPEC=2):
                    WRITES[how](x, (slice(first, first + count), slice(1, 5)), v)
                np.testing.assert_array_equal(x.numpy(), expected)
                # a value computed from the old content keeps it
                np.testing.assert_array_equal(beside.numpy(), array(rows, 6))


@pytest.mark.parametrize("layout", [nth(1), on(0), on((0, 1), GRID)], ids=str)
def test_slice_assignment_to_a_view_writes_to_its_base(layout: Any) -> None:
    x, v = stored(array(8, 6), layout), stored(array(2, 6, seed=1), None).to(layout)
    expected = array(8, 6)
    part, mirrored = x[2:7], x[::-1]
    indices: list[Any] = [slice(1, 3), slice(None, None, 4), slice(2, 0, -1), [3, 0]]
    for number, index in enumerate(indices):
        view, plain = ((part, expected[2:7]), (mirrored, expected[::-1]))[number % 2]
        view[index] = v + number
        plain[index] = v.numpy() + number
        np.testing.assert_array_equal(x.numpy(), expected)
        np.testing.assert_array_equal(part.numpy(), expected[2:7])
        part, mirrored = x[2:7], x[::-1]


def test_writing_to_a_clone_keeps_the_graph_of_the_gradient() -> None:
    a = Tensor(array(8, 6)).realize()
    for index in (slice(None, None, -1), slice(2, 5), slice(None, None, 2)):
        x = a.to(on(0))
        loss, y = (x * x).sum(), x.clone()
        y[index] = x[index] * 1
        np.testing.assert_array_equal(y.numpy(), array(8, 6))
        np.testing.assert_array_equal(loss.gradient(a)[0].numpy(), 2 * array(8, 6))


@pytest.mark.parametrize("layout", [on(0), on((0, 1), GRID), on((None, 0), GRID)], ids=str)
def test_rows_at_a_symbolic_position_are_selected_on_their_devices(layout: Sharding) -> None:
    place = Variable("place", 0, 8)
    value, v = array(10, 6), stored(array(2, 6, seed=1), REPLICATED)
    # each device sends its shard of a row, or zeros, to the others that shard the rows
    row = 6 // layout.shards(1) * 4 * len(layout) * (layout.shards(0) - 1)
    for number in (0, 4, 8):
        with Context(SHARDING="strict", SPEC=2):
            x, start = stored(value, layout), place.bind(number)
            part = x[start : start + 2]
            (gradient,) = part.square().sum().gradient(x)
            assert moved(part) == {"all_reduce": 2 * row}
            assert moved(x[start].sum()) != {}
            assert moved(x[start : start + 2].assign(v)) == {}
        expected, of_sum = value.copy(), np.zeros_like(value)
        expected[number : number + 2] = v.numpy()
        of_sum[number : number + 2] = 2 * value[number : number + 2]
        np.testing.assert_array_equal(part.numpy(), v.numpy())
        np.testing.assert_array_equal(gradient.numpy(), of_sum)
        np.testing.assert_array_equal(x.numpy(), expected)


PREFIXES: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "a slice": lambda x, n: x[:, :n],
    "a sum": lambda x, n: x[:, :n].sum(1),
    "a largest": lambda x, n: x[:, :n].max(1),
    "positions": lambda x, n: x[:, :n].argmax(1) + (x[:, :n] * Tensor.arange(n)[:, None]).sum(1),
    "softmax": lambda x, n: x[:, :n].softmax(1),
    "products": lambda x, n: x[:, :n] @ x[:, :n].transpose(1, 2),
    "other axes": lambda x, n: x[:, :n].permute(2, 1, 0).unsqueeze(1).flip(0),
    "filled up": lambda x, n: (x[:, :n] + 1).pad_to(None, 10, None),
    "joined": lambda x, n: x[:, :n].cat(x[:, :1], dim=1),
    "one axis": lambda x, n: x[:, :n].flatten(1),
    "a row": lambda x, n: x[:, :n][:, 0],
    "the last row": lambda x, n: x[:, :n][:, -1],
    "stored": lambda x, n: x[:, :n].contiguous().realize().mean(1),
    "a gradient": lambda x, n: (x[:, :n].square().sum() + x.sum()).gradient(x)[0],
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", PREFIXES)
def test_a_prefix_of_a_sharded_axis(name: str) -> None:
    values, program = integers(3, 10, 4), PREFIXES[name]
    n = Variable("n", 1, 10)
    for layout in (on(1), on((1, 0), GRID)):
        for count in (1, 5, 10):
            expected = program(Tensor(values), count).realize()
            with Context(SPEC=2):
                found = program(stored(values, layout), n.bind(count)).realize()
                np.testing.assert_allclose(found.numpy(), expected.numpy(), 1e-5, 1e-5)


@pytest.mark.parametrize("count", [2, 3])
def test_a_slice_across_shards_of_a_prefix_of_another_axis(count: int) -> None:
    values = array(8, 6)
    x = stored(values, Sharding(DEVICES[:count], axis=1))
    n = Variable("n", 1, 8)
    for rows in (1, 5, 8):
        found = x[: n.bind(rows)][:, 1:3]
        np.testing.assert_array_equal(found.numpy(), values[:rows, 1:3])
        np.testing.assert_array_equal(found.to(REPLICATED).numpy(), values[:rows, 1:3])


def test_writing_to_replicas_moves_nothing() -> None:
    x, v = stored(array(8, 6), on(0)), stored(array(3, 6), REPLICATED)
    with CommTrace() as trace, Context(SHARDING="strict"):
        x[2:5] = v
        x[7] = 1.0
        x[5:6].assign(v[:1])
    assert trace.records == []
    assert moved(x) == {}


def test_a_slice_of_a_copy_is_no_view_of_the_tensor() -> None:
    x, v = stored(array(8, 6), on(0)), stored(array(3, 6, seed=1), REPLICATED)
    part = x.to(on(1))[2:5].assign(v)
    np.testing.assert_array_equal(part.numpy(), v.numpy())
    np.testing.assert_array_equal(x.numpy(), array(8, 6))


@pytest.mark.parametrize("layout", [nth(1), on(1), on(0), on((0, 1), GRID)], ids=str)
def test_only_views_see_writes(layout: Any) -> None:
    x, v = stored(array(8, 6), layout), stored(array(2, 6, seed=1), None)
    view, turned, row = x[2:6], x.flip(0), x[3]
    copied = x.to(DEVICE if isinstance(layout, str) else on(None)).reshape(48)
    computed = view + 1
    x[3:5] = v.numpy().tolist()
    old, new = array(8, 6), array(8, 6)
    new[3:5] = array(2, 6, seed=1)
    np.testing.assert_array_equal(copied.numpy(), old.reshape(48))
    np.testing.assert_array_equal(computed.numpy(), old[2:6] + 1)
    for found, expected in ((view, new[2:6]), (turned, new[::-1]), (row, new[3])):
        np.testing.assert_array_equal(found.numpy(), expected)
    view.assign(view * 2).realize()
    new[2:6] *= 2
    np.testing.assert_array_equal(x.numpy(), new)
    np.testing.assert_array_equal(row.numpy(), new[3])
