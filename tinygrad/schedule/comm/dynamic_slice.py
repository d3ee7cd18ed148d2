"""Slices of a sharded axis at a symbolic offset, such as a row of a cache, become gathers.

Input: a SHRINK at a symbolic offset, of a COPY that unshards the axis. Output: a GATHER by the
indices of the slice, without the COPY: each device gathers the rows of its shard, and the partial
values are reduced. The tensor graph keeps the SHRINK of a COPY, so that a slice is known to be a
view.
"""

from __future__ import annotations

from typing import cast

from tinygrad.sharding import Sharding, dynamic_slice_layout
from tinygrad.uop.ops import UOp
from tinygrad.uop.sint import index_dtype, same_size


def gather_dynamic_slice(node: UOp, copy: UOp, x: UOp) -> UOp | None:
    """`shrink(copy(x, A), ((start, start + n),)) -> x[arange(n) + start]`"""
    layout = x.device
    if not isinstance(layout, Sharding):
        return None
    if dynamic_slice_layout(layout, x.shape, node.arg, node.shape) is not copy.arg:
        return None
    found = x
    for axis in layout.split_axes:
        size = cast(int, node.shape[axis])
        if not same_size(size, x.shape[axis]):
            order = (axis, *(i for i in range(x.ndim) if i != axis))
            start = cast(UOp, node.arg[axis][0])
            dtype = index_dtype(start, start + size)
            rows = UOp.arange(size, dtype) + start.cast(dtype)
            found = found.permute(order).gather(rows)
            found = found.permute(tuple(order.index(i) for i in range(x.ndim)))
    pairs = zip(node.arg, found.shape, node.shape, strict=True)
    found = found.shrink(tuple((0, n) if n == kept else bound for bound, n, kept in pairs))
    # a table of fewer rows than devices may be gathered along another axis
    return found if found.device == node.device else None
