"""Host memory as device memory.

Handles are addresses. Large blocks are mappings of their own, so that freeing one gives its memory
back to the system, and ask for huge pages. Allocations are aligned to cache lines.

Where processes copy from each other's memory, the kernel pins each page of a message: from small
pages 1 MB takes three times as long as from a huge one. So there smaller blocks are ranges of slabs
of huge pages (`use_huge_pages`).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np

from tinygrad.device.allocator import Allocation, Allocator, BufferSpec, FreeLists
from tinygrad.memory_limit import memory_limit

ALIGNMENT = 64
MAPPED_BYTES = 1 << 18
"""Blocks from this size on are mappings of their own."""
HUGE_PAGES_BYTES = 1 << 22
"""Blocks from this size on ask for huge pages."""
HUGE_PAGE_BYTES = 1 << 21
"""Huge pages are aligned to this; where they are smaller or larger, the system decides."""
SLAB_BYTES = 4 * HUGE_PAGE_BYTES
SLAB_BLOCK_BYTES = 1 << 12
"""Blocks from this size on are ranges of slabs, where these are used."""
FREE_LISTS = FreeLists(memory_limit() // 4)
"""Shared by all devices whose memory is that of the host."""


def get_host_address(data: memoryview) -> int:
    """The address of contiguous bytes, which may be read-only."""
    if data.nbytes == 0:
        return 0
    if not data.readonly:
        return ctypes.addressof(ctypes.c_char.from_buffer(data))
    interface = np.frombuffer(data, np.uint8).__array_interface__
    address = interface["data"][0]
    assert isinstance(address, int)
    return address


class Slabs:
    """Blocks of at most `HUGE_PAGES_BYTES` that are ranges of larger mappings of huge pages. A slab
    without a block goes back to the system when the next block is allocated.
    """

    def __init__(self) -> None:
        # the memory of each slab, with its free ranges in order
        self._slabs: list[tuple[Any, list[tuple[int, int]]]] = []
        # ranges whose owners are gone: finalizers run inside any statement, so they only append
        self._freed: deque[tuple[Any, int, int]] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._slabs)

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        """A block aligned to cache lines. Returns its address and the object that owns it."""
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        with self._lock:
            while self._freed:
                self._free(*self._freed.popleft())
            found = self._first_fit(size)
            if found is None:
                self._slabs.append((_map_huge_pages(SLAB_BYTES), [(0, SLAB_BYTES)]))
                found = self._first_fit(size)
            assert found is not None
            memory, start = found
        owner = memory[start : start + nbytes]
        freed = weakref.finalize(owner, self._freed.append, (memory, start, start + size))
        freed.atexit = False
        return owner.__array_interface__["data"][0], owner

    def _first_fit(self, size: int) -> tuple[Any, int] | None:
        """The memory of a slab, and where a block of a size begins in it."""
        for memory, ranges in self._slabs:
            for number, (start, stop) in enumerate(ranges):
                if stop - start >= size:
                    ranges[number : number + 1] = [(start + size, stop)] * (stop - start > size)
                    return memory, start
        return None

    def _free(self, memory: Any, start: int, stop: int) -> None:
        number, ranges = next((i, r) for i, (m, r) in enumerate(self._slabs) if m is memory)
        joined = list[tuple[int, int]]()
        for first, last in sorted([*ranges, (start, stop)]):
            if joined and joined[-1][1] == first:
                first = joined.pop()[0]
            joined.append((first, last))
        ranges[:] = joined
        if ranges == [(0, SLAB_BYTES)]:
            del self._slabs[number]


class _Process:
    slabs: Slabs | None = None


def use_huge_pages() -> None:
    """From now on, blocks from `SLAB_BLOCK_BYTES` on are in huge pages, if the system has them."""
    if hasattr(mmap, "MADV_HUGEPAGE") and _Process.slabs is None:
        _Process.slabs = Slabs()


def used_slabs() -> Slabs | None:
    """The slabs of this process, if it uses some."""
    return _Process.slabs


def allocate_host(nbytes: int) -> tuple[int, Any]:
    """Allocates aligned memory. Returns its address and the object that owns it."""
    if _Process.slabs is not None and SLAB_BLOCK_BYTES <= nbytes < HUGE_PAGES_BYTES:
        return _Process.slabs.allocate(nbytes)
    if nbytes >= MAPPED_BYTES:
        return _map(nbytes)
    owner = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = owner.__array_interface__["data"][0]
    return start + -start % ALIGNMENT, owner


def _map_huge_pages(nbytes: int) -> Any:
    """Maps zeroed pages that begin with a huge page. Returns their bytes."""
    address, owner = _map(nbytes + HUGE_PAGE_BYTES)
    start = -address % HUGE_PAGE_BYTES
    return owner[start : start + nbytes]


def _map(nbytes: int) -> tuple[int, Any]:
    """Maps zeroed pages. Returns their address and the object that owns them."""
    try:
        mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"cannot map {nbytes} bytes") from error
    if nbytes >= HUGE_PAGES_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)
    # the mapping is closed with the last object that refers to its bytes
    owner = np.frombuffer(mapping, np.uint8)
    return owner.__array_interface__["data"][0], owner


class HostAllocator(Allocator):
    """Allocates host memory. Existing host memory becomes a buffer without a copy."""

    addressable = True

    def __init__(self, device: str, free_lists: FreeLists = FREE_LISTS) -> None:
        super().__init__(device, free_lists)

    def wrap_host_memory(self, data: memoryview) -> Allocation | None:
        return Allocation(None, get_host_address(data), data.nbytes, data, readonly=data.readonly)

    def as_memoryview(self, allocation: Allocation, offset: int, nbytes: int) -> memoryview:
        if nbytes == 0:
            return memoryview(b"")
        return np.asarray(allocation)[offset : offset + nbytes].data

    def copyin(self, handle: int, source: memoryview) -> None:
        self._copy(handle, get_host_address(source), source.nbytes)

    def copyout(self, destination: memoryview, handle: int) -> None:
        self._copy(get_host_address(destination), handle, destination.nbytes)

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[int, Any]:
        return allocate_host(nbytes)

    def _copy(self, destination: int, source: int, nbytes: int) -> None:
        ctypes.memmove(destination, source, nbytes)
