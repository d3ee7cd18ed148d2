"""Which part of a memory a view reads or writes, as far as that is known without running anything.

In: movement over a PARAM. Out: whether two such views have an element in common. Always true: parts
that are said to be apart are apart for all values of the Variables in them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from tinygrad.dtype import dtypes
from tinygrad.schedule.kernel.movement_index import as_index, flat_index, movement_index
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.args import AxisType
from tinygrad.uop.ops import RangeArg, UOp, resolve, sint

# first element and end, by axis of the memory and of the memory as one run
Intervals: TypeAlias = tuple[tuple[sint, sint], ...]


@lru_cache(maxsize=4096)
def are_apart(a: UOp, b: UOp) -> bool:
    """Whether two views of PARAMs of one shape have no element in common."""
    if a.base.shape != b.base.shape:
        return False
    known = zip(intervals(a), intervals(b), strict=True)
    cut = zip(bounds_below(a), bounds_below(b), strict=True)
    return any(_are_disjoint(x, y) for x, y in (*known, *cut))


def _are_disjoint(a: tuple[sint, sint], b: tuple[sint, sint]) -> bool:
    return resolve(a[1] <= b[0], False) or resolve(b[1] <= a[0], False)


@lru_cache(maxsize=4096)
def intervals(view: UOp) -> Intervals:
    """Where the elements of a view lie at most, in numbers."""
    index = tuple(
        UOp(Ops.RANGE, dtypes.index, (as_index(size),), RangeArg(i, AxisType.LOOP))
        for i, size in enumerate(view.shape)
    )
    while view.op in GroupOp.Movement:
        index, _ = movement_index(view, index)
        view = view.src[0]
    found = [x.simplify() for x in (*index, flat_index(view.shape, index))]
    return tuple((int(x.vmin), int(x.vmax) + 1) for x in found)


def bounds_below(view: UOp) -> Intervals:
    """What a view was first cut to, which may depend on Variables."""
    bounds: Intervals = tuple((0, size) for size in view.base.shape)
    while view.op in GroupOp.Movement:
        if view.op is Ops.SHRINK and view.src[0].op not in GroupOp.Movement:
            bounds = tuple(view.arg)
        view = view.src[0]
    return bounds


@lru_cache(maxsize=4096)
def views_of(value: UOp, slot: int) -> tuple[UOp, ...]:
    """The views through which a kernel's tensor form reads PARAM number `slot`."""
    found: dict[UOp, None] = {}
    whole: list[UOp] = [value]
    for node in value.toposort():
        if node.op not in GroupOp.Movement:
            whole.extend(node.src)
    for x in whole:
        if x.base.op is Ops.PARAM and x.base.arg.slot == slot:
            found[x] = None
    return tuple(found)
