"""Memory of a device: how it is got, kept for reuse and given back.

An `Allocator` gives out `Allocation`s. An allocation goes back when its last user drops it: a
buffer, or a memoryview or array over it. What stays true: memory that anything can still reach is
never given out again; `GlobalCounters.mem_used` is the number of bytes given out.
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
    """The device has no room for an allocation."""


@dataclass(frozen=True)
class BufferSpec:
    """How the memory of a buffer is to be got.

    `host` and `cpu_access` ask for memory that the CPU can address, `nolru` for memory that is
    freed and not kept for reuse. `external_ptr` is the address of memory that somebody else owns.
    """

    host: bool = False
    cpu_access: bool = False
    nolru: bool = False
    external_ptr: int = 0


DEFAULT_SPEC = BufferSpec()


class Allocation:
    """A piece of device memory. `handle` is what kernels take: an address, where there is one.

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
        # the allocator to give it back to; None if somebody else owns the memory
        self.allocator = allocator
        self.handle = handle
        self.nbytes = nbytes
        self.owner = owner
        self.spec = spec
        self.readonly = readonly

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Lets numpy make an array of bytes over addressable memory that keeps this alive."""
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
    """Memory kept for reuse, by size and kind: at most `limit` bytes; more frees the oldest sizes.

    Allocators may share one, so that memory freed on one device serves another.
    """

    def __init__(self, limit: int = 1 << 62) -> None:
        self.limit = limit
        self.nbytes = 0
        self.lists: OrderedDict[tuple[int, BufferSpec], list[tuple[Any, Any]]] = OrderedDict()
        # re-entrant: a finaliser may run inside any statement, of this very class too
        self._lock = threading.RLock()

    def take(self, nbytes: int, spec: BufferSpec) -> tuple[Any, Any] | None:
        """The handle and the owner of kept memory, or None if there is none of the kind."""
        with self._lock:
            stack = self.lists.get((nbytes, spec), [])
            try:
                kept = stack.pop()
            except IndexError:
                return None
            self.nbytes -= nbytes
            return kept

    def give(self, allocation: Allocation, free: Callable[[Any, int], None]) -> None:
        """Keeps the memory of an allocation."""
        key = (allocation.nbytes, allocation.spec)
        with self._lock:
            self.lists.setdefault(key, []).append((allocation.handle, allocation.owner))
            self.lists.move_to_end(key)
            self.nbytes += allocation.nbytes
        if self.nbytes > self.limit:
            self.drain(free, self.limit // 2)

    def drain(self, free: Callable[[Any, int], None], keep_bytes: int = 0) -> None:
        """Frees memory down to `keep_bytes`, beginning with the sizes not used for longest."""
        with self._lock:
            while self.nbytes > keep_bytes and self.lists:
                (nbytes, _), stack = self.lists.popitem(last=False)
                while stack:
                    handle, _ = stack.pop()
                    self.nbytes -= nbytes
                    free(handle, nbytes)


class Allocator:
    """Gives out the memory of one device.

    A runtime overrides `_alloc`, `copyin` and `copyout`; `_free` where dropping the owner does not
    free the memory; `offset` where a handle is not a number. `addressable` says that handles are
    addresses in this process.
    """

    addressable = False

    def __init__(self, device: str, free_lists: FreeLists | None = None) -> None:
        self.device = device
        self.free_lists = FreeLists() if free_lists is None else free_lists

    def allocate(self, nbytes: int, spec: BufferSpec = DEFAULT_SPEC) -> Allocation:
        """`nbytes` of memory with undefined content. Raises OutOfMemoryError."""
        if spec.external_ptr:
            return Allocation(None, spec.external_ptr, nbytes)
        handle, owner = self.free_lists.take(nbytes, spec) or self._alloc_or_drain(nbytes, spec)
        self._count(nbytes)
        return Allocation(self, handle, nbytes, owner, spec)

    def release(self, allocation: Allocation) -> None:
        """Takes memory back; called by the allocation's finaliser alone."""
        self._count(-allocation.nbytes)
        if allocation.spec.nolru:
            self._free(allocation.handle, allocation.nbytes)
        else:
            self.free_lists.give(allocation, self._free)

    def offset(self, handle: Any, nbytes: int) -> Any:
        """The handle of what lies `nbytes` behind `handle`."""
        return handle + nbytes

    def wrap_host_memory(self, data: memoryview) -> Allocation | None:
        """Host memory as memory of this device, without a copy; None if that cannot be."""
        return None

    def as_memoryview(self, allocation: Allocation, offset: int, nbytes: int) -> memoryview | None:
        """Bytes of the allocation without a copy; None if the CPU cannot address them."""
        return None

    def copyin(self, handle: Any, source: memoryview) -> None:
        """Copies bytes of the host to `handle`."""
        raise NotImplementedError(f"{self.device} cannot be written to")

    def copyout(self, destination: memoryview, handle: Any) -> None:
        """Copies bytes at `handle` to the host."""
        raise NotImplementedError(f"{self.device} cannot be read from")

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[Any, Any]:
        """The handle and the owner of fresh memory. Raises MemoryError."""
        raise NotImplementedError(f"{self.device} has no memory of its own")

    def _free(self, handle: Any, nbytes: int) -> None:
        """Frees memory that nothing uses; for the host, dropping the owner is enough."""

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
