"""`LruTable`: a bounded table that drops the least recently used entry.

Unlike `functools.lru_cache` it may be read and filled separately, so that a setting can bypass it.
Invariant: it holds at most `limit` entries, also when several threads use it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruTable(Generic[K, V]):
    """A mapping of at most `limit` entries."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[K]:
        """The keys, least recently used first."""
        return iter(list(self._entries))

    def get(self, key: K) -> V | None:
        """The value of `key`, which becomes the most recently used, or None."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: K, value: V) -> None:
        """Add an entry. The least recently used ones are dropped if the table is full."""
        dropped = []
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self.limit:
                dropped.append(self._entries.popitem(last=False))
        # the entries die here, outside the lock
        dropped.clear()

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            self._entries.clear()
