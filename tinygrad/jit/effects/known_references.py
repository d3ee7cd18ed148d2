"""Reference counts: whether anything but known tensors refers to some memory.

The reference count of each BUFFER, and of each view of it, is compared with the number of
references that the known objects hold. A larger count is a lazy value, or another tensor, that
reads the memory. Counts are never compared with earlier counts: a new reference could hide one that
has gone.
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
        """Count the known references again, as after views were made."""
        known = self._holders()
        known.update(self._nodes)
        known.update(count_references(self._tensors))
        known.update(node.src[0] for node in self._watched if node.op is not Ops.BUFFER)
        self._expected = [FROM_A_LIST + known[node] for node in self._watched]

    def are_all(self) -> bool:
        """Whether the tensors have their nodes still, and nothing else refers to the memory."""
        return (
            all(map(is_, map(_node_of, self._tensors), self._nodes))
            and list(map(getrefcount, self._watched)) == self._expected
        )


def _views_below(node: UOp) -> Iterator[UOp]:
    """The views from a node down to the BUFFER that it is a view of, without that."""
    while node.op is not Ops.BUFFER and view_base(node).op is Ops.BUFFER:
        yield node
        node = node.src[0]
