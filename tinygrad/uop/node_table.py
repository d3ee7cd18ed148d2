"""Weak tables keyed by nodes, for facts about nodes that are not part of the graph.

Input: nodes, and what is known of them. Output: the same by node. Invariant: an entry lives as long
as its node. The entries of a node are in the node itself, so a look-up is one of a small
dictionary, and they end with the node without a callback. Threads may change a table at the same
time.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Generic, TypeVar

from tinygrad.uop.ops import UOp

V = TypeVar("V")

# references to dead nodes are dropped at this number, twice this number, ...
_FIRST_CLEARED = 16
# reentrant: the garbage collector may run anything within
_lock = threading.RLock()


class NodeTable(Generic[V]):
    """A table of what is known of nodes."""

    def get(self, node: UOp) -> V | None:
        """The entry of a node, or None."""
        facts = node.facts
        found: V | None = None if facts is None else facts.get(self)
        return found

    def __contains__(self, node: UOp) -> bool:
        facts = node.facts
        return facts is not None and self in facts

    def __getitem__(self, node: UOp) -> V:
        if node.facts is None:
            raise KeyError(node)
        found: V = node.facts[self]
        return found

    def __setitem__(self, node: UOp, value: V) -> None:
        if node.facts is None:
            with _lock:
                if node.facts is None:
                    node.facts = {}
        node.facts[self] = value

    def pop(self, node: UOp) -> V | None:
        """Remove the entry of a node. Returns it, or None."""
        facts = node.facts
        found: V | None = None if facts is None else facts.pop(self, None)
        return found


def is_in_any(node: UOp, tables: frozenset[NodeTable[Any]]) -> bool:
    """Whether a node has an entry in one of several tables."""
    facts = node.facts
    return facts is not None and not tables.isdisjoint(facts)


class NodeRegistry(NodeTable[V]):
    """A table whose entries can be listed, in the order in which they were made."""

    def __init__(self) -> None:
        # of nodes that have an entry, and maybe of others that had one, or twice
        self._refs: list[weakref.ref[UOp]] = []

    def __setitem__(self, node: UOp, value: V) -> None:
        with _lock:
            facts = node.facts
            if facts is None:
                facts = node.facts = {}
            is_new = self not in facts
            facts[self] = value
            if is_new:
                refs = self._refs
                refs.append(weakref.ref(node))
                count = len(refs)
                if count >= _FIRST_CLEARED and count & (count - 1) == 0:
                    self._clear()

    def __bool__(self) -> bool:
        """Whether there are entries."""
        refs = self._refs
        if not refs:
            return False
        with _lock:
            while refs:
                node = refs[-1]()
                if node is not None and node in self:
                    return True
                refs.pop()
        return False

    def nodes(self) -> list[UOp]:
        """The nodes that have entries."""
        refs = self._refs[::-1]
        found = [node for ref in refs if (node := ref()) is not None and node in self]
        return list(dict.fromkeys(found))[::-1]

    def items(self) -> list[tuple[UOp, V]]:
        """The nodes that have entries, with these."""
        return [(node, self[node]) for node in self.nodes()]

    def _clear(self) -> None:
        """Drop the references to nodes without an entry."""
        self._refs[:] = map(weakref.ref, self.nodes())
