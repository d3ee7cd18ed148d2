"""Storage: realizing, assignment, views, copy on write, and aliasing."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.devices import DEVICE, device_names, nth, only_cpu
from test.threads import in_threads
from tinygrad import CommTrace, GlobalCounters, Sharding, Tensor, TinyJit, dtypes, nn
from tinygrad.execution.schedule import create_schedule
from tinygrad.sharding import ShardingError
from tinygrad.storage.live_tensors import live_tensors
from tinygrad.uop import Ops

TWO = device_names(2, 1)
PLACES: list[Any] = [DEVICE, Sharding(TWO), Sharding(TWO, 0)]


@pytest.fixture(params=PLACES, ids=str)
def place(request: pytest.FixtureRequest) -> Any:
    return request.param


def stored(values: Any, place: Any = DEVICE) -> Tensor:
    return Tensor(values, device=place).realize()


# ---- realizing ----


def test_realizing_computes_once() -> None:
    x = stored([1.0, 2.0])
    y = (x + 1).realize()
    GlobalCounters.reset()
    assert y.tolist() == [2, 3]
    y.realize()
    assert GlobalCounters.kernel_count == 0


def test_users_of_a_realized_value_do_not_recompute_it() -> None:
    x = stored([1.0, 2.0])
    y = x.exp()
    z = y + 1
    y.realize()
    assert Ops.EXP not in [node.op for node in z.uop.toposort()]
    np.testing.assert_allclose(z.numpy(), np.exp([1, 2]) + 1, rtol=1e-6)


def test_several_tensors_are_realized_together() -> None:
    x = stored([1.0, 2.0])
    y, z = x + 1, x * 3
    Tensor.realize(y, z)
    assert y.uop.is_realized
    assert z.uop.is_realized


def test_realize_without_updating_counters() -> None:
    x = stored([1.0, 2.0])
    GlobalCounters.reset()
    (x + 1).realize(do_update_stats=False)
    assert GlobalCounters.kernel_count == 0
    (x + 2).realize()
    assert GlobalCounters.kernel_count == 1


def test_realizing_values_without_kernels() -> None:
    assert Tensor.zeros(0, 3).realize().tolist() == []
    assert Tensor(3).realize().item() == 3


def test_views_of_memory_need_no_kernel() -> None:
    x = stored(np.arange(6).reshape(2, 3))
    GlobalCounters.reset()
    assert x.T[1:].flip(0).tolist() == [[2, 5], [1, 4]]
    assert x.reshape(3, 2).expand(2, 3, 2).shape == (2, 3, 2)
    assert x.detach().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert GlobalCounters.kernel_count == 0


def test_constants_need_no_kernel_to_be_read() -> None:
    GlobalCounters.reset()
    assert Tensor.full((2, 2), 3.5).tolist() == [[3.5, 3.5], [3.5, 3.5]]
    assert Tensor.ones(2, device=Sharding(TWO, 0)).tolist() == [1, 1]
    assert GlobalCounters.kernel_count == 0


def test_a_schedule_can_be_run_by_hand() -> None:
    x = stored([1.0, 2.0])
    y = x * 2
    items = y.schedule()
    assert len(items) == 1
    for item in items:
        item.run()
    assert y.tolist() == [2, 4]


def test_memory_of_a_new_tensor() -> None:
    x = Tensor.empty(3)
    x.realize()
    assert x.uop.is_realized
    assert x.numpy().shape == (3,)


def test_deleted_tensors_are_forgotten() -> None:
    gc.collect()
    before = len(live_tensors)
    for _ in range(10):
        (Tensor([1.0]) + 1).realize()
    gc.collect()
    assert len(live_tensors) <= before


def operations_of(run: Callable[[], object]) -> int:
    """The number of bytecode instructions that a call takes."""
    count = 0

    def trace(frame: Any, event: str, arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    # before tracing begins, as Python 3.12 requires
    sys._getframe().f_trace_opcodes = True
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def test_realizing_and_writing_do_not_search_stored_tensors() -> None:
    x, history = stored([1.0, 2.0]), (stored([1.0]) + 1).realize()

    def step() -> None:
        (x + 1).realize()
        x.assign(x * 2).realize()
        x[1] = 3

    for _ in range(3):
        step()
    gc.collect()
    alone = operations_of(step)
    many = [stored([float(i)]) for i in range(200)]
    step()
    # each of them would take many instructions; a table that is cleared now and then, some
    assert operations_of(step) <= alone + 5 * len(many)
    assert history.tolist() == [2]


def test_writing_elements_takes_no_longer_after_a_write_that_had_a_history() -> None:
    def cost(x: Tensor) -> int:
        for i in range(20):
            x[1] = i
        return operations_of(lambda: x.__setitem__(1, 2))

    source = stored([1.0, 2.0])
    assigned = stored([1.0, 2.0]).assign(source + 1).realize()
    assert cost(assigned) < cost(stored([1.0, 2.0])) * 1.2


# ---- assignment ----


def test_assign(place: Any) -> None:
    x = stored([1.0, 2.0], place)
    buffer = x.uop.buffer
    x.assign(Tensor([3.0, 4.0], device=place)).realize()
    assert x.tolist() == [3, 4]
    assert x.uop.buffer is buffer


def test_assign_of_a_value_that_reads_the_old_content(place: Any) -> None:
    x = stored([1.0, 2.0], place)
    for _ in range(3):
        x.assign(x * 2)
    assert x.tolist() == [8, 16]
    x.assign(x + 1).realize()
    assert x.tolist() == [9, 17]


def test_assign_of_the_content_in_another_order(place: Any) -> None:
    x = stored([1.0, 2.0, 3.0, 4.0], place)
    x.assign(x.flip(0)).realize()
    assert x.tolist() == [4, 3, 2, 1]


def test_assign_of_a_value_that_reads_each_element_twice(place: Any) -> None:
    x = stored([[1.0], [2.0]], place).reshape(1, 2, 1)
    x.assign(x + x.flip(2))
    assert x.realize().tolist() == [[[2], [4]]]


def test_a_lazy_value_from_before_an_assign_keeps_its_value(place: Any) -> None:
    x = stored([1.0, 2.0], place)
    y = x + 1
    x.assign(x * 10).realize()
    assert y.tolist() == [2, 3]
    assert x.tolist() == [10, 20]


def test_a_lazy_value_from_between_two_assigns_keeps_its_value(place: Any) -> None:
    x = stored([1.0, 2.0], place)
    x.assign(x * 10)
    y = x + 1
    x.assign(x * 10)
    z = x + 1
    assert z.tolist() == [101, 201]
    assert y.tolist() == [11, 21]
    assert x.tolist() == [100, 200]


def test_the_loss_of_a_step_may_be_read_after_it() -> None:
    w = stored([1.0, 2.0])
    w.requires_grad = True
    loss = (w * w).sum()
    loss.backward()
    gradient = w.grad
    w.assign(w.detach() - w.grad * 0.5).realize()
    assert w.tolist() == [0, 0]
    assert loss.item() == 5
    assert gradient.tolist() == [2, 4]


def test_two_buffers_swapped() -> None:
    a, b = stored([1.0]), stored([2.0])
    old = a.clone()
    a.assign(b)
    b.assign(old)
    Tensor.realize(a, b)
    assert (a.item(), b.item()) == (2, 1)


def test_views_see_assignments() -> None:
    x = stored([1.0, 2.0, 3.0, 4.0])
    view = x.reshape(2, 2)
    x.assign(Tensor([5.0, 6.0, 7.0, 8.0])).realize()
    assert view.tolist() == [[5, 6], [7, 8]]


def test_assign_to_a_slice_writes_to_its_base() -> None:
    x = stored([1.0, 2.0, 3.0, 4.0])
    x[1:3].assign(Tensor([20.0, 30.0])).realize()
    assert x.tolist() == [1, 20, 30, 4]


@pytest.mark.parametrize("part", [slice(1, 3), slice(0, 4, 2), (slice(None), slice(1, 3))])
def test_a_slice_that_was_assigned_to_is_resharded_as_a_slice(part: Any) -> None:
    x = stored(np.arange(16, dtype=np.int32).reshape(4, 4))
    y = x[part]
    y.assign(Tensor.full(y.shape, -1))
    assert y.to(nth(1)).tolist() == np.full(y.shape, -1).tolist()
    assert y[1:].to(nth(1)).tolist() == np.full(y.shape, -1)[1:].tolist()


def test_a_lazy_tensor_becomes_the_assigned_value() -> None:
    x = Tensor.zeros(2)
    x.assign(Tensor([1.0, 2.0]))
    assert x.tolist() == [1, 2]
    assert Tensor.zeros(2).tolist() == [0, 0]


@pytest.mark.parametrize("is_stored", [True, False])
def test_what_is_assigned_is_broadcast_and_cast(is_stored: bool) -> None:
    x = Tensor([[1, 2], [3, 4]])
    x = x.realize() if is_stored else x.neg().neg()
    view = x[0]
    assert x.assign(3).tolist() == [[3, 3], [3, 3]]
    assert x.assign(Tensor([1.7, -2.7])).tolist() == [[1, -2], [1, -2]]
    assert x.assign(np.array([[5], [6]], dtype=np.int64)).dtype == dtypes.int
    assert (x.tolist(), view.tolist()) == ([[5, 5], [6, 6]], [5, 5])
    for value in (Tensor([1, 2, 3]), Tensor([[[1, 2]]])):
        with pytest.raises(ValueError, match="does not broadcast to"):
            x.assign(value)


def test_assign_from_another_device_is_an_error() -> None:
    with pytest.raises(ShardingError, match=r"use \.to|move it with \.to"):
        stored([1.0]).assign(stored([2.0], nth(1)))


def test_assign_between_layouts_of_the_same_devices() -> None:
    x = stored([1.0, 2.0], Sharding(TWO, 0))
    x.assign(stored([3.0, 4.0], Sharding(TWO))).realize()
    assert x.device == Sharding(TWO, 0)
    assert x.tolist() == [3, 4]


# ---- equal values, computed once ----


def test_writing_to_one_of_two_equal_values_does_not_change_the_other(place: Any) -> None:
    x = stored([1.0, 2.0], place)
    a, b = x + 1, x + 1
    assert a.uop is b.uop
    Tensor.realize(a, b)
    assert a.uop.buffer is b.uop.buffer
    a.assign(a * 10).realize()
    assert (a.tolist(), b.tolist()) == ([20, 30], [2, 3])
    b[0] = 7
    assert (a.tolist(), b.tolist()) == ([20, 30], [7, 3])


def test_views_follow_their_base_on_copy_on_write() -> None:
    x = stored([[1.0, 2.0], [3.0, 4.0]])
    a, b = x + 1, x + 1
    ours, theirs = a.T.flatten(0, 0)[0].detach(), b[:, 0]
    a.realize()
    a[:, 0] = 50
    assert (ours.tolist(), theirs.tolist()) == ([50, 50], [2, 4])
    assert b.tolist() == [[2, 3], [4, 5]]


def test_a_tensor_built_from_a_tensor_sees_writes_to_it() -> None:
    x, equal = Tensor([1, 2, 3]) + 1, Tensor([1, 2, 3]) + 1
    same, converted = Tensor(x), Tensor(x, dtype="float")
    Tensor.realize(x, equal, converted)
    same[0] = 9
    converted[1] = 7
    assert x.tolist() == same.tolist() == [9, 3, 4]
    assert equal.tolist() == [2, 3, 4]
    assert converted.tolist() == [2.0, 7.0, 4.0]


def test_writing_a_value_that_reads_the_slice_copies_no_memory() -> None:
    x, expected = stored([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])
    memory = x.uop.buffer
    GlobalCounters.reset()
    x[0] = x[1] * 2 + x[0]
    expected[0] = expected[1] * 2 + expected[0]
    kept = x[:, 0] + 1
    x[:, 1] = kept
    expected[:, 1] = expected[:, 0] + 1
    x[:] = x.flip(0) - 1
    expected[:] = expected[::-1].copy() - 1
    assert GlobalCounters.moved_out == 0
    assert x.uop.buffer is memory
    assert x.tolist() == expected.tolist()
    assert kept.tolist() == [8, 4]


def test_what_is_computed_with_a_write_precedes_the_results_in_their_order() -> None:
    x = stored([1.0, 2.0])
    total, reader = (x * 5).sum(), x * 3
    x.assign(x + 1)
    known: list[list[Any]] = []

    def further(writes: Any, lost: Any, nodes: list[Any]) -> list[Any]:
        known.append([*nodes])
        return [total.uop, reader.uop]

    create_schedule([x.uop, total.uop], further)
    write, result = known[0]
    assert known[1:] == [[reader.uop, write, result]]


def test_writing_to_an_unshared_value_copies_no_memory() -> None:
    x = stored([1.0, 2.0])
    a = (x + 1).realize()
    view, memory = a.reshape(2, 1), a.uop.buffer
    GlobalCounters.reset()
    a.assign(a * 10).realize()
    assert GlobalCounters.kernel_count == 1
    assert a.uop.buffer is memory
    assert view.tolist() == [[20], [30]]


def test_writing_to_a_tensor_leaves_the_one_assigned_to_it() -> None:
    x, y = stored([1.0, 2.0]), Tensor.zeros(2)
    y.assign(x)
    y[0] = 7
    assert (x.tolist(), y.tolist()) == ([1, 2], [7, 2])


def test_values_optimized_to_one_node_are_separated_by_a_write() -> None:
    x = stored([1.0, 2.0])
    a = x + 1
    b = a.to(nth(1)).to(DEVICE)
    Tensor.realize(a, b)
    a.assign(a * 0).realize()
    assert (a.tolist(), b.tolist()) == ([0.0, 0.0], [2.0, 3.0])


def test_shared_memory_is_copied_on_write_in_a_captured_function_too() -> None:
    @TinyJit
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = (x + 1).realize(), (x + 1).realize()
        c = x * 2
        d = x * 2
        Tensor.realize(c, d)
        c.assign(c + a + b)
        return Tensor.realize(c, d), d

    for number in range(4):
        c, d = step(stored([float(number)]))
        assert (c.item(), d.item()) == (4 * number + 2, 2 * number)


# ---- separate memory ----


def test_equal_values_realized_twice_have_separate_memory(place: Any) -> None:
    a, b = (Tensor.zeros(2, device=place).contiguous().realize() for _ in range(2))
    a.assign(a + 1).realize()
    assert (a.tolist(), b.tolist()) == ([1, 1], [0, 0])


def test_clones_do_not_alias(place: Any) -> None:
    x = stored([1.0, 2.0], place)
    a, b = x.clone(), x.clone()
    a.assign(a + 1).realize()
    assert (a.tolist(), b.tolist(), x.tolist()) == ([2, 3], [1, 2], [1, 2])
    assert a.device == x.device


def test_a_clone_elsewhere_is_sent_once_and_does_not_alias(place: Any) -> None:
    x = stored([1.0, 2.0])
    x.grad = stored([5.0, 6.0])
    kept = x.clone(device=place)
    assert kept.grad is not None and kept.grad.device == kept.device == place
    with CommTrace() as trace:
        copy = x.detach().clone(place).realize()
    assert len(trace.records) == (0 if place == DEVICE else 1)
    copy.assign(copy + 1).realize()
    x.assign(x * 10).realize()
    assert (copy.tolist(), x.tolist(), kept.tolist()) == ([2, 3], [10, 20], [1, 2])
    assert (kept.grad * 1).tolist() == [5, 6]


def test_replace_changes_what_a_tensor_is() -> None:
    x = Tensor([1.0, 2.0])
    x.replace(Tensor([3.0, 4.0]))
    assert x.tolist() == [3, 4]
    with pytest.raises(ValueError, match="is not"):
        x.replace(Tensor([1.0]))
    x.replace(Tensor([1.0]), allow_shape_mismatch=True)
    assert x.tolist() == [1]


# ---- other sources ----


def test_bytes_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "numbers"
    np.arange(4, dtype=np.int32).tofile(file)
    x = Tensor(file)
    assert x.dtype == dtypes.uint8
    assert x.shape == (16,)
    assert x.to(DEVICE).bitcast(dtypes.int32).tolist() == [0, 1, 2, 3]


@only_cpu
def test_external_memory_is_written_to() -> None:
    array = np.arange(4, dtype=np.float32)
    x = Tensor.from_blob(array.ctypes.data, (4,), dtype=dtypes.float32)
    x.assign(x + 1).realize()
    assert array.tolist() == [1, 2, 3, 4]


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", [*dtypes.ints, *dtypes.floats, dtypes.bool])
def test_every_dtype_survives_a_round_trip(dtype: Any, place: Any) -> None:
    values = [0, 1] if dtype is dtypes.bool else [1, 2]
    x = Tensor(values, dtype=dtype, device=place).realize()
    assert x.dtype == dtype
    assert x.tolist() == values


# ---- gradients and memory ----


def test_a_gradient_stays_exact_when_its_input_is_realized_in_between() -> None:
    x = Tensor([-300.0, 1.0], requires_grad=True)
    y = (x * 1).sigmoid()
    x.realize()
    y.sum().backward()
    expected = 1 / (1 + np.exp(-1.0)) * (1 - 1 / (1 + np.exp(-1.0)))
    np.testing.assert_allclose(x.grad.numpy(), [0, expected], rtol=1e-5)


# ---- copies ----


def test_copies_and_pickles_have_their_own_memory(place: Any) -> None:
    x = stored([1.0, 2.0], place)
    x.requires_grad = True
    for copied in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert (copied.device, copied.requires_grad) == (x.device, True)
        copied.assign(copied + 1).realize()
        assert copied.tolist() == [2, 3]
    assert x.tolist() == [1, 2]
    narrow = Tensor([1.5, 2.5], dtype=dtypes.bfloat16)
    assert copy.deepcopy(narrow).dtype == dtypes.bfloat16


COPIERS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "old pickle": lambda x: pickle.loads(pickle.dumps(x, 0)),
    "deep copy": copy.deepcopy,
    "twice": lambda x: copy.deepcopy(pickle.loads(pickle.dumps(x))),
}
MEMBERS: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "base and view": lambda x: [x, x[1:3]],
    "view first": lambda x: [x[1:3], x.reshape(3, 4)[0], x],
    "a view of a view": lambda x: [x, x.reshape(3, 4)[1:, 1:3], x.reshape(3, 4)[1:, 1:3][0]],
    "other tensors of one": lambda x: [x, Tensor(x), x.detach(), x.bitcast(dtypes.int)],
    "views that overlap": lambda x: [x[1:3], x[6:9], x[8:12], x[2:4]],
    "views that do not": lambda x: [x[0:3], x[3:6]],
    "all elements moved": lambda x: [x.reshape(3, 4).T, x.flip(0), x[1:3]],
    "strided": lambda x: [x[::2], x[1:4]],
    "not computed": lambda x: [y := x + 1, y[2:4]],
    "a value of another": lambda x: [x, x * 2],
}


def assert_same(tensors: list[Tensor], expected: list[Any]) -> None:
    for x, values in zip(tensors, expected, strict=True):
        np.testing.assert_array_equal(x.numpy(), values)


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("copier", COPIERS)
def test_views_that_are_copied_together_see_each_others_writes(copier: str, members: str) -> None:
    values = np.arange(12, dtype=np.float32)
    count = len(MEMBERS[members](Tensor(values)))
    for written in range(count):
        # the original, of which nothing else is alive, shows what is written where
        original = MEMBERS[members](Tensor(values.copy()).realize())
        before = [x.numpy() for x in original]
        copied = COPIERS[copier](original)
        assert_same(copied, before)
        for group in (copied, original):
            x = group[written]
            x.assign(x * 0 - 1).realize()
            if group is copied:
                assert_same(original, before)
        assert_same(copied, [x.numpy() for x in original])


def test_shards_that_are_copied_with_their_tensor_stay_shards() -> None:
    x = Tensor([1, 2, 3, 4]).shard((nth(0), nth(1)), axis=0).realize()
    copied, *shards = pickle.loads(pickle.dumps([x, *x.shards]))
    copied.assign(copied + 1).realize()
    assert [shard.tolist() for shard in shards] == [[2, 3], [4, 5]]
    assert copied.device == x.device


def test_a_view_alone_is_pickled_without_its_base() -> None:
    x = Tensor.zeros(1 << 16).contiguous().realize()
    view = x[5:8]
    assert len(pickle.dumps(view)) < 1000
    assert len(pickle.dumps((x, view))) < len(pickle.dumps(x)) + 1000
    apart = [pickle.loads(pickle.dumps(y)) for y in (x, view)]
    apart[1].assign(apart[1] + 1).realize()
    assert apart[0][5:8].tolist() == [0, 0, 0]
    expanded, base = copy.deepcopy([x[:1].expand(3), x])
    base.assign(base + 1).realize()
    assert expanded.tolist() == [1, 1, 1]


def test_flat_parameters_and_views_are_copied_with_their_optimizer() -> None:
    flat = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    weight = flat[:2]
    state = {"weight": weight, "optimizer": nn.optim.SGD([flat], lr=1.0, momentum=0.5)}
    for copier in COPIERS.values():
        copied = copier(state)
        with Tensor.train():
            (copied["weight"] * 3).sum().backward()
            copied["optimizer"].step()
        (new,) = copied["optimizer"].params
        assert (new.tolist(), copied["weight"].tolist()) == ([-2, -1, 3], [-2, -1])
    assert weight.tolist() == [1, 2]


def test_numpy_numbers_are_operands_on_both_sides() -> None:
    x = Tensor([1, 2])
    assert (x * np.int64(3)).tolist() == [3, 6]
    assert (np.float32(0.5) + x).tolist() == [1.5, 2.5]
    assert (np.int32(1) < x).tolist() == [False, True]
    for found, expected in (
        (np.array([2.5, 3]) - x, [1.5, 1]),
        (x // np.array([1, 2]), [1, 1]),
        (np.array([[1], [2]]) @ x.reshape(1, 2), [[1, 2], [2, 4]]),
        (np.array([1, 3]) == x, [True, False]),
        ((x > 1).where(np.array([5, 6]), x), [1, 6]),
    ):
        assert isinstance(found, Tensor) and found.tolist() == expected
    two = x.to(Sharding(TWO, 0))
    assert (np.array([10, 20]) + two).device == two.device
    with pytest.raises(TypeError, match="wrap it"):
        x * [1, 2]


# ---- threads ----


def test_threads_realize_assign_and_draw_at_the_same_time() -> None:
    shared = stored(np.arange(64, dtype=np.float32))

    def work(number: int, wait: Callable[[], object]) -> None:
        own = stored(np.full(64, number, np.float32))
        wait()
        for step in range(8):
            before, combined = own + 1, shared * 2 + own
            (own + combined).realize()
            own.assign(own + 8).realize()
            content = number + 8 * step
            np.testing.assert_array_equal(before.numpy(), content + 1)
            np.testing.assert_array_equal(combined.numpy(), np.arange(64) * 2 + content)
            np.testing.assert_array_equal(own.numpy(), content + 8)
            assert 0 <= Tensor.rand(4).min().item() < 1

    in_threads(work)
