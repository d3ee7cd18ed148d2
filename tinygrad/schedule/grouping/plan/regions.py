"""Alias analysis: whether two views of one array are provably disjoint.

Input: movement over a PARAM. Output: whether two such views have no element in common. Invariant:
views that are called disjoint are so for all values of the Variables in them.
"""

from __future__ import annotations

from typing import TypeAlias

from tinygrad.caches import cached_function
from tinygrad.dtype import dtypes
from tinygrad.schedule.kernel.movement_index import as_index, flat_index, movement_index
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.args import AxisType
from tinygrad.uop.ops import RangeArg, UOp, resolve, sint

Intervals: TypeAlias = tuple[tuple[sint, sint], ...]
"""A first index and an end for each axis."""


@cached_function(4096)
def are_disjoint(a: UOp, b: UOp) -> bool:
    """Whether two views of PARAMs of one shape have no element in common."""
    if a.base.shape != b.base.shape:
        return False
    constant = zip(intervals(a), intervals(b), strict=True)
    symbolic = zip(slice_bounds(a), slice_bounds(b), strict=True)
    return any(_do_not_overlap(x, y) for x, y in (*constant, *symbolic))


def _do_not_overlap(a: tuple[sint, sint], b: tuple[sint, sint]) -> bool:
    return resolve(a[1] <= b[0], False) or resolve(b[1] <= a[0], False)


@cached_function(4096)
def intervals(view: UOp) -> Intervals:
    """Constant bounds of the elements of a view: for each axis of the array, and for the row-major
    position.
    """
    index = tuple(
        UOp(Ops.RANGE, dtypes.index, (as_index(size),), RangeArg(i, AxisType.LOOP))
        for i, size in enumerate(view.shape)
    )
    while view.op in GroupOp.Movement:
        index, _ = movement_index(view, index)
        view = view.src[0]
    found = [x.simplify() for x in (*index, flat_index(view.shape, index))]
    return tuple((int(x.vmin), int(x.vmax) + 1) for x in found)


def slice_bounds(view: UOp) -> Intervals:
    """The bounds of the first slice of a view, which may depend on Variables."""
    bounds: Intervals = tuple((0, size) for size in view.base.shape)
    while view.op in GroupOp.Movement:
        if view.op is Ops.SHRINK and view.src[0].op not in GroupOp.Movement:
            bounds = tuple(view.arg)
        view = view.src[0]
    return bounds


@cached_function(4096)
def views_of(value: UOp, slot: int) -> tuple[UOp, ...]:
    """The views through which a kernel's tensor form reads PARAM number `slot`."""
    found: dict[UOp, None] = {}
    operands: list[UOp] = [value]
    for node in value.toposort():
        if node.op not in GroupOp.Movement:
            operands.extend(node.src)
    for x in operands:
        if x.base.op is Ops.PARAM and x.base.arg.slot == slot:
            found[x] = None
    return tuple(found)
