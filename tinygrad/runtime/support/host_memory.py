"""Host memory as device memory.

Handles are addresses. numpy allocates the memory, because it requests huge pages for large arrays.
Allocations are aligned to cache lines.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

from tinygrad.allocator import Allocation, Allocator, BufferSpec

ALIGNMENT = 64


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
    owner = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = owner.__array_interface__["data"][0]
    return start + -start % ALIGNMENT, owner


def physical_memory() -> int:
    """The size of this machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class HostAllocator(Allocator):
    """Allocates host memory. Existing host memory becomes a buffer without a copy."""

    addressable = True

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
