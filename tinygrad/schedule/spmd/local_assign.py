"""Writing to a part of a split axis, in the per-device graph.

In: the local target, and what is written, whole. Out: an ASSIGN to the window of the device's block
in which the written elements may lie. As many elements as are written are read and stored; on
devices that own none of them, or fewer, the others keep their value. Nothing is sent.
"""

from __future__ import annotations

from typing import cast

from tinygrad.schedule.spmd.local import along, padded, part_start, positions
from tinygrad.sharding import Sharding
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.sint import smax, smin
from tinygrad.uop.slice_assign import SliceAssign


def assign_slice_locally(node: UOp, target: UOp, value: UOp, part: SliceAssign) -> UOp:
    """The ASSIGN `node` in local form: `value`, which is all of `part`, to where it belongs."""
    layout = cast(Sharding, node.device)
    window = target
    inside: list[tuple[int, sint]] = []
    for axis, (before, _) in enumerate(part.padding):
        size = cast(int, value.shape[axis])
        if axis not in layout.split_axes:
            window = along(window, axis, before, before + size)
            continue
        if size == node.shape[axis]:
            start = part_start(layout, axis, node.shape)
            block = cast(int, target.shape[axis])
            value = along(padded(value, axis, 0, block), axis, start, start + block)
            continue
        first, offset, length = _window(layout, axis, node.shape, before, size)
        window = along(window, axis, first, first + length)
        value = padded(value, axis, length, length)
        low = smin(smax(offset, -length), size) + length
        value = along(value, axis, low, low + length)
        inside.append((axis, offset))
    sizes = part.value.shape
    for axis, offset in inside:
        place = positions(value, axis, offset)
        is_written = place.alu(Ops.CMPLT, place.const_like(sizes[axis]))
        is_written = is_written.alu(
            Ops.AND, place.alu(Ops.CMPLT, place.const_like(0)).logical_not()
        )
        value = is_written.alu(Ops.WHERE, value, window)
    return UOp(Ops.ASSIGN, node.dtype, (window, value), node.arg)


def _window(
    layout: Sharding, axis: int, shape: tuple[sint, ...], before: sint, size: int
) -> tuple[sint, sint, int]:
    """Where in the running device's block its window starts, which of the written elements that is,
    and how long the window is.
    """
    start, block = part_start(layout, axis, shape), cast(int, layout.local_shape(shape)[axis])
    length = min(size, block)
    first = smax(smin(before - start, block - length), 0)
    return first, first + start - before, length
