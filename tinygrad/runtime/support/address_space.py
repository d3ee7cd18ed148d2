"""Checks for free address space before calls into LLVM, which aborts the process when it runs out.

A limit on address space (`ulimit -v`) fails `mmap`; a limit on the number of mappings
(`vm.max_map_count`) fails `mprotect`, which splits mappings. LLVM survives neither. The check maps
more than one call needs, splits that into more mappings than one call makes, and unmaps it: some
tens of microseconds. It makes the abort unlikely, not impossible: other threads allocate too.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from typing import Any

from tinygrad.caches import drop_caches
from tinygrad.device.allocator import OutOfMemoryError
from tinygrad.garbage import collect_if_alone

HEADROOM_BYTES = 64 << 20
HEADROOM_MAPPINGS = 16
MAP_FAILED = ctypes.c_void_p(-1).value


def require_headroom(purpose: str) -> None:
    """Raises OutOfMemoryError unless there is address space for a call into LLVM."""
    if _has_headroom():
        return
    # cached kernels, and kernels in reference cycles, are still mapped
    drop_caches()
    collect_if_alone()
    if not _has_headroom():
        raise OutOfMemoryError(
            f"no address space left to {purpose}: cannot map {HEADROOM_BYTES} bytes in "
            f"{HEADROOM_MAPPINGS} mappings; raise the limits (ulimit -v, vm.max_map_count) or free "
            "arrays and compiled functions"
        )


def _has_headroom() -> bool:
    """Whether `HEADROOM_BYTES` can be mapped, and split into `HEADROOM_MAPPINGS` mappings."""
    libc = _libc()
    readable = mmap.PROT_READ
    writable = readable | mmap.PROT_WRITE
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    start = libc.mmap(None, HEADROOM_BYTES, writable, private, -1, 0)
    if start == MAP_FAILED:
        return False
    try:
        # every second page becomes a mapping of its own
        pages = (start + i * mmap.PAGESIZE for i in range(1, HEADROOM_MAPPINGS, 2))
        return all(libc.mprotect(page, mmap.PAGESIZE, readable) == 0 for page in pages)
    finally:
        libc.munmap(start, HEADROOM_BYTES)


@functools.cache
def _libc() -> Any:
    """The C library, with the types of the functions used here."""
    libc = ctypes.CDLL(None)
    address, size, flags = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = (address, size, flags, flags, flags, ctypes.c_long)
    libc.mmap.restype = address
    libc.mprotect.argtypes = (address, size, flags)
    libc.munmap.argtypes = (address, size)
    return libc
