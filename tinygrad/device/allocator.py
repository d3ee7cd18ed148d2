"""Device memory: allocation, caching for reuse, and release.

An `Allocator` returns `Allocation`s. An allocation is released when its last user is gone: a
buffer, or a memoryview or array over it. Invariants: reachable memory is never allocated again;
`GlobalCounters.mem_used` is the number of allocated bytes, `mem_kept` that of cached free bytes.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tinygrad.caches import drop_caches
from tinygrad.garbage import collect_if_alone
from tinygrad.measure import GlobalCounters
from tinygrad.memory_limit import memory_limit


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

    `capacity` are the bytes of its block, of which `nbytes` are its own.
    `owner` is any object that keeps the memory alive. `readonly` memory must not be written.
    """

    __slots__ = ("allocator", "capacity", "handle", "nbytes", "owner", "readonly", "spec")

    def __init__(
        self,
        allocator: Allocator | None,
        handle: Any,
        nbytes: int,
        owner: Any = None,
        spec: BufferSpec = DEFAULT_SPEC,
        readonly: bool = False,
        capacity: int = 0,
    ) -> None:
        # the allocator that releases it; None for memory with another owner
        self.allocator = allocator
        self.handle = handle
        self.nbytes = nbytes
        self.owner = owner
        self.spec = spec
        self.readonly = readonly
        self.capacity = capacity

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


def size_class(nbytes: int) -> int:
    """The bytes to allocate for `nbytes`: up to 1/8 more, so that blocks fit other sizes later.

    Classes are multiples of 64 bytes, and from 1 KiB on, eight for each doubling.
    """
    step = 1 << max(nbytes.bit_length() - 4, 6)
    return -(-nbytes // step) * step


LARGE_BYTES = 1 << 16
"""Blocks from this size on are reused for smaller ones, up to `LARGER_CLASSES` classes below."""
LARGER_CLASSES = 3
LARGEST_SIZES = 4
"""Sizes of buffers that the message of an allocation that fails lists."""
PEAK_SHARE = 0.25
"""Memory is kept up to the peak of the memory in use, and this share of it."""
ListKey: TypeAlias = int | tuple[int, BufferSpec]
"""A size class, with the spec of its blocks unless that is `DEFAULT_SPEC`."""
SLACK_BYTES = 32 << 20
"""Memory is kept up to this in any case."""
PEAK_PERIOD = 4096
"""The releases, up to twice as many, over which the peak is taken."""


class FreeLists:
    """A cache of free blocks by size class and spec, the least recently used classes last.

    It keeps at most `limit` bytes, and with the memory in use at most a quarter more than the
    recent peak: so a program that allocates the same sizes again and again finds them all here, and
    one that is done with its memory, or allocates other sizes each time, gives the rest back.
    Allocators of devices with common memory share one.
    """

    def __init__(self, limit: int = 1 << 62) -> None:
        self.limit = limit
        self.nbytes = 0
        self.in_use = 0
        self.lists: OrderedDict[ListKey, list[tuple[Any, Any]]] = OrderedDict()
        self._peak = self._earlier_peak = self._releases = 0
        # re-entrant: a finalizer may run inside any statement, also in these methods
        self._lock = threading.RLock()
        GlobalCounters.free_lists.add(self)

    def take(self, capacity: int, spec: BufferSpec) -> tuple[int, Any, Any] | None:
        """Removes a cached block of a size class, or a little larger if it is large, and counts it
        as in use. Returns its size, handle and owner, or None if there is none.
        """
        with self._lock:
            # a key with a spec is slow to hash
            stack = self.lists.get(capacity if spec is DEFAULT_SPEC else (capacity, spec))
            if not stack:
                capacity, stack = self._larger(capacity, spec)
            if not stack:
                return None
            handle, owner = stack.pop()
            self.nbytes -= capacity
            in_use = self.in_use = self.in_use + capacity
            if in_use > self._peak:
                self._peak = in_use
            return capacity, handle, owner

    def use(self, capacity: int) -> None:
        """Counts a new block as in use."""
        with self._lock:
            self.in_use += capacity
            self._peak = max(self._peak, self.in_use)

    def give(self, allocation: Allocation, free: Callable[[Any, int], None]) -> None:
        """Caches the block of an allocation, which was in use."""
        capacity, spec = allocation.capacity, allocation.spec
        key: ListKey = capacity if spec is DEFAULT_SPEC else (capacity, spec)
        with self._lock:
            stack = self.lists.get(key)
            if stack is None:
                stack = self.lists[key] = []
            stack.append((allocation.handle, allocation.owner))
            self.lists.move_to_end(key)
            kept = self.nbytes = self.nbytes + capacity
            self.in_use -= capacity
            self._releases += 1
            if self._releases == PEAK_PERIOD:
                self._releases, self._earlier_peak, self._peak = 0, self._peak, self.in_use
        if (kept > SLACK_BYTES or kept > self.limit) and kept > self.bound():
            self.drain(free, self.bound() * 3 // 4)

    def bound(self) -> int:
        """The maximum number of bytes to keep, given the memory in use."""
        peak = max(self._peak, self._earlier_peak)
        return min(self.limit, max(int(peak * (1 + PEAK_SHARE)) - self.in_use, SLACK_BYTES))

    def drain(self, free: Callable[[Any, int], None], keep_bytes: int = 0) -> None:
        """Frees cached blocks down to `keep_bytes`, least recently used classes first."""
        with self._lock:
            while self.nbytes > keep_bytes and self.lists:
                key, stack = next(iter(self.lists.items()))
                capacity = key if isinstance(key, int) else key[0]
                while stack and self.nbytes > keep_bytes:
                    handle, _ = stack.pop()
                    self.nbytes -= capacity
                    free(handle, capacity)
                if not stack:
                    self.lists.pop(key, None)

    def _larger(self, capacity: int, spec: BufferSpec) -> tuple[int, list[tuple[Any, Any]]]:
        """The nearest larger size class with cached blocks, and those; else no blocks."""
        for _ in range(LARGER_CLASSES if capacity >= LARGE_BYTES else 0):
            capacity = size_class(capacity + 1)
            stack = self.lists.get(capacity if spec is DEFAULT_SPEC else (capacity, spec))
            if stack:
                return capacity, stack
        return capacity, []


class Allocator:
    """Allocates the memory of one device.

    A runtime overrides `_alloc`, `copyin` and `copyout`; `_free` if dropping the owner does not
    free the memory; `offset` if handles are not integers. `addressable`: handles are addresses in
    this process.
    """

    addressable = False
    counts = True
    """Whether what is allocated is memory, which `GlobalCounters` count."""

    def __init__(self, device: str, free_lists: FreeLists | None = None) -> None:
        self.device = device
        self.free_lists = FreeLists() if free_lists is None else free_lists
        self._is_cached = self.free_lists.limit > 0

    def allocate(self, nbytes: int, spec: BufferSpec = DEFAULT_SPEC) -> Allocation:
        """Allocates `nbytes` of uninitialized memory. Raises OutOfMemoryError."""
        if spec.external_ptr:
            return Allocation(None, spec.external_ptr, nbytes)
        if spec.nolru or not self._is_cached:
            capacity, (handle, owner) = nbytes, self._alloc_or_free(nbytes, spec, nbytes)
        else:
            capacity, handle, owner = self._take(nbytes, spec)
        if self.counts:
            GlobalCounters.count_memory(self.device, nbytes)
        return Allocation(self, handle, nbytes, owner, spec, False, capacity)

    def release(self, allocation: Allocation) -> None:
        """Releases memory. Called only by the finalizer of the allocation."""
        if self.counts:
            GlobalCounters.count_memory(self.device, -allocation.nbytes)
        if allocation.spec.nolru or not self._is_cached:
            self._free(allocation.handle, allocation.nbytes)
        else:
            self.free_lists.give(allocation, self._free)

    def limit(self) -> int:
        """The bytes that buffers and cached blocks may have together."""
        return memory_limit()

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

    def copy_from(self, handle: Any, source: Allocator, source_handle: Any, nbytes: int) -> bool:
        """Copies bytes of another device's memory to `handle` without the host.

        Returns False if it cannot; then the bytes go through the host.
        """
        return False

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[Any, Any]:
        """Allocates memory. Returns its handle and owner. Raises MemoryError."""
        raise NotImplementedError(f"{self.device} has no memory of its own")

    def _free(self, handle: Any, nbytes: int) -> None:
        """Frees unused memory. By default, dropping the owner frees it."""

    def _take(self, nbytes: int, spec: BufferSpec) -> tuple[int, Any, Any]:
        """A block of at least `nbytes`: its size, handle and owner."""
        lists, capacity = self.free_lists, size_class(nbytes)
        found = lists.take(capacity, spec)
        if found is not None:
            return found
        if lists.in_use + lists.nbytes + capacity > self.limit():
            lists.drain(self._free)
        handle, owner = self._alloc_or_free(capacity, spec, nbytes)
        lists.use(capacity)
        return capacity, handle, owner

    def _alloc_or_free(self, capacity: int, spec: BufferSpec, nbytes: int) -> tuple[Any, Any]:
        """Allocates `capacity` bytes for a request of `nbytes`.

        If there are none, frees what is kept for reuse, caches and reference cycles, and tries once
        more. Raises OutOfMemoryError.
        """
        kept = self.free_lists.nbytes
        try:
            return self._alloc(capacity, spec)
        except MemoryError:
            drop_caches()
            collect_if_alone()
            self.free_lists.drain(self._free)
        try:
            return self._alloc(capacity, spec)
        except MemoryError as error:
            used = GlobalCounters.mem_used_per_device[self.device]
            raise OutOfMemoryError(
                f"{self.device} cannot allocate {nbytes} bytes; {used} bytes are in use there"
                f"{self._largest()}; {kept} bytes that were kept for reuse, and all caches, have "
                "been freed"
            ) from error

    def _largest(self) -> str:
        """The sizes that hold most of the memory, for an error message."""
        held: Counter[int] = Counter()
        for found in gc.get_objects():
            if isinstance(found, Allocation) and found.allocator is self:
                held[found.nbytes] += 1
        sizes = sorted(held, key=lambda nbytes: -nbytes * held[nbytes])[:LARGEST_SIZES]
        listed = ", ".join(f"{held[nbytes]} of {nbytes}" for nbytes in sizes)
        return f" (buffers by bytes: {listed})" if listed else ""
