"""Movement and reduction on the block of one device.

Input: a movement op or REDUCE_AXIS of the tensor graph, and the local value of its source. Output:
the local value of the node. Invariant: along a sharded axis the source holds the contiguous range
that the node's block is computed from. The op may compute a larger range, which is sliced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from tinygrad.helpers import ceildiv
from tinygrad.schedule.spmd.local import (
    block_number,
    block_start,
    local_shape,
    mask_outside,
    pad_axis,
    slice_axis,
)
from tinygrad.sharding import (
    RANGE_OPS,
    Sharding,
    Span,
    moves_axis,
    same_ranges,
    source_span,
)
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, WindowArg, sint
from tinygrad.uop.reduction import identity


def lower_reduction(node: UOp, value: UOp) -> UOp:
    """A REDUCE_AXIS. Elements past the end of a sharded axis are masked with the identity."""
    source = node.src[0]
    layout = source.layout
    for axis in set(layout.split_axes).intersection(node.arg.axes):
        value = mask_outside(value, layout, axis, source.shape, identity(node.arg.op, node.dtype))
    return UOp(node.op, node.dtype, (value,), node.arg)


def lower_movement(node: UOp, value: UOp) -> UOp:
    """A movement op on local shapes. `moved` are the sharded axes along which elements move."""
    source, op = node.src[0], node.op
    layout = source.layout
    if op in {Ops.RESHAPE, Ops.EXPAND}:
        return UOp(op, node.dtype, (value,), local_shape(node.layout, node.shape))
    moved: list[int] = []
    if op.name in RANGE_OPS:
        moved = [a for a in layout.split_axes if moves_axis(op.name, node.arg, source.shape, a)]
    if op in {Ops.PAD, Ops.UNWINDOW}:
        for axis in moved:
            value = mask_outside(value, layout, axis, source.shape, 0)
    if op in {Ops.WINDOW, Ops.UNWINDOW} and moved:
        return (_lower_window if op is Ops.WINDOW else _lower_unwindow)(node, value, moved)
    arg = node.arg
    if op is Ops.SHRINK:
        split = layout.split_axes
        arg = tuple((0, value.shape[i]) if i in split else b for i, b in enumerate(arg))
    elif op is Ops.PAD:
        arg = tuple((0, 0) if i in moved else pair for i, pair in enumerate(arg))
    return value if _is_identity(op, arg, value) else UOp(op, node.dtype, (value,), arg)


def _lower_window(node: UOp, value: UOp, moved: list[int]) -> UOp:
    """A WINDOW. Along a sharded axis, the first window starts at the first multiple of the stride
    in the range of the device.
    """
    layout, shape = node.src[0].layout, node.src[0].shape
    sizes: dict[int, int] = {}
    for axis in moved:
        stride, reach = _window(node, axis)
        sizes[axis] = node.layout.span(axis, node.shape).length
        held = layout.span(axis, shape).reduced
        start = block_start(layout, axis, shape)
        if held.stride == 1 and held.step % stride == 0:
            start = held.first
        end = layout.span(axis, shape).start_bounds(layout.shards(axis))[1]
        offset = (ceildiv(end, stride) * stride - start) % stride
        length = (sizes[axis] - 1) * stride + reach + 1
        limit = offset if isinstance(offset, int) else stride - 1
        value = pad_axis(value, axis, 0, max(0, limit + length - cast(int, value.shape[axis])))
        value = slice_axis(value, axis, offset, offset + length)
    return UOp(Ops.WINDOW, node.dtype, (value,), _resized(node.arg, sizes))


def _lower_unwindow(node: UOp, value: UOp, moved: list[int]) -> UOp:
    """An UNWINDOW. Along a sharded axis, what begins at the first window of the device is sliced to
    the range of the result.
    """
    layout, shape = node.src[0].layout, node.src[0].shape
    sizes: dict[int, int] = {}
    bounds: dict[int, tuple[int, sint]] = {}
    for axis in moved:
        stride, reach = _window(node, axis)
        held, want = layout.span(axis, shape), node.layout.span(axis, node.shape)
        needed = source_span(node.op.name, node.arg, shape, axis, want)
        missing = max(0, reach + 1 - stride)
        offset: sint = missing
        before, end = 0, missing + want.length
        size = cast(int, shape[axis])
        if needed is not None and same_ranges(needed, held, layout.shards(axis), size):
            # the result starts `reach` after the number that the first window is rounded up from
            offset = reach - _to_multiple(layout, axis, needed, stride)
            before, end = max(0, stride - 1 - reach), reach + want.length
        sizes[axis] = end
        bounds[axis] = before, offset + before
    value = UOp(Ops.UNWINDOW, node.dtype, (value,), _resized(node.arg, sizes))
    for axis, (before, first) in bounds.items():
        length = node.layout.span(axis, node.shape).length
        value = slice_axis(pad_axis(value, axis, before, 0), axis, first, first + length)
    return value


def _to_multiple(layout: Sharding, axis: int, span: Span, stride: int) -> sint:
    """The distance from the first number of the device's range to a multiple of `stride`."""
    number = block_number(layout, axis) * (-span.step % stride) if span.step % stride else 0
    return (number + -span.first % stride) % stride


def _resized(arg: Any, sizes: dict[int, int]) -> WindowArg:
    """The argument of a WINDOW or UNWINDOW, with the local size of sharded axes."""
    windows = tuple((a, k, sizes.get(a, size), s, d) for a, k, size, s, d in arg.windows)
    return replace(cast(WindowArg, arg), windows=windows)


def _window(node: UOp, axis: int) -> tuple[int, int]:
    """The stride of the windows over `axis`, and the distance between the ends of a window."""
    shape = node.src[0].shape
    return next((s, (shape[k] - 1) * d) for a, k, _, s, d in node.arg.windows if a == axis)


def _is_identity(op: Ops, arg: Any, value: UOp) -> bool:
    """Whether a PAD or SHRINK with this argument leaves `value` unchanged."""
    if op is Ops.PAD:
        return all(isinstance(p, int) and p == 0 for pair in arg for p in pair)
    return op is Ops.SHRINK and all(
        isinstance(low, int) and low == 0 and high == size
        for (low, high), size in zip(arg, value.shape)
    )
