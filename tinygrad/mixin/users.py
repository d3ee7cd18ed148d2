"""Which nodes are built on which: who has to change when a node does.

In: the nodes that live tensors are. Out: all that is above some nodes. Always true: what is below a
noted node is noted too, so a node is looked at once in its life, however often tensors are
computed; nothing is kept alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from tinygrad.uop.ops import UOp

# a list of users is rid of dead ones when it has grown to this length, or to twice it, and so on
_FIRST_CLEARED = 16


class Users:
    """The users of each node. What is made of constants alone has none: it is never computed or
    overwritten.
    """

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[UOp, list[weakref.ref[UOp]]] = (
            weakref.WeakKeyDictionary()
        )

    def note(self, roots: Iterable[UOp]) -> None:
        """Take note of all that is below `roots`."""
        known = self._of
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

    def above(self, nodes: Iterable[UOp]) -> set[UOp]:
        """`nodes`, and all noted ones that are built on them."""
        found = set(nodes)
        stack = list(found)
        while stack:
            for ref in self._of.get(stack.pop(), ()):
                user = ref()
                if user is not None and user not in found:
                    found.add(user)
                    stack.append(user)
        return found


def _clear(users: list[weakref.ref[UOp]]) -> None:
    """Drop dead users, each time the list has doubled, so that it stays in proportion to the
    living.
    """
    count = len(users)
    if count >= _FIRST_CLEARED and count & (count - 1) == 0:
        users[:] = [ref for ref in users if ref() is not None]
