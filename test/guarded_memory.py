"""Memory beside which there is none: an access out of bounds ends the process.

`python -m pytest test/backend --guarded-memory` runs tests with such buffers on CPU devices.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any

import numpy as np

from tinygrad.device.allocator import Allocator, FreeLists
from tinygrad.runtime.support import host_memory

PAGE = mmap.PAGESIZE
NO_ACCESS = 0
MOST_BLOCKS = 20_000
"""A process may have 65,530 mappings, of which a guarded block takes two."""
libc = ctypes.CDLL(None)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
blocks: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def guarded_bytes(nbytes: int, is_last: bool = True) -> np.ndarray[Any, Any]:
    """`nbytes` bytes after which, or before which, is a page that nobody may access."""
    pages = -(-nbytes // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    blocks.add(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    guard = start + pages * PAGE if is_last else start
    if libc.mprotect(guard, PAGE, NO_ACCESS):
        raise MemoryError(f"cannot guard {nbytes} bytes")
    offset = pages * PAGE - nbytes if is_last else PAGE
    return np.frombuffer(memory, np.uint8, nbytes, offset)


def guard_buffers() -> None:
    """Let the buffers of CPU devices end where memory does, and be freed at once."""
    allocate, make = host_memory.allocate_host, Allocator.__init__

    def allocate_guarded(nbytes: int) -> tuple[int, Any]:
        if not nbytes or len(blocks) > MOST_BLOCKS:
            return allocate(nbytes)
        owner = guarded_bytes(nbytes)
        return owner.__array_interface__["data"][0], owner

    def make_without_lists(self: Allocator, device: str, free_lists: Any = None) -> None:
        is_host = isinstance(self, host_memory.HostAllocator)
        make(self, device, FreeLists(0) if is_host else free_lists)

    host_memory.allocate_host = allocate_guarded
    Allocator.__init__ = make_without_lists  # type: ignore[method-assign]
