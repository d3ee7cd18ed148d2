"""Caches that are bounded by the bytes they keep: `LruTable`, and functions with cached results.

Bytes are estimates, made once for each entry. Every cache is registered, so that `drop_caches` can
free them all when memory runs out. Invariant: a table holds at most `limit` bytes, or one entry,
also when several threads use it.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, cast

from tinygrad.memory_limit import memory_limit
from tinygrad.settings import CACHE_MB

K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])

NODE_BYTES = 512
"""An estimate of the bytes that a node keeps: itself, its sources, and its entry in the table."""
MEMORY_SHARE = 16
"""One part in this many of the memory that the process may use is the limit of all caches."""

_clear: list[Callable[[], None]] = []
_clear_functions: list[Callable[[], None]] = []


def cache_bytes() -> int:
    """The bytes that plans and compiled kernels may keep together."""
    return min(CACHE_MB.value << 20, memory_limit() // MEMORY_SHARE)


def drop_caches() -> None:
    """Drop the entries of all caches. What captured functions use stays."""
    for clear in (*_clear, *_clear_functions):
        clear()


def cached_function(maxsize: int) -> Callable[[F], F]:
    """`lru_cache` for functions whose entries are large, or keep graphs alive.

    All entries are dropped each time that a table has dropped its limit of bytes: so they keep no
    more than was made for the graphs of that time.
    """

    def decorate(function: F) -> F:
        cached = functools.lru_cache(maxsize)(function)
        _clear_functions.append(cached.cache_clear)
        return cast(F, cached)

    return decorate


class LruTable(Generic[K, V]):
    """A mapping that keeps at most `limit()` bytes: the least recently used entries are dropped.

    `nbytes` estimates the bytes of an entry. Unlike `functools.lru_cache` a table may be read and
    filled separately, so that a setting can bypass it.
    """

    def __init__(self, limit: Callable[[], int], nbytes: Callable[[K, V], int]) -> None:
        self.limit = limit
        self.nbytes = 0
        self._size_of = nbytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._dropped_bytes = 0
        self._lock = threading.RLock()
        _clear.append(self.clear)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[K]:
        """The keys, least recently used first."""
        with self._lock:
            return iter(list(self._entries))

    def get(self, key: K) -> V | None:
        """The value of `key`, which becomes the most recently used, or None."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V) -> None:
        """Add an entry. The least recently used ones are dropped if the table is full."""
        size, limit, dropped = self._size_of(key, value), self.limit(), []
        with self._lock:
            replaced = self._entries.pop(key, None)
            self.nbytes += size - (0 if replaced is None else replaced[1])
            self._entries[key] = value, size
            while self.nbytes > limit and len(self._entries) > 1:
                dropped.append(self._entries.popitem(last=False))
                self.nbytes -= dropped[-1][1][1]
                self._dropped_bytes += dropped[-1][1][1]
            is_time = self._dropped_bytes > limit
            self._dropped_bytes = 0 if is_time else self._dropped_bytes
        # the entries die here, outside the lock
        dropped.clear()
        if is_time:
            for clear in _clear_functions:
                clear()

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            entries, self._entries = self._entries, OrderedDict()
            self.nbytes = 0
        entries.clear()
