"""Slice assignment as a new value of the whole array, as in a dynamic update slice.

Input: an array, the movement from it to a view, and the new elements of the view. Output: the new
array, `where(mask, value, array)`, in which `value` and `mask`, the new elements and trues, have
the shape of the array. Invariant: an ASSIGN always writes a whole buffer; `match_slice_assign`
finds the slice that really changes, so that the lowered graph writes no more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from tinygrad.dtype import dtypes
from tinygrad.sharding import Sharding
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import SymbolicShape, broadcast_node
from tinygrad.uop.ops import UOp
from tinygrad.uop.propagation.shape import movement_shape
from tinygrad.uop.sint import is_one

ViewStep: TypeAlias = tuple[Ops, Any]
"""A step from an array to a view of it: a movement op, DETACH, BITCAST or MSELECT, and its
argument."""

_MOVED_BACK = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP})
BIJECTIVE = _MOVED_BACK | {Ops.DETACH, Ops.BITCAST}


class SliceAssign(NamedTuple):
    """The elements `value` are written after the first `padding[axis][0]` elements of each axis of
    `array`, the content before.
    """

    value: UOp
    padding: tuple[tuple[Any, Any], ...]
    array: UOp


def apply_step(node: UOp, step: ViewStep) -> UOp:
    """The view of `node` by one step."""
    op, arg = step
    match op:
        case Ops.RESHAPE:
            return node.reshape(arg)
        case Ops.PERMUTE:
            return node.permute(arg)
        case Ops.FLIP:
            return node.flip(arg)
        case Ops.SHRINK:
            return node.shrink(arg)
        case Ops.PAD:
            return node.pad(arg)
        case Ops.EXPAND:
            return broadcast_node(node, arg)
        case Ops.BITCAST:
            return node.bitcast(arg)
        case Ops.DETACH:
            return node.detach()
        case _:
            assert op is Ops.MSELECT, f"{op.name} gives no view"
            return node.mselect(arg)


def apply_steps(node: UOp, steps: Sequence[ViewStep]) -> UOp:
    """The view of `node` by several steps."""
    for step in steps:
        node = apply_step(node, step)
    return node


def sink_expand(steps: Sequence[ViewStep], shape: SymbolicShape) -> tuple[ViewStep, ...]:
    """Equal steps from an array of `shape`, where an axis is expanded after it is sliced; an axis
    that is sliced to one element is not expanded at all.
    """
    found: list[ViewStep] = []
    # the shapes before and after the expansions that are left out of `found`
    old = new = shape
    for number, (op, arg) in enumerate(steps):
        if op is Ops.EXPAND:
            if len(arg) > len(old):
                old = (1,) * (len(arg) - len(old)) + old
                found.append((Ops.RESHAPE, old))
            new = arg
            continue
        if op is Ops.DETACH:
            found.append((op, arg))
            continue
        if op in {Ops.SHRINK, Ops.FLIP, Ops.PERMUTE}:
            new = movement_shape(op, new, arg)
            arg = _on_unexpanded_axes(op, arg, old)
        elif old != new or op is not Ops.RESHAPE:
            expanded = [(Ops.EXPAND, new)] if old != new else []
            return (*found, *expanded, *steps[number:])
        old = movement_shape(op, old, arg)
        new = old if op is Ops.RESHAPE else new
        found.append((op, arg))
    return (*found, (Ops.EXPAND, new)) if old != new else tuple(found)


def _on_unexpanded_axes(op: Ops, arg: Any, shape: SymbolicShape) -> Any:
    """The argument of a SHRINK, FLIP or PERMUTE where axes of size 1 are not expanded yet."""
    if op is Ops.SHRINK:
        return tuple((0, 1) if size == 1 else b for size, b in zip(shape, arg, strict=True))
    if op is Ops.FLIP:
        return tuple(flip and not is_one(size) for size, flip in zip(shape, arg, strict=True))
    return arg


def update_view(array: UOp, steps: Sequence[ViewStep], value: UOp) -> UOp:
    """`array` with `value` in place of its view by `steps`, none of which repeats elements."""
    arrays = [array]
    for step in steps[:-1]:
        arrays.append(apply_step(arrays[-1], step))
    mask: UOp | None = None
    for number in reversed(range(len(steps))):
        op = steps[number][0]
        if op is Ops.BITCAST and mask is not None:
            # the elements of both sides differ in number
            value = mask.alu(Ops.WHERE, value, apply_step(arrays[number], steps[number]))
            mask = None
        if mask is None and op not in BIJECTIVE:
            mask = UOp.const(dtypes.bool, True).reshape((1,) * value.ndim).expand(value.shape)
        value = _undo_step(arrays[number], steps[number], value)
        mask = None if mask is None else _undo_step(arrays[number], steps[number], mask)
    return value if mask is None else mask.alu(Ops.WHERE, value, array)


def _undo_step(source: UOp, step: ViewStep, value: UOp) -> UOp:
    """`value`, which has the shape of the view of `source` by `step`, in the shape of `source`."""
    op, arg = step
    shape = source.shape
    match op:
        case Ops.SHRINK:
            return value.pad(tuple((low, d - high) for (low, high), d in zip(arg, shape)))
        case Ops.PAD:
            return value.shrink(tuple((low, low + d) for (low, _), d in zip(arg, shape)))
        case Ops.PERMUTE:
            return value.permute(tuple(arg.index(axis) for axis in range(len(arg))))
        case Ops.RESHAPE | Ops.EXPAND:
            return value.reshape(shape)
        case Ops.FLIP:
            return value.flip(arg)
        case Ops.BITCAST:
            return value.bitcast(source.dtype)
        case _:
            assert op is Ops.DETACH, f"{op.name} cannot be undone"
            return value


def match_slice_assign(node: UOp) -> SliceAssign | None:
    """The slice that an ASSIGN changes. None if it changes more than a slice, or if the new
    elements are on other devices than the target.
    """
    target, value = node.src
    if value.op is not Ops.WHERE or not _is_content(value.src[2], target):
        return None
    mask, written, array = value.src
    while mask.op in _MOVED_BACK and written.op in {mask.op, Ops.COPY}:
        if written.op is not Ops.COPY:
            if mask.arg != written.arg:
                return None
            mask = mask.src[0]
            array = _view_before(array, written)
        written = written.src[0]
    while written.op is Ops.COPY:
        written = written.src[0]
    if mask.op is not Ops.PAD or written.op is not Ops.PAD or mask.arg != written.arg:
        return None
    found = SliceAssign(written.src[0], written.arg, array)
    is_view = _moved_base(array) is _moved_base(value.src[2])
    return found if is_view and _is_true(mask.src[0]) and _is_placed_alike(found) else None


def _view_before(array: UOp, moved: UOp) -> UOp:
    """The view of `array` from which the movement of `moved` leads back to it."""
    if moved.op is Ops.RESHAPE:
        return array.reshape(moved.src[0].shape)
    if moved.op is Ops.PERMUTE:
        return array.permute(moved.inverse_permute())
    assert moved.op is Ops.FLIP
    return array.flip(moved.arg)


def _is_content(node: UOp, target: UOp) -> bool:
    """Whether a value is the content of `target`, or what was assigned to it before."""
    return node is target or (node.op is Ops.ASSIGN and _is_content(node.src[0], target))


def _moved_base(node: UOp) -> UOp:
    while node.op in _MOVED_BACK:
        node = node.src[0]
    return node


def _is_placed_alike(part: SliceAssign) -> bool:
    """Whether each device has the new elements of its own shard: all are on every device, or they
    are sharded along axes that are not sliced.
    """
    layout = part.value.device
    if layout is None or not isinstance(layout, Sharding):
        return True
    if layout.is_replicated:
        return all(isinstance(size, int) for size in part.value.shape)
    whole = all(part.padding[axis] == (0, 0) for axis in layout.split_axes)
    return whole and layout == part.array.device


def _is_true(node: UOp) -> bool:
    while node.op in {Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.FLIP}:
        node = node.src[0]
    return node.op is Ops.CONST and node.arg is True
