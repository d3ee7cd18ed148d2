"""Device memory: allocation, caching for reuse, and release.

An `Allocator` returns `Allocation`s. An allocation is released when its last user is gone: a
buffer, or a memoryview or array over it. Invariants: reachable memory is never allocated again;
`GlobalCounters.mem_used` is the number of allocated bytes.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinygrad.measure import GlobalCounters


class OutOfMemoryError(MemoryError):
    """There is not enough memory or address space for an allocation."""


@dataclass(frozen=True)
class BufferSpec:
    """Options of an allocation.

    `host` and `cpu_access` request memory that the CPU can address. `nolru` bypasses the cache:
    the memory is freed at once. `external_ptr` is the address of memory with another owner.
    """

    host: bool = False
    cpu_access: bool = False
    nolru: bool = False
    external_ptr: int = 0


DEFAULT_SPEC = BufferSpec()


class Allocation:
    """A range of device memory. `handle` is the argument of kernels: an address if it has one.

    `owner` is any object that keeps the memory alive. `readonly` memory must not be written.
    """

    __slots__ = ("allocator", "handle", "nbytes", "owner", "readonly", "spec")

    def __init__(
        self,
        allocator: Allocator | None,
        handle: Any,
        nbytes: int,
        owner: Any = None,
        spec: BufferSpec = DEFAULT_SPEC,
        readonly: bool = False,
    ) -> None:
        # the allocator that releases it; None for memory with another owner
        self.allocator = allocator
        self.handle = handle
        self.nbytes = nbytes
        self.owner = owner
        self.spec = spec
        self.readonly = readonly

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Lets numpy create a byte array over addressable memory; the array keeps self alive."""
        return {
            "data": (self.handle, self.readonly),
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self, exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if self.allocator is not None and not exiting():
            self.allocator.release(self)


class FreeLists:
    """A cache of free memory by size and spec, of at most `limit` bytes (LRU by size).

    Allocators of devices with common memory share one.
    """

    def __init__(self, limit: int = 1 << 62) -> None:
        self.limit = limit
        self.nbytes = 0
        self.lists: OrderedDict[tuple[int, BufferSpec], list[tuple[Any, Any]]] = OrderedDict()
        # re-entrant: a finalizer may run inside any statement, also in these methods
        self._lock = threading.RLock()

    def take(self, nbytes: int, spec: BufferSpec) -> tuple[Any, Any] | None:
        """Removes cached memory. Returns its handle and owner, or None if there is none."""
        with self._lock:
            stack = self.lists.get((nbytes, spec), [])
            try:
                kept = stack.pop()
            except IndexError:
                return None
            self.nbytes -= nbytes
            return kept

    def give(self, allocation: Allocation, free: Callable[[Any, int], None]) -> None:
        """Caches the memory of an allocation."""
        key = (allocation.nbytes, allocation.spec)
        with self._lock:
            self.lists.setdefault(key, []).append((allocation.handle, allocation.owner))
            self.lists.move_to_end(key)
            self.nbytes += allocation.nbytes
        if self.nbytes > self.limit:
            self.drain(free, self.limit // 2)

    def drain(self, free: Callable[[Any, int], None], keep_bytes: int = 0) -> None:
        """Frees cached memory down to `keep_bytes`, least recently used sizes first."""
        with self._lock:
            while self.nbytes > keep_bytes and self.lists:
                (nbytes, _), stack = self.lists.popitem(last=False)
                while stack:
                    handle, _ = stack.pop()
                    self.nbytes -= nbytes
                    free(handle, nbytes)


class Allocator:
    """Allocates the memory of one device.

    A runtime overrides `_alloc`, `copyin` and `copyout`; `_free` if dropping the owner does not
    free the memory; `offset` if handles are not integers. `addressable`: handles are addresses in
    this process.
    """

    addressable = False

    def __init__(self, device: str, free_lists: FreeLists | None = None) -> None:
        self.device = device
        self.free_lists = FreeLists() if free_lists is None else free_lists

    def allocate(self, nbytes: int, spec: BufferSpec = DEFAULT_SPEC) -> Allocation:
        """Allocates `nbytes` of uninitialized memory. Raises OutOfMemoryError."""
        if spec.external_ptr:
            return Allocation(None, spec.external_ptr, nbytes)
        handle, owner = self.free_lists.take(nbytes, spec) or self._alloc_or_drain(nbytes, spec)
        self._count(nbytes)
        return Allocation(self, handle, nbytes, owner, spec)

    def release(self, allocation: Allocation) -> None:
        """Releases memory. Called only by the finalizer of the allocation."""
        self._count(-allocation.nbytes)
        if allocation.spec.nolru:
            self._free(allocation.handle, allocation.nbytes)
        else:
            self.free_lists.give(allocation, self._free)

    def offset(self, handle: Any, nbytes: int) -> Any:
        """The handle at byte offset `nbytes` from `handle`."""
        return handle + nbytes

    def wrap_host_memory(self, data: memoryview) -> Allocation | None:
        """An allocation over host memory, without a copy. None if the device cannot use it."""
        return None

    def as_memoryview(self, allocation: Allocation, offset: int, nbytes: int) -> memoryview | None:
        """Bytes of the allocation, without a copy. None if the CPU cannot address them."""
        return None

    def copyin(self, handle: Any, source: memoryview) -> None:
        """Copies host bytes to `handle`."""
        raise NotImplementedError(f"{self.device} cannot be written to")

    def copyout(self, destination: memoryview, handle: Any) -> None:
        """Copies bytes at `handle` to the host."""
        raise NotImplementedError(f"{self.device} cannot be read from")

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[Any, Any]:
        """Allocates memory. Returns its handle and owner. Raises MemoryError."""
        raise NotImplementedError(f"{self.device} has no memory of its own")

    def _free(self, handle: Any, nbytes: int) -> None:
        """Frees unused memory. By default, dropping the owner frees it."""

    def _alloc_or_drain(self, nbytes: int, spec: BufferSpec) -> tuple[Any, Any]:
        try:
            return self._alloc(nbytes, spec)
        except MemoryError:
            self.free_lists.drain(self._free)
        try:
            return self._alloc(nbytes, spec)
        except MemoryError as error:
            used = GlobalCounters.mem_used_per_device[self.device]
            raise OutOfMemoryError(
                f"{self.device} cannot allocate {nbytes} bytes; {used} bytes are in use there"
            ) from error

    def _count(self, nbytes: int) -> None:
        GlobalCounters.count_memory(self.device, nbytes)
