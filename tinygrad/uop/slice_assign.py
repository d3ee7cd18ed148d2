"""Slice assignment as a new value of the array, as in a dynamic update slice.

Input: a view of an array, and the new elements of the view. Output: `where(mask, value, array)`,
where `value` and `mask`, the new elements and trues, are padded to the shape of the array. This is
the only form in which a slice of a sharded axis is written: memory has no view that crosses shards,
but each device knows which of the elements lie in its shard.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tinygrad.dtype import dtypes
from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp


class SliceAssign(NamedTuple):
    """The elements `value` are written after the first `padding[axis][0]` elements of each axis."""

    value: UOp
    padding: tuple[tuple[Any, Any], ...]


def update_slice(view: UOp, array: UOp, value: UOp) -> UOp:
    """`array` with `value` in place of `view`, a chain of movement and copies of it."""
    mask = UOp.const(dtypes.bool, True).reshape((1,) * value.ndim).expand(value.shape)
    while view is not array:
        below = view.src[0]
        value, mask = _undo_movement(view, value), _undo_movement(view, mask)
        view = below
    return mask.alu(Ops.WHERE, value, array)


def _undo_movement(node: UOp, value: UOp) -> UOp:
    """`value`, which has the shape of the result of a movement op, in the shape of its source."""
    shape = node.src[0].shape
    if node.op is Ops.SHRINK:
        return value.pad(tuple((low, d - high) for (low, high), d in zip(node.arg, shape)))
    if node.op is Ops.PERMUTE:
        return value.permute(node.inverse_permute())
    if node.op is Ops.RESHAPE:
        return value.reshape(shape)
    if node.op is Ops.FLIP:
        return value.flip(node.arg)
    assert node.op not in GroupOp.Movement, f"{node.op.name} is no view of memory"
    return value


def match_slice_assign(node: UOp) -> SliceAssign | None:
    """The slice that an ASSIGN writes, or None if it writes anything else, or if the new elements
    are sharded.
    """
    target, value = node.src
    if value.op is not Ops.WHERE or value.src[2] is not target:
        return None
    mask, written = value.src[:2]
    while written.op is Ops.COPY:
        written = written.src[0]
    if mask.op is not Ops.PAD or written.op is not Ops.PAD or mask.arg != written.arg:
        return None
    part = written.src[0]
    layout = part.device
    is_replicated = layout is None or (isinstance(layout, Sharding) and layout.is_replicated)
    return SliceAssign(part, written.arg) if is_replicated and _is_true(mask.src[0]) else None


def _is_true(node: UOp) -> bool:
    while node.op in {Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.FLIP}:
        node = node.src[0]
    return node.op is Ops.CONST and node.arg is True
