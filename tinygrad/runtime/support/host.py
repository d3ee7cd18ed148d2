"""Memory of this process as memory of a device.

Handles are addresses. Fresh memory comes from numpy, which asks for huge pages for large arrays,
and is aligned to cache lines.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

from tinygrad.allocator import Allocation, Allocator, BufferSpec

ALIGNMENT = 64


def get_host_address(data: memoryview) -> int:
    """Where contiguous bytes lie, read-only ones too."""
    if data.nbytes == 0:
        return 0
    interface = np.frombuffer(data, np.uint8).__array_interface__
    address = interface["data"][0]
    assert isinstance(address, int)
    return address


def allocate_host(nbytes: int) -> tuple[int, Any]:
    """The address of `nbytes` of fresh aligned memory, and the object that keeps it."""
    owner = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = owner.__array_interface__["data"][0]
    return start + -start % ALIGNMENT, owner


def physical_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class HostAllocator(Allocator):
    """Gives out memory of this process; over host memory it makes buffers without a copy."""

    addressable = True

    def wrap_host_memory(self, data: memoryview) -> Allocation | None:
        return Allocation(None, get_host_address(data), data.nbytes, data, readonly=data.readonly)

    def as_memoryview(self, allocation: Allocation, offset: int, nbytes: int) -> memoryview:
        if nbytes == 0:
            return memoryview(b"")
        return np.asarray(allocation)[offset : offset + nbytes].data

    def copyin(self, handle: int, source: memoryview) -> None:
        self._move(handle, get_host_address(source), source.nbytes)

    def copyout(self, destination: memoryview, handle: int) -> None:
        self._move(get_host_address(destination), handle, destination.nbytes)

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[int, Any]:
        return allocate_host(nbytes)

    def _move(self, destination: int, source: int, nbytes: int) -> None:
        ctypes.memmove(destination, source, nbytes)
