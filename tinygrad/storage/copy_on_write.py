"""Copy on write: a write to one tensor leaves tensors of other origins unchanged.

Equal nodes of the graph are one object, so `a = x + 1` and `b = x + 1` are computed once, into one
buffer. Input: the nodes that tensors were realized to, and the tensor about to be assigned to.
Output: copies of the shared buffer for all tensors of other origins. Invariant: the views of a
tensor see a write to it, and no other tensor does.
"""

from __future__ import annotations

import weakref

from tinygrad.storage.live_tensors import TensorBase, live_tensors
from tinygrad.storage.placement import in_own_memory
from tinygrad.storage.views import view_base
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# the BUFFERs that tensors of several origins refer to
_shared: weakref.WeakSet[UOp] = weakref.WeakSet()


class RealizedOrigins:
    """The origins of the tensors that were just realized, by buffer."""

    def __init__(self) -> None:
        self._origins: dict[UOp, int] = {}

    def add(self, tensor: TensorBase) -> None:
        """Mark the buffer of `tensor` as shared if a tensor of another origin refers to it too."""
        base = view_base(tensor.uop)
        if base.op is Ops.BUFFER and self._origins.setdefault(base, tensor.origin) != tensor.origin:
            _shared.add(base)


def mark_shared(node: UOp) -> None:
    """Mark the buffer of `node`, if it is one, as shared: another tensor refers to it from now."""
    base = view_base(node)
    if base.op is Ops.BUFFER:
        _shared.add(base)


def copy_on_write(tensor: TensorBase) -> None:
    """Copy the buffer of `tensor`, if it is shared, for all tensors of other origins."""
    base = view_base(tensor.uop)
    if base not in _shared:
        return
    _shared.discard(base)
    copies: dict[int, UOp] = {}
    for other in live_tensors:
        if other.origin != tensor.origin and view_base(other.uop) is base:
            if other.origin not in copies:
                copies[other.origin] = in_own_memory(base)
            other.uop = other.uop.substitute({base: copies[other.origin]})
