"""A part of a split axis at a place that is known when a kernel runs, such as a row of a cache.

In: a SHRINK at a symbolic place, of a full copy of what is split. Out: the elements that it keeps,
by their numbers: each device finds those in its block, and the terms add up. Until here it stays a
SHRINK of a copy, as any part of a split axis, so that it can be told what it is a view of.
"""

from __future__ import annotations

from typing import cast

from tinygrad.dtype import dtypes
from tinygrad.sharding import Sharding, dynamic_slice_layout
from tinygrad.uop.ops import UOp


def pick(node: UOp, moved: UOp, x: UOp) -> UOp | None:
    """`shrink(copy(x, A), ((place, place + n),)) -> x[arange(n) + place]`"""
    layout = x.device
    if not isinstance(layout, Sharding):
        return None
    if dynamic_slice_layout(layout, x.shape, node.arg, node.shape) is not moved.arg:
        return None
    found = x
    for axis in layout.split_axes:
        size = cast(int, node.shape[axis])
        if size != x.shape[axis]:
            order = (axis, *(i for i in range(x.ndim) if i != axis))
            rows = UOp.arange(size) + cast(UOp, node.arg[axis][0]).cast(dtypes.int)
            found = found.permute(order).gather(rows)
            found = found.permute(tuple(order.index(i) for i in range(x.ndim)))
    pairs = zip(node.arg, found.shape, node.shape, strict=True)
    return found.shrink(tuple((0, n) if n == kept else bound for bound, n, kept in pairs))
