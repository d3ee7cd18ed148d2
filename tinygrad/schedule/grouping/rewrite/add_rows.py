"""Rows that are added to memory: an assignment touches the rows of the index alone.

Before: `w.assign(w + rate * scatter_add(values, index))`, as the step of an embedding by gradient
descent. After: `w.assign(w + scatter_add(values * rate, index))`, whose scatter is tagged as added
in place: one kernel that adds each row to `w`. It reads values and index from memory, so it may
overwrite what these were computed from. A row of several values adds each to `w` in turn.
"""

from __future__ import annotations

from tinygrad.schedule.storage_views import as_memory
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.sint import is_one

ADDED_IN_PLACE = "added in place"
"""The tag of a SCATTER_ADD that has no memory of its own."""


def add_rows(node: UOp) -> UOp | None:
    """`assign(w, w + rate * scatter_add(v, i)) -> assign(w, w + scatter_add(rate * v, i))`"""
    target, value = node.src
    if value.op is not Ops.ADD or target not in value.src:
        return None
    update = value.src[1] if value.src[0] is target else value.src[0]
    factors: list[UOp] = []
    while update.op is Ops.MUL:
        number = next((x for x in update.src if _repeated_number(x) is not None), None)
        if number is None:
            return None
        factors.append(number)
        update = update.src[1] if update.src[0] is number else update.src[0]
    if update.op is not Ops.SCATTER_ADD or update.tag is ADDED_IN_PLACE:
        return None
    values, index = map(as_memory, update.src)
    for x in reversed(factors):
        number = _repeated_number(x)
        assert number is not None, "factors are numbers"
        values = values * number.reshape((1,) * values.ndim).expand(values.shape)
    added = UOp(Ops.SCATTER_ADD, update.dtype, (values, index), update.arg, ADDED_IN_PLACE)
    return node.replace(src=(target, UOp(Ops.ADD, value.dtype, (target, added))))


def with_scatters(materialized: set[UOp]) -> set[UOp]:
    """`materialized`, and the scatters of sums among these: such a sum is no assignment in place,
    as a kernel reads both versions of the memory.
    """
    sums = (node for node in materialized if node.op is Ops.ADD)
    return materialized | {x for node in sums for x in node.src if x.tag is ADDED_IN_PLACE}


def _repeated_number(node: UOp) -> UOp | None:
    """The number that all elements of a constant, or of an EXPAND, are equal to; None if there is
    none.
    """
    if node.op is Ops.EXPAND:
        node = node.src[0]
    return node if all(map(is_one, node.shape)) else None


__all__ = ["ADDED_IN_PLACE", "add_rows", "with_scatters"]
