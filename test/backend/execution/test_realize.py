"""Realizing tensors: what is computed when, where results are, and which tensors share memory."""

from __future__ import annotations

import cProfile
import functools
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.schedule.kernel_counts import array, kernels, tensor
from test.devices import DEVICE, nth
from tinygrad import GlobalCounters, Tensor, Variable, dtypes
from tinygrad.codegen.analysis.ranges import FreeRanges
from tinygrad.device import Device
from tinygrad.execution.realize import BufferCopy, ExecItem, compiled_kernels, run_schedule
from tinygrad.settings import Context
from tinygrad.uop.ops import Ops, UOp

# ---- when ----


def test_nothing_runs_until_it_is_realized() -> None:
    x = tensor(4, 4)
    GlobalCounters.reset()
    y = (x + 1).exp().sum()
    assert GlobalCounters.kernel_count == 0
    assert not y.uop.is_realized
    y.realize()
    assert GlobalCounters.kernel_count == 1
    assert y.uop.is_realized


def test_realizing_twice_runs_once() -> None:
    y = tensor(4) + 1
    assert kernels(y) == 1
    assert kernels(y) == 0


def test_views_of_memory_need_no_kernel() -> None:
    x = tensor(4, 6)
    views = [x.reshape(24), x.permute(1, 0), x[1:3], x.flip(0), x.reshape(2, 2, 6)[1]]
    assert kernels(*views) == 0
    np.testing.assert_array_equal(views[2].numpy(), array(4, 6)[1:3])
    np.testing.assert_array_equal(views[3].numpy(), array(4, 6)[::-1])


def test_a_realized_tensor_replaces_its_node_everywhere() -> None:
    y = tensor(4) + 1
    z = y * 2
    y.realize()
    assert Ops.ADD not in {n.op for n in z.uop.toposort()}
    np.testing.assert_allclose(z.numpy(), (array(4) + 1) * 2, rtol=1e-6)


def test_several_results_are_realized_together() -> None:
    x = tensor(64, 64)
    a, b = x + 1, x * 2
    assert kernels(a, b) == 1
    np.testing.assert_array_equal(a.numpy(), array(64, 64) + 1)
    np.testing.assert_array_equal(b.numpy(), array(64, 64) * 2)


def test_equal_graphs_are_one_node() -> None:
    x = tensor(4)
    a, b = x + 1, x + 1
    assert a.uop is b.uop
    assert kernels(a, b) == 1


def calls_to_realize_one_by_one(count: int) -> int:
    """The number of Python calls to realize lazy tensors one by one."""
    lazy = [
        functools.reduce(Tensor.add, range(40), Tensor(array(8)).realize()) for _ in range(count)
    ]
    profile = cProfile.Profile()
    profile.enable()
    for x in lazy:
        x.realize()
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def test_the_cost_of_realizing_many_tensors_one_by_one_is_linear() -> None:
    calls_to_realize_one_by_one(8)
    few, many = (calls_to_realize_one_by_one(count) for count in (25, 100))
    assert many < 8 * few


# ---- constants ----


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tensor.ones(3, 4),
        lambda: Tensor.full((3, 4), 2.5),
        lambda: Tensor.arange(12).reshape(3, 4),
        lambda: Tensor.eye(3, 4),
        lambda: Tensor(5.0),
        lambda: Tensor.zeros(0, 4),
    ],
)
def test_constants_can_be_realized(make: Any) -> None:
    x = make()
    before = x.numpy()
    x = make().contiguous().realize()
    assert x.uop.is_realized
    np.testing.assert_array_equal(x.numpy(), before)


def test_tensors_without_elements() -> None:
    x = tensor(0, 4)
    np.testing.assert_array_equal((x + 1).numpy(), np.zeros((0, 4)))
    np.testing.assert_array_equal(x.sum(0).numpy(), np.zeros(4))
    assert x.sum().item() == 0
    assert x.cat(tensor(2, 4)).shape == (2, 4)
    assert x.max(1).shape == (0,)


# ---- assignment ----


def test_assign_writes_into_the_same_memory() -> None:
    x = tensor(4)
    memory = x.uop.base.realized
    x.assign(x * 2 + 1).realize()
    assert x.uop.base.realized is memory
    np.testing.assert_allclose(x.numpy(), array(4) * 2 + 1, rtol=1e-6)


def test_assign_is_seen_through_views() -> None:
    x = tensor(4, 6)
    row = x[1]
    x.assign(Tensor.zeros(4, 6)).realize()
    np.testing.assert_array_equal(row.numpy(), np.zeros(6))


def test_a_value_from_before_an_assign_has_the_old_content() -> None:
    x = tensor(4)
    old = x + 1
    x.assign(Tensor.zeros(4))
    Tensor.realize(old, x)
    np.testing.assert_array_equal(old.numpy(), array(4) + 1)
    np.testing.assert_array_equal(x.numpy(), np.zeros(4))


def test_a_value_from_after_an_assign_has_the_new_content() -> None:
    x = tensor(4)
    x.assign(Tensor.zeros(4))
    new = x + 1
    np.testing.assert_array_equal(new.numpy(), np.ones(4))


def test_assigns_run_in_order() -> None:
    x = tensor(4)
    for _ in range(3):
        x.assign(x + 1)
    x.assign(x * 2)
    np.testing.assert_allclose(x.numpy(), (array(4) + 3) * 2, rtol=1e-6)


def test_an_assign_reads_what_the_previous_one_wrote_elsewhere() -> None:
    x = tensor(4)
    x.assign(x + 1)
    x.assign(x.flip(0) * 2)
    np.testing.assert_allclose(x.numpy(), (array(4)[::-1] + 1) * 2, rtol=1e-6)


def test_every_value_keeps_the_content_it_read() -> None:
    x, value = tensor(4), array(4)
    seen, expected = [], []
    for _ in range(3):
        seen.append(x * 2)
        expected.append(value * 2)
        x.assign(x + 1)
        value = value + 1
    Tensor.realize(x)
    for one, other in zip(seen, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-6)


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.flip(0),
        lambda x: x.permute(1, 0),
        lambda x: x + x.flip(1),
        lambda x: x.sum(0, keepdim=True).expand(4, 4),
        lambda x: x.roll(1, 0) - x,
        lambda x: x @ x,
        lambda x: (x + 1) * (x + 1).flip(0),
    ],
)
def test_assign_of_a_value_that_reads_other_elements_of_its_target(move: Any) -> None:
    x = tensor(4, 4)
    expected = move(tensor(4, 4)).numpy()
    x.assign(move(x)).realize()
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_swapping_two_tensors() -> None:
    x, y = tensor(4), tensor(4, seed=1)
    old = x.clone().realize()
    x.assign(y)
    y.assign(old)
    Tensor.realize(x, y)
    np.testing.assert_array_equal(x.numpy(), array(4, seed=1))
    np.testing.assert_array_equal(y.numpy(), array(4))


SLICES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "rows": (lambda x: x[0], lambda x: x[1]),
    "columns": (lambda x: x[:, :2], lambda x: x[:, 2:5]),
    "of one row": (lambda x: x[0, :2], lambda x: x[0, 2:]),
    "of another shape": (lambda x: x.reshape(8, 3)[0], lambda x: x.reshape(8, 3)[5]),
    "transposed": (lambda x: x.T[3], lambda x: x.T[:2]),
}


@pytest.mark.parametrize("name", SLICES)
def test_slices_of_one_buffer_are_updated_together(name: str) -> None:
    one, other = SLICES[name]
    expected = array(4, 6)
    one(expected)[...] *= 2
    other(expected)[...] -= 1
    x = tensor(4, 6)
    a, b = one(x), other(x)
    a.assign(a * 2)
    b.assign(b - 1)
    assert kernels(a, b) == 2
    np.testing.assert_array_equal(x.numpy(), expected)


def test_slices_at_a_symbolic_position_are_updated_together() -> None:
    expected, x = array(2, 8), tensor(2, 8)
    for position in (1, 5):
        at = Variable("position", 0, 6).bind(position)
        a, b = x[0, at : at + 2], x[1, at : at + 2]
        a.assign(a * 2)
        b.assign(b - 1)
        Tensor.realize(a, b)
        expected[0, position : position + 2] *= 2
        expected[1, position : position + 2] -= 1
    np.testing.assert_array_equal(x.numpy(), expected)


def test_the_prefix_before_a_symbolic_position_is_read_while_that_is_written() -> None:
    expected, x = array(8), tensor(8)
    at = Variable("position", 1, 4).bind(4)
    a, b = x[at : at + at], x[:at]
    a.assign(b + 1)
    b.assign(b * 3)
    Tensor.realize(a, b)
    expected[4:] = expected[:4] + 1
    expected[:4] *= 3
    np.testing.assert_array_equal(x.numpy(), expected)


def test_slices_of_one_buffer_are_swapped() -> None:
    expected, x = array(4, 6), tensor(4, 6)
    a, b = x[:2], x[2:]
    old = a + 0
    a.assign(b)
    b.assign(old)
    Tensor.realize(a, b)
    np.testing.assert_array_equal(x.numpy(), np.concatenate([expected[2:], expected[:2]]))


def test_overlapping_slices_are_written_one_after_the_other() -> None:
    expected, x = array(6), tensor(6)
    a, b = x[:4], x[2:]
    a.assign(a * 2)
    b.assign(b * 3)
    expected[:4] *= 2
    expected[2:] *= 3
    Tensor.realize(a, b)
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6)


def test_setitem_writes_a_slice() -> None:
    expected = array(4, 6)
    x = tensor(4, 6)
    x[1] = 5
    x[2:, ::2] = Tensor.arange(3)
    x[:, -1] += 1
    expected[1] = 5
    expected[2:, ::2] = np.arange(3)
    expected[:, -1] += 1
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6)


def test_setitem_by_a_tensor() -> None:
    expected = array(6, 4)
    x = tensor(6, 4)
    x[Tensor([1, 4])] = 0
    expected[[1, 4]] = 0
    np.testing.assert_array_equal(x.numpy(), expected)


def test_clone_has_its_own_memory() -> None:
    x = tensor(4)
    copy = x.clone().realize()
    x.assign(Tensor.zeros(4)).realize()
    np.testing.assert_array_equal(copy.numpy(), array(4))


# ---- devices and dtypes ----


def test_to_another_device_and_back() -> None:
    x = tensor(4, 6)
    there = x.to(nth(1))
    assert there.device == nth(1)
    GlobalCounters.reset()
    np.testing.assert_array_equal((there + 1).to(DEVICE).numpy(), array(4, 6) + 1)
    assert GlobalCounters.bytes_moved >= 2 * x.nbytes()


VIEWS: list[Callable[[Any], Any]] = [lambda x: x[1:3], lambda x: x.T, lambda x: x[:, 2]]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_copied_to_another_device(view: Callable[[Any], Any]) -> None:
    there = view(tensor(4, 6)).to(nth(1))
    np.testing.assert_array_equal(there.numpy(), view(array(4, 6)))


@pytest.mark.parametrize(
    "dtype", [dtypes.bool, dtypes.int8, dtypes.uint16, dtypes.int64, dtypes.half, dtypes.bfloat16]
)
def test_narrow_types_round_trip(dtype: Any) -> None:
    x = Tensor([0, 1, 3, 7]).cast(dtype).realize()
    assert x.dtype is dtype
    expected = [0, 1, 1, 1] if dtype is dtypes.bool else [0, 1, 3, 7]
    assert x.cast(dtypes.int).tolist() == expected


def test_a_bitcast_to_another_size() -> None:
    x = Tensor([1, 256, 65536], dtype=dtypes.uint32).realize()
    expected = np.array([1, 256, 65536], np.uint32).view(np.uint8)
    np.testing.assert_array_equal(x.bitcast(dtypes.uint8).numpy(), expected)


# ---- memory ----


def test_memory_is_freed_with_its_last_tensor() -> None:
    gc.collect()
    before = GlobalCounters.mem_used
    x = tensor(256, 256)
    assert GlobalCounters.mem_used >= before + x.nbytes()
    y = (x.exp().sum(1) + x.sum(0)).realize()
    del x, y
    gc.collect()
    assert GlobalCounters.mem_used == before


def test_temporaries_share_memory() -> None:
    def peak() -> int:
        gc.collect()
        x = tensor(64, 256)
        before = GlobalCounters.mem_used
        for _ in range(8):
            # each round needs only the result of the previous one
            x = (x + x.sum(1, keepdim=True) * 0.01).contiguous()
        items = x.schedule()
        run_schedule(items)
        return GlobalCounters.mem_used - before

    with Context(MEMORY_PLANNER=0):
        separate = peak()
    assert peak() < separate / 2


# ---- schedules as objects ----


def test_a_schedule_can_be_run_item_by_item() -> None:
    y = (tensor(4, 4).sum(1) + 1).to(nth(1))
    items = y.schedule()
    assert [type(item) for item in items] == [ExecItem, BufferCopy]
    for item in items:
        item.lower()
        item.run()
    np.testing.assert_allclose(y.numpy(), array(4, 4).sum(1) + 1, rtol=1e-5)


def test_a_kernel_is_compiled_once_and_loaded_on_each_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("NULL:5", "NULL:6")
    loaded: list[str] = []
    ran: list[str] = []

    def load(device: str, name: str, code: bytes) -> Callable[..., None]:
        loaded.append(device)
        return lambda *buffers, **shape: ran.append(device)

    for name in names:
        monkeypatch.setattr(Device[name], "shares_programs", False)
        monkeypatch.setattr(Device[name], "_runtime", functools.partial(load, name))
    before = len(compiled_kernels)
    for _ in range(2):
        for name in names:
            Tensor.empty(19, 31, device=name).sin().sum(1).realize()
    assert loaded == list(names), "once on each device"
    assert ran == [*names, *names], "each launch runs the program of its own device"
    assert len(compiled_kernels) == before + 1


def test_compiling_finds_the_loops_below_a_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[UOp] = []
    search = FreeRanges._of
    monkeypatch.setattr(FreeRanges, "_of", lambda *x: searched.append(x[1]) or search(*x))
    before = len(compiled_kernels)
    (tensor(37, 41) @ tensor(41, 43)).relu().realize()
    assert len(compiled_kernels) == before + 1
    assert len(searched) == len(set(searched)) > 0


def test_items_show_kernel_and_buffers() -> None:
    (item,) = (tensor(4, 4) + 1).schedule()
    assert item.ast.op is Ops.SINK
    assert [b.size for b in item.bufs] == [16, 16]
