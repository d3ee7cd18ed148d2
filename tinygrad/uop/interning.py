"""The table of interned nodes: equal nodes are one object, whichever threads build them.

`Node.__new__` looks a node up by its contents, and adds it if it is new. The table does not keep
nodes alive. `dict.setdefault`, which is atomic, adds entries; the entries of dead nodes are
replaced and removed under a lock.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any


class NodeRef(weakref.ref[Any]):
    """A weak reference to a node, with the contents of the node as its key in the table; the key is
    None if the reference is not in the table.
    """

    __slots__ = ("key",)
    key: tuple[Any, ...] | None


table: dict[tuple[Any, ...], NodeRef] = {}
"""Every live node by its contents."""
_lock = threading.RLock()


class _Removal:
    """The references of dead nodes that are still to be removed from the table.

    The garbage collector calls `node_died` at any point of any thread, so it never waits for the
    lock: the holder of the lock removes the reference after releasing it. Removing an entry may
    drop the last reference to the sources of the node, and so call `run` recursively; the outermost
    call removes those too, so deep graphs do not recurse.
    """

    def __init__(self) -> None:
        self.dead: deque[NodeRef] = deque()
        self.is_running = False

    def node_died(self, ref: NodeRef) -> None:
        """Remove the entry of a dead node; called by its weak reference."""
        # the node still holds its sources here, so none of them dies while the lock is held
        if not self.dead and _lock.acquire(False):
            try:
                if ref.key is not None:
                    del table[ref.key]
            finally:
                _lock.release()
        else:
            self.dead.append(ref)
        if self.dead:
            self.run()

    def run(self) -> None:
        """Remove the entries of all dead nodes, unless another thread does."""
        while self.dead and _lock.acquire(False):
            is_outermost, self.is_running = not self.is_running, True
            try:
                if is_outermost:
                    self._remove_entries()
            finally:
                self.is_running = not is_outermost
                _lock.release()
            if not is_outermost:
                return

    def _remove_entries(self) -> None:
        while self.dead:
            ref = self.dead.popleft()
            if ref.key is not None:
                del table[ref.key]


_removal = _Removal()
node_died = _removal.node_died


def find_interned(ref: NodeRef) -> Any:
    """The interned node equal to that of `ref`, which could not be added to the table.

    If the node in the table has died, `ref` takes its place. If it lives, as another thread has
    added it meanwhile, `ref` gives up its key.
    """
    with _lock:
        assert ref.key is not None
        other = table.setdefault(ref.key, ref)
        found = other()
        if found is None:
            other.key, table[ref.key] = None, ref
            found = ref()
        elif other is not ref:
            ref.key = None
    _removal.run()
    return found
