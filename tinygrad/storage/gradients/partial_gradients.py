"""Partial gradients: gradients stored as partial sums until they are read.

Input: gradients about to be realized inside of `Tensor.accumulate_gradients()`. Output: the partial
sums to compute in their place. Invariant: a gradient has the same value and layout, whether its
partial sums are in memory or their all-reduce is. Since `allreduce(a) + allreduce(b)` is
`allreduce(a + b)`, each device accumulates its partial sums of several backward passes, and one
all-reduce runs where the gradient is read.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from tinygrad.sharding import Sharding
from tinygrad.storage.live_tensors import TensorBase, live_tensors
from tinygrad.storage.views import is_in_memory, movement_base
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

_OF_PARTS = frozenset({Ops.ALLREDUCE, *GroupOp.Scatter})
# the number of blocks of `keep_partial_gradients` that are open
_depth: ContextVar[int] = ContextVar("partial_gradient_depth", default=0)


@contextmanager
def keep_partial_gradients() -> Iterator[None]:
    """Inside of this block, realizing a gradient computes its partial sums."""
    token = _depth.set(_depth.get() + 1)
    try:
        yield
    finally:
        _depth.reset(token)


def keeps_partial_gradients() -> bool:
    """Whether this thread is inside of such a block."""
    return _depth.get() > 0


def values_to_compute(tensors: Sequence[TensorBase]) -> list[UOp]:
    """The nodes that have to be in memory for `tensors` to be: of gradients, the partial sums."""
    gradients = _gradients_among(tensors) if _depth.get() else {}
    found = [x.uop for x in tensors if x not in gradients]
    if gradients:
        from tinygrad.schedule.pipeline import optimize_communication

        exact = [_sum(map(_without_rounding, _split(x.uop))) for x in gradients]
        # sinks reductions over devices to the root
        nodes = optimize_communication(UOp.sink(*exact)).src
        for x, node in zip(gradients, nodes, strict=True):
            addends = _addends(node)
            x._set_node(_sum(addends).detach())
            found += [addend.src[0] if _is_kept(addend) else addend for addend in addends]
    return found


def is_stored_in_parts(tensor: TensorBase) -> bool:
    """Whether the partial sums of a tensor are in memory and their all-reduce is not; or its rows
    are, and their scatter is not.
    """
    parts = list(_split(tensor.uop))
    reduced = [base for x in parts if (base := movement_base(x)).op in _OF_PARTS]
    stored = [x for x in parts if is_in_memory(x)]
    return (
        bool(reduced)
        and len(reduced) + len(stored) == len(parts)
        and all(is_in_memory(source) for x in reduced for source in x.src)
    )


def _gradients_among(tensors: Iterable[TensorBase]) -> dict[TensorBase, None]:
    """The tensors on several devices that are the `grad` of a live tensor."""
    sharded = {x: None for x in tensors if isinstance(x.uop.device, Sharding)}
    gradients = {x.grad for x in live_tensors} if sharded else set()
    return {x: None for x in sharded if x in gradients}


def _split(gradient: UOp) -> Iterator[UOp]:
    """The addends of a gradient, whose addends are detached gradients themselves."""
    stack = [gradient]
    while stack:
        node = stack.pop()
        if node.op is Ops.ADD or node.op is Ops.DETACH:
            stack.extend(reversed(node.src))
        else:
            yield node


def _without_rounding(node: UOp) -> UOp:
    """An all-reduced value without a cast to a narrower dtype and back, which mixed precision
    applies to the gradient of each pass.
    """
    moved = []
    below = node
    while below.op in {Ops.CAST, Ops.RESHAPE, Ops.PERMUTE, Ops.COPY}:
        if below.op is not Ops.CAST:
            moved.append(below)
        below = below.src[0]
    if below.op is not Ops.ALLREDUCE or below.dtype != node.dtype:
        return node
    for x in reversed(moved):
        below = UOp(x.op, below.dtype, (below,), x.arg)
    return below


def _addends(node: UOp) -> list[UOp]:
    """The addends of a sum: one all-reduce for the partial sums of each layout, and one addend for
    everything else.
    """
    found: dict[object, list[UOp]] = {}
    for x in node.split_uop(Ops.ADD):
        found.setdefault((x.arg, x.src[0].device) if _is_kept(x) else None, []).append(x)
    rest = found.pop(None, [])
    sums = [_sum(x.src[0] for x in alike).allreduce(alike[0].arg) for alike in found.values()]
    return [_sum(rest), *sums] if rest else sums


def _sum(addends: Iterable[UOp]) -> UOp:
    return functools.reduce(operator.add, addends)


def _is_kept(node: UOp) -> bool:
    """Whether this is an all-reduce of partial sums that are as large per device as the result."""
    if node.op is not Ops.ALLREDUCE or not isinstance(node.arg, Sharding):
        return False
    partial = node.src[0].device
    assert isinstance(partial, Sharding)
    if partial.partial_ops != ("ADD",):
        return False
    return partial.local_shape(node.shape) == node.arg.local_shape(node.shape)
