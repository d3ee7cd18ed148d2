"""Dependents: the nodes that are built on a node, directly or not.

Input: the nodes that live tensors refer to. Output: for some nodes, all nodes built on them.
Invariant: everything below a registered node is registered too. So a node is visited once in its
life, however often tensors are realized. No node is kept alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from tinygrad.uop.node_table import NodeTable
from tinygrad.uop.ops import UOp

# a list of users is cleared of dead ones at this length, at twice this length, and so on
_FIRST_CLEARED = 16


class Dependents:
    """The users of each registered node. Nodes of constants alone are left out: they are never
    computed or overwritten.
    """

    def __init__(self) -> None:
        self._users = NodeTable[list[weakref.ref[UOp]]]()

    def register(self, roots: Iterable[UOp]) -> None:
        """Register `roots` and everything below them."""
        known = self._users
        fresh: list[UOp] = []
        stack = [root for root in roots if root not in known]
        while stack:
            node = stack.pop()
            if node in known or node.device is None:
                continue
            known[node] = []
            fresh.append(node)
            stack.extend(node.src)
        for node in fresh:
            ref = weakref.ref(node)
            for source in dict.fromkeys(node.src):
                if source.device is not None:
                    users = known[source]
                    users.append(ref)
                    _clear(users)

    def of(self, nodes: Iterable[UOp]) -> set[UOp]:
        """`nodes`, and all registered nodes above them."""
        found = set(nodes)
        stack = list(found)
        while stack:
            for ref in self._users.get(stack.pop()) or ():
                user = ref()
                if user is not None and user not in found:
                    found.add(user)
                    stack.append(user)
        return found


dependents = Dependents()


def _clear(users: list[weakref.ref[UOp]]) -> None:
    """Drop dead users each time the list has doubled, so that most of it stays alive."""
    count = len(users)
    if count >= _FIRST_CLEARED and count & (count - 1) == 0:
        users[:] = [ref for ref in users if ref() is not None]
