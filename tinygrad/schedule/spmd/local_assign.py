"""Assignment to a slice, of sharded axes too, in the per-device graph.

Input: the local target, and the written value, which is replicated or sharded as the target is.
Output: an ASSIGN to a window of the device's block, of the size of the slice or of the block.
Invariant: elements of the window outside of the slice keep their value, and no byte moves.
"""

from __future__ import annotations

from typing import cast

from tinygrad.schedule.spmd.local import block_start, global_indices, pad_axis, slice_axis
from tinygrad.sharding import Sharding
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.sint import smax, smin
from tinygrad.uop.slice_assign import SliceAssign


def lower_slice_assign(node: UOp, target: UOp, value: UOp, part: SliceAssign) -> UOp:
    """The ASSIGN `node` in local form. `value` is the local value of `part`, the written slice."""
    layout = part.array.device
    split_axes = layout.split_axes if isinstance(layout, Sharding) else ()
    is_sharded_alike = part.value.device == layout
    # the array that the slice is of: the written memory, maybe reshaped
    shape = part.array.shape
    window = target
    offsets: list[tuple[int, sint]] = []
    for axis, (before, _) in enumerate(part.padding):
        size = cast(int, value.shape[axis])
        if axis not in split_axes:
            window = slice_axis(window, axis, before, before + size)
            continue
        assert isinstance(layout, Sharding)
        if is_sharded_alike:
            continue
        if size == shape[axis]:
            start = block_start(layout, axis, shape)
            block = cast(int, target.shape[axis])
            value = slice_axis(pad_axis(value, axis, 0, block), axis, start, start + block)
            continue
        first, offset, length = _window(layout, axis, shape, before, size)
        window = slice_axis(window, axis, first, first + length)
        value = pad_axis(value, axis, length, length)
        low = smin(smax(offset, -length), size) + length
        value = slice_axis(value, axis, low, low + length)
        offsets.append((axis, offset))
    sizes = part.value.shape
    for axis, offset in offsets:
        index = global_indices(value, axis, offset, sizes[axis])
        is_written = index.alu(Ops.CMPLT, index.const_like(sizes[axis]))
        is_written = is_written.alu(
            Ops.AND, index.alu(Ops.CMPLT, index.const_like(0)).logical_not()
        )
        value = is_written.alu(Ops.WHERE, value, window)
    return UOp(Ops.ASSIGN, node.dtype, (window, value), node.arg)


def _window(
    layout: Sharding, axis: int, shape: tuple[sint, ...], before: sint, size: int
) -> tuple[sint, sint, int]:
    """The start of the window in the running device's block, the index of that element in the
    written slice, and the length of the window.
    """
    start, block = block_start(layout, axis, shape), cast(int, layout.local_shape(shape)[axis])
    length = min(size, block)
    first = smax(smin(before - start, block - length), 0)
    return first, first + start - before, length
