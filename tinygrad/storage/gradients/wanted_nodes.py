"""Whether a live tensor that may require a gradient refers to one of some nodes.

Several questions together take the time of one search of the live tensors.
"""

from __future__ import annotations

from collections.abc import Collection

from tinygrad.storage.live_tensors import live_tensors
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class WantedNodes:
    """The nodes of live tensors that may require a gradient. A single question searches the lazy
    tensors; all further ones look in a set.
    """

    def __init__(self) -> None:
        self._searches = 0
        self._lazy: set[UOp | None] = set()
        self._required: set[UOp | None] | None = None

    def is_required(self, node: UOp) -> bool:
        """Whether `node` is the value of a tensor that requires a gradient."""
        if node.op is Ops.BUFFER:
            return any(x._requires_grad for x in live_tensors.settled_at(node))
        if self._required is None:
            self._required = {x._node for x in live_tensors.unsettled() if x._requires_grad}
        return node in self._required

    def meet(self, nodes: Collection[UOp]) -> bool:
        """Whether one of `nodes` is the value of such a tensor."""
        for node in nodes:
            if node.op is Ops.BUFFER:
                for x in live_tensors.settled_at(node):
                    if x._requires_grad is not False:
                        return True
        self._searches += 1
        if self._searches == 1:
            for x in live_tensors.unsettled():
                if x._node in nodes and x._requires_grad is not False:
                    return True
            return False
        if self._searches == 2:
            found = live_tensors.unsettled()
            self._lazy.update(x._node for x in found if x._requires_grad is not False)
        return not self._lazy.isdisjoint(nodes)
