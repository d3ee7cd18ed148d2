"""Tensors that hold one memory although neither is a view of the other.

Equal nodes of the graph are one object, so `a = x + 1` and `b = x + 1` are computed once, into one
buffer. That shows only when one of them is written to. In: what tensors were realized to, and which
is about to be assigned to. Out: before that, those of another origin get memory of their own.
Always true: writing to a tensor is seen by its views, and by nothing else.
"""

from __future__ import annotations

import weakref

from tinygrad.mixin.core import VIEWS, TensorCore, live_tensors
from tinygrad.mixin.creation import in_own_memory
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# the BUFFERs that tensors of several origins hold
_shared: weakref.WeakSet[UOp] = weakref.WeakSet()


def memory_below(node: UOp) -> UOp:
    """What a value is a view of."""
    while node.op in VIEWS:
        node = node.src[0]
    return node


class Holders:
    """Who holds the buffers that tensors were just realized to."""

    def __init__(self) -> None:
        self._origins: dict[UOp, int] = {}

    def add(self, tensor: TensorCore) -> None:
        """Take note of what this tensor is now."""
        memory = memory_below(tensor.uop)
        if memory.op is Ops.BUFFER and self._origins.setdefault(memory, tensor.origin) != (
            tensor.origin
        ):
            _shared.add(memory)


def share(node: UOp) -> None:
    """Another tensor becomes `node`: if that is in memory, they share it from now on."""
    memory = memory_below(node)
    if memory.op is Ops.BUFFER:
        _shared.add(memory)


def copy_on_write(tensor: TensorCore) -> None:
    """Give every tensor that is no view of `tensor` memory of its own, if it shares this one's."""
    memory = memory_below(tensor.uop)
    if memory not in _shared:
        return
    _shared.discard(memory)
    copies: dict[int, UOp] = {}
    for other in live_tensors:
        if other.origin != tensor.origin and memory_below(other.uop) is memory:
            if other.origin not in copies:
                copies[other.origin] = in_own_memory(memory)
            other.uop = other.uop.substitute({memory: copies[other.origin]})
