"""Index arithmetic: the element of its source that an element of a movement op reads.

Input: a movement op and an index into its result. Output: the index into its source, and the
condition under which that element exists. Invariant: where the condition holds, the index is in
bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.sint import is_one

Index: TypeAlias = tuple[UOp, ...]
"""One index expression for each axis."""

ZERO = UOp.const(dtypes.index, 0)


def as_index(size: sint) -> UOp:
    """A size as an index expression; a bound Variable stands for its value."""
    if isinstance(size, int):
        return UOp.const(dtypes.index, size)
    return size.substitute({b: b.src[0] for b in size.toposort() if b.op is Ops.BIND})


def both(a: UOp | None, b: UOp | None) -> UOp | None:
    """The conjunction of two conditions, where None is true."""
    if a is None or b is None:
        return a if b is None else b
    return UOp(Ops.AND, dtypes.bool, (a, b))


def within(index: UOp, start: sint, end: sint) -> UOp | None:
    """`start <= index < end`, or None where that always holds."""
    low, high = as_index(start), as_index(end)
    condition = None
    if index.vmin < low.vmax:
        condition = (index < low).ne(True)
    if index.vmax >= high.vmin:
        condition = both(condition, index < high)
    return condition


def movement_index(node: UOp, index: Index) -> tuple[Index, UOp | None]:
    """The index into the source of a movement op, and the condition that this element exists."""
    op, arg, shape = node.op, node.arg, node.src[0].shape
    if op is Ops.PERMUTE:
        return tuple(index[arg.index(i)] for i in range(len(arg))), None
    if op is Ops.EXPAND:
        pairs = zip(index, shape, node.shape, strict=True)
        return tuple(i if old == new else ZERO for i, old, new in pairs), None
    if op is Ops.SHRINK:
        return tuple(i + as_index(s) for i, (s, _) in zip(index, arg, strict=True)), None
    if op is Ops.FLIP:
        pairs = zip(index, shape, arg, strict=True)
        return tuple(as_index(d - 1) - i if flip else i for i, d, flip in pairs), None
    if op is Ops.PAD:
        condition = None
        for i, d, (before, _) in zip(index, shape, arg, strict=True):
            condition = both(condition, within(i, before, before + d))
        return tuple(
            i - as_index(before) for i, (before, _) in zip(index, arg, strict=True)
        ), condition
    if op is Ops.WINDOW:
        inner = list(index)
        for axis, kernel, _, stride, dilation in arg.windows:
            inner[axis] = index[axis] * stride + index[kernel] * dilation
        return tuple(inner), None
    if op is Ops.UNWINDOW:
        return unwindow_index(node, index)
    assert op is Ops.RESHAPE
    return reshape_index(index, node.shape, shape), None


def unwindow_index(node: UOp, index: Index) -> tuple[Index, UOp | None]:
    """The index of the window element at `index`, and the condition that there is one."""
    inner = list(index)
    condition = None
    for axis, kernel, _, stride, dilation in node.arg.windows:
        offset = index[axis] - index[kernel] * dilation
        position = offset
        if stride > 1:
            # IDIV truncates toward zero: mask negative offsets, which are out of range anyway
            condition = both(condition, (offset < 0).ne(True))
            condition = both(condition, (offset % stride).eq(0))
            position = offset // stride
        condition = both(condition, within(position, 0, node.src[0].shape[axis]))
        inner[axis] = position
    return tuple(inner), condition


def reshape_index(index: Index, new: Sequence[sint], old: Sequence[sint]) -> Index:
    """The index into shape `old` of the element at `index` of shape `new`.

    Axes are matched in the smallest groups of equal size, so that division stays within a group.
    """
    result: list[UOp] = []
    i = j = 0
    while i < len(new) or j < len(old):
        if i < len(new) and j < len(old) and new[i] == old[j]:
            result.append(index[i])
            i, j = i + 1, j + 1
            continue
        start_i, start_j = i, j
        size_i: sint = 1
        size_j: sint = 1
        while True:
            if i < len(new) and (size_i == 1 or (j == len(old)) or _smaller(size_i, size_j)):
                size_i, i = size_i * new[i], i + 1
            elif j < len(old):
                size_j, j = size_j * old[j], j + 1
            else:
                break
            if _equal(size_i, size_j) and not _continues(size_i, new[i:], old[j:]):
                break
        result += _regroup(index[start_i:i], new[start_i:i], old[start_j:j])
    return tuple(result)


def _smaller(a: sint, b: sint) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a < b


def _equal(a: sint, b: sint) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return as_index(a).simplify() is as_index(b).simplify()


def _continues(size: sint, new: Sequence[sint], old: Sequence[sint]) -> bool:
    # a group of size 1 on one side only would leave the other side's axes without a partner
    return isinstance(size, int) and size == 1 and bool(new or old)


def _regroup(index: Index, new: Sequence[sint], old: Sequence[sint]) -> list[UOp]:
    flat = ZERO
    for i, d in zip(index, new, strict=True):
        flat = flat * as_index(d) + i
    result: list[UOp] = []
    rest = prod(old[1:])
    for k, d in enumerate(old):
        if isinstance(d, int) and d == 1:
            result.append(ZERO)
        else:
            here = flat // as_index(rest)
            result.append(here % as_index(d) if not all(map(is_one, old[:k])) else here)
        if k + 1 < len(old):
            rest = prod(old[k + 2 :])
    return result


def flat_index(shape: Sequence[sint], index: Index) -> UOp:
    """The row-major position of an element."""
    flat = ZERO
    for i, d in zip(index, shape, strict=True):
        flat = flat * as_index(d) + i
    return flat
