"""Movement and reduction on one device's part of a split axis.

In: a node of the tensor graph and the local value of its source. Out: the local value of the node.
Axes that are not split, or that the op leaves alone, only have other sizes here. Along the others
the source holds a run of elements that the op makes a run from: some more than the result's part
at times, which is cut off.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from tinygrad.schedule.spmd.local import along, local_shape, part_number, within
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


def reduce_locally(node: UOp, value: UOp) -> UOp:
    """REDUCE_AXIS: what lies behind the end of the array does not count."""
    source = node.src[0]
    layout = cast(Sharding, source.device)
    for axis in set(layout.split_axes).intersection(node.arg.axes):
        value = within(value, layout, axis, source.shape, identity(node.arg.op, node.dtype))
    return UOp(node.op, node.dtype, (value,), node.arg)


def move_locally(node: UOp, value: UOp) -> UOp:
    """A movement op."""
    source, op = node.src[0], node.op
    layout = cast(Sharding, source.device)
    if op in {Ops.RESHAPE, Ops.EXPAND}:
        return UOp(op, node.dtype, (value,), local_shape(cast(Sharding, node.device), node.shape))
    slid: dict[int, tuple[Span, Span]] = {}
    if op.name in RANGE_OPS:
        for axis in layout.split_axes:
            if moves_axis(op.name, node.arg, source.shape, axis):
                held = layout.span(axis, source.shape)
                stays = keeps_block_boundaries(op.name, node.arg, layout, source.shape, axis)
                made = held if stays else result_span(op.name, node.arg, source.shape, axis, held)
                assert made is not None, f"{op.name}: the layout rule allowed it"
                slid[axis] = (held, made)
    if op in {Ops.PAD, Ops.UNWINDOW}:
        for axis in slid:
            value = within(value, layout, axis, source.shape, 0)
    value, arg = _local_argument(node, value, layout, slid)
    value = UOp(op, node.dtype, (value,), arg) if not _does_nothing(op, arg, value) else value
    for axis, (held, made) in slid.items():
        device = cast(Sharding, node.device)
        want = device.span(axis, node.shape)
        offset: sint = want[0] - made[0]
        if op is Ops.UNWINDOW:
            # the first element made is that of the first window's end
            offset = want[0] - held[0] * _stride(node.arg, axis)
        if want[1] != made[1]:
            offset = part_number(layout, axis) * (want[1] - made[1]) + offset
        if op is Ops.UNWINDOW or want != made:
            value = along(value, axis, offset, offset + want[2])
    return value


def _local_argument(
    node: UOp, value: UOp, layout: Sharding, slid: dict[int, tuple[Span, Span]]
) -> tuple[UOp, Any]:
    op, arg = node.op, node.arg
    if op is Ops.SHRINK:
        split = layout.split_axes
        return value, tuple((0, value.shape[i]) if i in split else b for i, b in enumerate(arg))
    if op is Ops.PAD:
        return value, tuple((0, 0) if i in slid else pair for i, pair in enumerate(arg))
    if op not in {Ops.WINDOW, Ops.UNWINDOW}:
        return value, arg
    sizes: dict[int, int] = {}
    for axis, (held, made) in slid.items():
        stride = _stride(arg, axis)
        if op is Ops.WINDOW:
            value = along(value, axis, made[0] * stride - held[0], held[2])
            sizes[axis] = made[2]
        else:
            sizes[axis] = made[0] - held[0] * stride + made[2]
    windows = tuple((a, k, sizes.get(a, size), s, d) for a, k, size, s, d in arg.windows)
    return value, replace(cast(WindowArg, arg), windows=windows)


def _stride(arg: WindowArg, axis: int) -> int:
    return next(stride for a, _, _, stride, _ in arg.windows if a == axis)


def _does_nothing(op: Ops, arg: Any, value: UOp) -> bool:
    if op is Ops.PAD:
        return all(isinstance(p, int) and p == 0 for pair in arg for p in pair)
    return op is Ops.SHRINK and all(
        isinstance(low, int) and low == 0 and high == size
        for (low, high), size in zip(arg, value.shape)
    )
