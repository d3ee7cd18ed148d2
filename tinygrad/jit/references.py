"""Known references: whether anything but known tensors refers to some memory.

Input: tensors, and BUFFERs. Output: whether every reference to the BUFFERs, and to the views of
them that the tensors are, is one of these tensors'. Invariant: counts are compared with what must
be there, never with earlier counts, so that a reference that comes cannot hide one that goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter, is_
from sys import getrefcount

from tinygrad.storage.aliases import count_references
from tinygrad.storage.views import view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

_node_of = attrgetter("uop")
FROM_A_LIST = next(map(getrefcount, [object()]))
"""What `getrefcount` gives for an object that is in one list."""


class KnownReferences:
    """The references of `tensors`, and of what `holders` counts, to `memory`."""

    def __init__(
        self,
        tensors: Iterable[Tensor],
        memory: Iterable[UOp],
        holders: Callable[[], Counter[UOp]] = Counter,
    ) -> None:
        self._tensors = list({id(x): x for x in tensors}.values())
        self._nodes = list(map(_node_of, self._tensors))
        self._holders = holders
        views = [node for root in self._nodes for node in _views_below(root)]
        self._watched = list(dict.fromkeys([*memory, *views]))
        self._expected: list[int] = []
        self.count()

    def count(self) -> None:
        """Count the known references again: their number changes when views are made."""
        known = self._holders()
        known.update(self._nodes)
        known.update(count_references(self._tensors))
        known.update(node.src[0] for node in self._watched if node.op is not Ops.BUFFER)
        self._expected = [FROM_A_LIST + known[node] for node in self._watched]

    def are_all(self) -> bool:
        """Whether the tensors are what they were, and nothing else refers to the memory."""
        return (
            all(map(is_, map(_node_of, self._tensors), self._nodes))
            and list(map(getrefcount, self._watched)) == self._expected
        )


def _views_below(node: UOp) -> Iterator[UOp]:
    """The views from a node down to the BUFFER that it is a view of, without that."""
    while node.op is not Ops.BUFFER and view_base(node).op is Ops.BUFFER:
        yield node
        node = node.src[0]
