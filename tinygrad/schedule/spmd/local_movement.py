"""Movement and reduction on the block of one device.

Input: a movement op or REDUCE_AXIS of the tensor graph, and the local value of its source. Output:
the local value of the node. Invariant: along a sharded axis the source holds the contiguous range
that the node's block is computed from. The op may compute a larger range, which is sliced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from tinygrad.schedule.spmd.local import block_number, local_shape, mask_outside, slice_axis
from tinygrad.sharding import (
    RANGE_OPS,
    Sharding,
    Span,
    keeps_block_boundaries,
    moves_axis,
    result_span,
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
    """A movement op on local shapes.

    `ranges` has two ranges for each sharded axis along which elements move: the one that the source
    holds, and the one that the op computes from it.
    """
    source, op = node.src[0], node.op
    layout = source.layout
    if op in {Ops.RESHAPE, Ops.EXPAND}:
        return UOp(op, node.dtype, (value,), local_shape(node.layout, node.shape))
    ranges: dict[int, tuple[Span, Span]] = {}
    if op.name in RANGE_OPS:
        for axis in layout.split_axes:
            if moves_axis(op.name, node.arg, source.shape, axis):
                held = layout.span(axis, source.shape)
                keeps_blocks = keeps_block_boundaries(op.name, node.arg, layout, source.shape, axis)
                computed = (
                    held
                    if keeps_blocks
                    else result_span(op.name, node.arg, source.shape, axis, held)
                )
                assert computed is not None, f"{op.name}: the layout rule allowed it"
                ranges[axis] = (held, computed)
    if op in {Ops.PAD, Ops.UNWINDOW}:
        for axis in ranges:
            value = mask_outside(value, layout, axis, source.shape, 0)
    value, arg = _local_argument(node, value, layout, ranges)
    value = UOp(op, node.dtype, (value,), arg) if not _is_identity(op, arg, value) else value
    for axis, (held, computed) in ranges.items():
        device = node.layout
        want = device.span(axis, node.shape)
        offset: sint = want[0] - computed[0]
        if op is Ops.UNWINDOW:
            # the first computed element is at the end of the first window
            offset = want[0] - held[0] * _stride(node.arg, axis)
        if want[1] != computed[1]:
            offset = block_number(layout, axis) * (want[1] - computed[1]) + offset
        if op is Ops.UNWINDOW or want != computed:
            value = slice_axis(value, axis, offset, offset + want[2])
    return value


def _local_argument(
    node: UOp, value: UOp, layout: Sharding, ranges: dict[int, tuple[Span, Span]]
) -> tuple[UOp, Any]:
    """The source and the argument of the local op: sharded axes keep their local size."""
    op, arg = node.op, node.arg
    if op is Ops.SHRINK:
        split = layout.split_axes
        return value, tuple((0, value.shape[i]) if i in split else b for i, b in enumerate(arg))
    if op is Ops.PAD:
        return value, tuple((0, 0) if i in ranges else pair for i, pair in enumerate(arg))
    if op not in {Ops.WINDOW, Ops.UNWINDOW}:
        return value, arg
    sizes: dict[int, int] = {}
    for axis, (held, computed) in ranges.items():
        stride = _stride(arg, axis)
        if op is Ops.WINDOW:
            value = slice_axis(value, axis, computed[0] * stride - held[0], held[2])
            sizes[axis] = computed[2]
        else:
            sizes[axis] = computed[0] - held[0] * stride + computed[2]
    windows = tuple((a, k, sizes.get(a, size), s, d) for a, k, size, s, d in arg.windows)
    return value, replace(cast(WindowArg, arg), windows=windows)


def _stride(arg: WindowArg, axis: int) -> int:
    return next(stride for a, _, _, stride, _ in arg.windows if a == axis)


def _is_identity(op: Ops, arg: Any, value: UOp) -> bool:
    """Whether a PAD or SHRINK with this argument leaves `value` unchanged."""
    if op is Ops.PAD:
        return all(isinstance(p, int) and p == 0 for pair in arg for p in pair)
    return op is Ops.SHRINK and all(
        isinstance(low, int) and low == 0 and high == size
        for (low, high), size in zip(arg, value.shape)
    )
