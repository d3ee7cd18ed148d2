"""Host memory as device memory.

Handles are addresses. Large blocks are mappings of their own, so that freeing one gives its memory
back to the system, and ask for huge pages. Allocations are aligned to cache lines.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from typing import Any

import numpy as np

from tinygrad.device.allocator import Allocation, Allocator, BufferSpec, FreeLists
from tinygrad.memory_limit import memory_limit

ALIGNMENT = 64
MAPPED_BYTES = 1 << 18
"""Blocks from this size on are mappings of their own."""
HUGE_PAGES_BYTES = 1 << 22
"""Blocks from this size on ask for huge pages."""
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


def allocate_host(nbytes: int) -> tuple[int, Any]:
    """Allocates aligned memory. Returns its address and the object that owns it."""
    if nbytes >= MAPPED_BYTES:
        return _map(nbytes)
    owner = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = owner.__array_interface__["data"][0]
    return start + -start % ALIGNMENT, owner


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
