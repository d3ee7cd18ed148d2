"""Allocators: reuse of freed memory, what is kept of it, and the memory of a container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygrad.device.allocator import (
    PEAK_PERIOD,
    SLACK_BYTES,
    Allocation,
    Allocator,
    BufferSpec,
    FreeLists,
    OutOfMemoryError,
    size_class,
)
from tinygrad.measure import GlobalCounters
from tinygrad.memory_limit import cgroup_limits, memory_limit, physical_memory
from tinygrad.runtime.support.host_memory import (
    ALIGNMENT,
    FREE_LISTS,
    HUGE_PAGE_BYTES,
    MAPPED_BYTES,
    SLAB_BYTES,
    HostAllocator,
    Slabs,
    allocate_host,
)


class CountingAllocator(Allocator):
    """An allocator of numbered handles, with a limit."""

    def __init__(self, capacity: int) -> None:
        super().__init__("COUNTING")
        self.capacity = capacity
        self.live: set[int] = set()
        self.fresh = 0

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[int, Any]:
        if len(self.live) == self.capacity:
            raise MemoryError
        self.fresh += 1
        self.live.add(self.fresh)
        return self.fresh, None

    def _free(self, handle: int, nbytes: int) -> None:
        self.live.remove(handle)


def test_freed_memory_is_reused():
    allocator = CountingAllocator(10)
    handles = set()
    for _ in range(20):
        handles.add(allocator.allocate(64).handle)
    assert handles == {1}
    assert allocator.allocate(128).handle == 2


def test_memory_in_use_is_never_allocated_again():
    allocator = CountingAllocator(10)
    alive = [allocator.allocate(64) for _ in range(5)]
    alive.pop(2)
    alive += [allocator.allocate(64) for _ in range(3)]
    assert len({allocation.handle for allocation in alive}) == 7
    assert allocator.fresh == 7


def test_cached_memory_is_freed_before_an_out_of_memory_error():
    allocator = CountingAllocator(2)
    kept: list[Allocation] = [allocator.allocate(64), allocator.allocate(64)]
    kept.clear()
    assert allocator.live == {1, 2}
    assert GlobalCounters.mem_kept >= 128
    held = [allocator.allocate(128), allocator.allocate(128)]
    message = (
        r"cannot allocate 32 bytes; 256 bytes are in use there .*2 of 128\); 0 bytes that were"
    )
    with pytest.raises(OutOfMemoryError, match=message):
        allocator.allocate(32)
    assert len(held) == 2


def test_the_cache_has_a_limit_and_frees_the_least_recently_used_size():
    allocator = CountingAllocator(100)
    lists = allocator.free_lists
    before = GlobalCounters.mem_kept
    lists.limit = 1 << 10
    for nbytes in (448, 512, 640):
        allocator.allocate(nbytes)
    assert set(lists.lists) == {640}
    for nbytes in (64, 128, 192):
        allocator.allocate(nbytes)
    assert GlobalCounters.mem_kept - before == lists.nbytes == 640 + 64 + 128 + 192
    allocator.allocate(640)
    allocator.allocate(256)
    assert set(lists.lists) == {256}, "3/4 of the limit is kept"


def test_blocks_serve_other_sizes_within_a_bound_on_waste():
    for nbytes in (0, 1, 64, 65, 1000, 1025, 5000, 123_456_789):
        assert nbytes <= size_class(nbytes) <= max(nbytes * 9 / 8, nbytes + 63)
        assert size_class(size_class(nbytes)) == size_class(nbytes)
    allocator = CountingAllocator(1000)
    for nbytes in range(1 << 20, 1 << 21, 1 << 12):
        allocator.allocate(nbytes)
    assert allocator.fresh <= 9, "256 sizes in 9 classes"
    allocator.allocate(5 << 17)
    assert allocator.fresh <= 10, "a block of 1 MiB is too large for 640 KiB"
    large = allocator.allocate(7 << 17)
    assert allocator.fresh <= 10 and large.capacity == 1 << 20 and large.nbytes == 7 << 17


def test_free_memory_is_given_back_beyond_the_recent_peak():
    mib = 1 << 20
    allocator = CountingAllocator(10_000)
    lists = allocator.free_lists
    for i in range(400):
        allocator.allocate(10 * mib + i * (mib >> 4))
        assert lists.nbytes <= 44 * mib, "a quarter more than the largest"
    whole = [allocator.allocate(64 * mib) for _ in range(10)]
    whole.clear()
    assert lists.nbytes >= 640 * mib, "the next step of a loop allocates it again"
    fresh = allocator.fresh
    whole = [allocator.allocate(64 * mib) for _ in range(10)]
    assert allocator.fresh == fresh
    whole.clear()
    for _ in range(2 * PEAK_PERIOD):
        allocator.allocate(64)
    assert lists.nbytes <= SLACK_BYTES, "it was not used for long"
    assert lists.in_use == 0


def test_allocators_can_share_cached_memory():
    shared = FreeLists()
    first, second = HostAllocator("NPY", shared), HostAllocator("NPY:1", shared)
    address = first.allocate(4096).handle
    assert second.allocate(4096).handle == address
    assert shared.nbytes == 4096


def test_nolru_memory_is_freed_at_once():
    allocator = CountingAllocator(100)
    allocator.allocate(64, BufferSpec(nolru=True))
    assert allocator.live == set()


def test_host_memory_is_aligned():
    for nbytes in (0, 1, 100, 5000, MAPPED_BYTES, 5 << 20):
        address, owner = allocate_host(nbytes)
        assert address % ALIGNMENT == 0
        start = owner.ctypes.data
        assert start <= address
        assert address + nbytes <= start + owner.nbytes


def test_blocks_of_slabs_are_disjoint_and_their_memory_is_used_again():
    slabs, random = Slabs(), np.random.default_rng(0)
    blocks: list[tuple[int, Any]] = []
    for number in range(300):
        nbytes = int(random.integers(1, 1 << 21))
        address, owner = slabs.allocate(nbytes)
        assert address % ALIGNMENT == 0 and owner.nbytes == nbytes
        owner[[0, -1]] = number % 256
        blocks.append((number, owner))
        if number > 20:
            blocks.pop(int(random.integers(len(blocks))))
    assert all((owner[[0, -1]] == number % 256).all() for number, owner in blocks)
    # 20 blocks at a time, of 21 MB on average, in slabs that are no more than half empty
    assert len(slabs) < 2 * 20 * (1 << 20) // SLAB_BYTES + 2
    del blocks, owner
    address, first = slabs.allocate(1000)
    assert len(slabs) == 1
    second = slabs.allocate(1000)[0]
    assert address // HUGE_PAGE_BYTES == second // HUGE_PAGE_BYTES
    assert first.nbytes == 1000


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_limits_of_control_groups_are_read(tmp_path: Path):
    assert cgroup_limits(tmp_path) == []
    groups = tmp_path / "proc/self/cgroup"
    write(groups, "9:name=systemd:/a\n4:cpu,memory:/jobs/one\n0::/\n")
    first = tmp_path / "sys/fs/cgroup/memory"
    write(first / "memory.limit_in_bytes", "9223372036854771712\n")
    write(first / "jobs/memory.limit_in_bytes", "1000\n")
    write(first / "jobs/one/memory.limit_in_bytes", "3000\n")
    assert sorted(cgroup_limits(tmp_path)) == [1000, 3000, 9223372036854771712]
    write(groups, "0::/jobs/one\n")
    second = tmp_path / "sys/fs/cgroup"
    write(second / "memory.max", "2000\n")
    write(second / "jobs/memory.high", "1500\n")
    write(second / "jobs/one/memory.max", "max\n")
    assert sorted(cgroup_limits(tmp_path)) == [1500, 2000]
    assert memory_limit() <= physical_memory()
    assert FREE_LISTS.limit == memory_limit() // 4
