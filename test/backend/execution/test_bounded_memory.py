"""What a process keeps of work that is done: memory, plans, kernels and nodes, all bounded."""

from __future__ import annotations

import gc

import pytest

from test.devices import DEVICE, only_cpu
from tinygrad import Context, GlobalCounters, Tensor, TinyJit
from tinygrad.caches import LruTable, cache_bytes, cached_function, drop_caches
from tinygrad.device import Buffer, Device
from tinygrad.device.allocator import SLACK_BYTES
from tinygrad.dtype import PtrDType, dtypes
from tinygrad.execution.realize import _runners
from tinygrad.execution.schedule import plan_cache
from tinygrad.runtime.support.host_memory import FREE_LISTS
from tinygrad.runtime.support.llvm import LinkedCode
from tinygrad.uop.interning import table


def train(length: int, weights: tuple[Tensor, Tensor]) -> None:
    """A step on a batch, which is dropped."""
    first, second = weights
    first.grad = second.grad = None
    batch = Tensor.rand(length, 8)
    loss = ((batch @ first).relu() @ second).square().mean()
    loss.backward()
    assert first.grad is not None and second.grad is not None
    Tensor.realize(loss, first.grad, second.grad)


def linked_kernels() -> int:
    """The number of kernels that are mapped in this process."""
    gc.collect()
    return sum(isinstance(x, LinkedCode) for x in gc.get_objects())


def pointer_types() -> int:
    """The number of pointer types, each to some number of elements."""
    return sum(isinstance(x, PtrDType) for x in gc.get_objects())


@pytest.mark.slow
def test_batches_of_ever_new_lengths_keep_a_bounded_amount():
    weights = Tensor.rand(8, 16, requires_grad=True), Tensor.rand(16, 4, requires_grad=True)
    Tensor.realize(*weights)
    drop_caches()
    before = linked_kernels(), len(table)
    kept, types = [], []
    with Context(CACHE_MB=1):
        assert cache_bytes() == 1 << 20
        for length in range(33, 53):
            train(length, weights)
            assert plan_cache.nbytes <= cache_bytes() // 3
            assert _runners.nbytes <= cache_bytes() * 2 // 3
            kept.append((linked_kernels() - before[0], len(table) - before[1]))
            types.append(pointer_types())
    # nothing grows any more: dropped kernels are unloaded, and the nodes of dropped plans are gone
    assert max(kernels for kernels, _ in kept) <= 20
    assert max(types[10:]) <= 1.25 * max(types[:10])
    assert max(nodes for _, nodes in kept[10:]) <= 1.25 * max(nodes for _, nodes in kept[:10])
    drop_caches()
    assert len(plan_cache) == len(_runners) == plan_cache.nbytes == _runners.nbytes == 0
    weights[0].grad = weights[1].grad = None
    assert linked_kernels() <= before[0]


def test_captured_functions_keep_their_kernels_when_caches_are_dropped():
    step = TinyJit(lambda x: (x * 3 + 1).realize())
    x = Tensor([1.0, 2.0]).realize()
    for _ in range(2):
        step(x)
    drop_caches()
    assert step(x).tolist() == [4.0, 7.0]
    assert not len(_runners), "the replay looked up no kernel"


@only_cpu
def test_memory_of_ever_new_sizes_is_given_back(monkeypatch: pytest.MonkeyPatch):
    gc.collect()
    FREE_LISTS.drain(lambda handle, nbytes: None)
    assert FREE_LISTS.nbytes == 0
    in_use = FREE_LISTS.in_use
    monkeypatch.setattr(FREE_LISTS, "_peak", in_use)
    monkeypatch.setattr(FREE_LISTS, "_earlier_peak", 0)
    kept, used = GlobalCounters.mem_kept, GlobalCounters.mem_used
    for i in range(300):
        Buffer(DEVICE, (1 << 20) + 4096 * i, dtypes.float32).allocate()
        assert FREE_LISTS.nbytes <= max(SLACK_BYTES, in_use // 4 + (10 << 20))
        assert GlobalCounters.mem_kept - kept == FREE_LISTS.nbytes
        assert GlobalCounters.mem_used == used
    assert FREE_LISTS.nbytes > 0


def test_a_table_is_bounded_by_bytes_and_drops_cached_functions_in_time():
    calls: list[int] = []

    @cached_function(8)
    def square(x: int) -> int:
        calls.append(x)
        return x * x

    table: LruTable[int, str] = LruTable(lambda: 100, lambda key, value: len(value))
    for key in range(4):
        table.put(key, "x" * 30)
    assert list(table) == [1, 2, 3] and table.nbytes == 90
    assert table.get(1) == "x" * 30 and table.get(0) is None
    table.put(1, "x" * 60)
    assert list(table) == [3, 1] and table.nbytes == 90
    assert square(3) == square(3) == 9 and calls == [3]
    table.put(5, "x" * 1000)
    assert list(table) == [5], "one entry is kept, whatever its size"
    assert square(3) == 9 and calls == [3, 3], "more than the limit was dropped"


def test_memory_errors_free_caches_first(monkeypatch: pytest.MonkeyPatch):
    (Tensor.ones(3).contiguous() + 2).realize()
    assert len(_runners) and len(plan_cache)
    with pytest.raises(MemoryError, match=r"cannot allocate .* kept for reuse, and all caches"):
        Buffer(DEVICE, 1 << 60, dtypes.float32).allocate()
    assert not len(_runners) and not len(plan_cache)
    assert not Device[DEVICE].allocator.free_lists.nbytes
