"""Compute the reductions of all prefixes as one running reduction.

Before: `out[i] = f(sum over k of (x[k] if k <= i else 0))`, or `k >= i`, as in a cumulative sum and
its gradient: steps for each pair. After: steps from the first element on, or from the last:

    for rows or slices of columns in grid: acc = 0; for i: acc += x[i]; out[i] = f(acc)

Where columns are contiguous, they are lanes, and a work item owns a slice of them. A long row has
lanes along `i`: a vector is the total before it, plus the sums of the prefixes of its lanes. Short
rows are computed several at a time, as the sum of one does not wait for that of another.
"""

from __future__ import annotations

from typing import NamedTuple

from tinygrad.codegen.analysis.accesses import index_of
from tinygrad.codegen.analysis.affine_index import affine
from tinygrad.codegen.analysis.identity import identity_element
from tinygrad.codegen.analysis.ranges import (
    FreeRanges,
    clone_ranges,
    extent,
    is_static,
    loops_of,
    substitute,
)
from tinygrad.codegen.optimize.lanes.vectorize import max_lanes
from tinygrad.codegen.optimize.nest import Nest, points
from tinygrad.codegen.optimize.split import Fit, replace_axis
from tinygrad.codegen.optimize.staging import row_major_index, stage
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.helpers import ceildiv
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

MIN_STEPS = 4
MAX_SLICE_BYTES = 1 << 13
"""The maximum bytes of the accumulators of a slice: few enough for a first-level cache, and enough
for the prefetcher, which reads a slice of one row after the other."""
ROWS = 8
"""The rows that a work item computes side by side: as many additions as a core has in flight."""
FIRST_SCRATCH = 1 << 17
"""The first number of the scratch arrays, above those of `row_values.py`."""


class _Prefixes(NamedTuple):
    """The reduction `node` of `value` over the steps of `reduced` up to that of `along`, or from it
    on.
    """

    node: UOp
    value: UOp
    reduced: UOp
    along: UOp
    is_forward: bool


def run_prefixes(nest: Nest) -> bool:
    """Make the nest a running reduction if it reduces all prefixes. Returns whether it does."""
    prefixes = _find_prefixes(nest)
    if prefixes is None:
        return False
    outer = [r for r in loops_of(nest.stores[0]) if r is not prefixes.along]
    lanes = max_lanes(nest)
    column = next((r for r in outer if _is_contiguous(nest, r, lanes)), None)
    if column is not None:
        inner = _slice_columns(nest, outer, column, lanes)
        _run_elements(nest, outer, inner)
    elif _is_contiguous(nest, prefixes.along, lanes):
        _run_vectors(nest, outer, lanes)
    else:
        _run_elements(nest, outer, _take_rows(nest, outer))
    nest.grid_over(outer)
    return True


def _slice_columns(nest: Nest, outer: list[UOp], column: UOp, lanes: int) -> list[UOp]:
    """Split the columns, one of `outer`, into slices; returns the loops over a slice."""
    width = min(MAX_SLICE_BYTES // nest.stores[0].src[1].dtype.itemsize, extent(column))
    width -= width % lanes
    slices, inside = nest.split(column, width, AxisType.LOOP, Fit.OVERLAP)
    vectors, lane = nest.split(inside, lanes, AxisType.VECTOR, Fit.OVERLAP)
    outer.remove(column)
    outer += [slices] if slices is not None else []
    nest.note(f"running reduction of {width} columns")
    return [lane] if vectors is None else [vectors, lane]


def _take_rows(nest: Nest, outer: list[UOp]) -> list[UOp]:
    """Split the last of the `outer` loops, if any, into few rows; returns the loop over these."""
    nest.note("running reduction of neighbouring rows")
    if not outer:
        return []
    rows, tile = nest.split(outer.pop(), ROWS, AxisType.TILE, Fit.MASKED)
    outer += [rows] if rows is not None else []
    return [tile]


def _run_elements(nest: Nest, outer: list[UOp], inner: list[UOp]) -> None:
    """In each step, update an accumulator for each step of `inner`."""
    found = _prefixes_of(nest)
    size = extent(found.along)
    loop = nest.factory.new(size, AxisType.LOOP)
    element = loop if found.is_forward else UOp.const(dtypes.index, size - 1) - loop
    store = _replace_steps(nest, found, element, [loop], [*outer, loop, *inner])
    scratch, clear = _cleared(nest, found, outer, inner)
    current = scratch.after(clear, loop).index(row_major_index(inner))
    value = substitute(found.value, {found.reduced: element})
    dtype = found.node.dtype
    update = current.store(UOp(found.node.arg, dtype, (current.load(dtype=dtype), value)))
    total = scratch.after(update).index(row_major_index(inner)).load(dtype=dtype)
    _finish(nest, store, total, loop, inner)


def _run_vectors(nest: Nest, outer: list[UOp], lanes: int) -> None:
    """In each step, a vector of prefixes: the last one so far, and those of the new lanes."""
    found = _prefixes_of(nest)
    op, dtype, size = found.node.arg, found.node.dtype, extent(found.along)
    count, rest = ceildiv(size, lanes), size % lanes
    loop = nest.factory.new(count, AxisType.LOOP)
    lane, other = nest.factory.new(lanes, AxisType.VECTOR), nest.factory.new(lanes, AxisType.TILE)
    # the last vector overlaps the one before, in which the element before it is
    if found.is_forward:
        start, previous = loop * lanes, lanes - 1
        last_start, last_previous = size - lanes, rest - 1
    else:
        start, previous = (size - lanes) - loop * lanes, 0
        last_start, last_previous = 0, lanes - rest
    at = UOp.const(dtypes.index, previous)
    if rest:
        is_last = UOp.const(dtypes.index, count - 2) < loop
        start = is_last.where(UOp.const(dtypes.index, last_start), start)
        at = is_last.where(UOp.const(dtypes.index, last_previous), at)
    store = _replace_steps(nest, found, start + lane, [loop, lane], [*outer, loop, lane])
    scratch, clear = _cleared(nest, found, outer, [lane])
    value = substitute(found.value, {found.reduced: start + other})
    is_later = lane < other if found.is_forward else other < lane
    new = is_later.where(identity_element(op, dtype), value).reduce(other, arg=op)
    current = scratch.after(clear, loop)
    before = current.index(at).load(dtype=dtype)
    update = current.index(lane).store(UOp(op, dtype, (before, new)))
    total = scratch.after(update).index(lane).load(dtype=dtype)
    nest.note(f"running reduction of {lanes} lanes")
    _finish(nest, store, total, loop, [])


def _replace_steps(
    nest: Nest,
    found: _Prefixes,
    element: UOp,
    loops: list[UOp],
    order: list[UOp],
) -> UOp:
    """The store with other `loops` for that of the prefixes, and all loops in an order."""
    nest.root = replace_axis(nest.root, found.along, element, tuple(loops))
    nest.reorder(nest.stores[0], order)
    return nest.stores[0]


def _cleared(nest: Nest, found: _Prefixes, outer: list[UOp], inner: list[UOp]) -> tuple[UOp, UOp]:
    """Scratch memory for an accumulator in each step of `inner`, and the nest that clears it."""
    dtype = found.node.dtype
    number = FIRST_SCRATCH + nest.factory.number()
    scratch = UOp(Ops.DEFINE_LOCAL, dtype.ptr(points(inner), AddrSpace.LOCAL), (), number)
    cleared = clone_ranges(inner, nest.factory)
    start = scratch.after(*outer) if outer else scratch
    nothing = identity_element(found.node.arg, dtype)
    return scratch, start.index(row_major_index(cleared)).store(nothing, *cleared)


def _finish(nest: Nest, store: UOp, total: UOp, loop: UOp, inner: list[UOp]) -> None:
    """Replace the reduction of a store by its total so far. What each step of `loop` needs again
    for each of `inner`, such as the total of earlier blocks, is loaded once.
    """
    (reduce,) = (u for u in store.toposort() if u.op is Ops.REDUCE)
    free = FreeRanges()
    table = {reduce: total}
    for u in store.src[1].toposort(gate=lambda u: u is not reduce):
        if u.op is Ops.LOAD and loop not in free[u] and not free[u].isdisjoint(inner):
            number = FIRST_SCRATCH + nest.factory.number()
            table[u] = stage(u, inner, nest.factory, number)
    nest.root = nest.root.substitute({store: store.substitute(table)})


def _is_contiguous(nest: Nest, axis: UOp, lanes: int) -> bool:
    """Whether the store and all loads that depend on a loop of many steps are contiguous along it;
    loads of what is reduced, along the loop of the reduction.
    """
    if lanes < 2 or extent(axis) < lanes or nest.is_in_place():
        return False
    found = _prefixes_of(nest)
    axes = {axis, found.reduced} if axis is found.along else {axis}
    free = FreeRanges()
    for u in nest.root.toposort():
        if u.op is Ops.LOAD or u.op is Ops.STORE:
            own = axes.intersection(free[u.src[0]])
            if any(free.stride(index_of(u), r) != 1 for r in own):
                return False
            if u.op is Ops.STORE and not own:
                return False
    return True


def _prefixes_of(nest: Nest) -> _Prefixes:
    found = _find_prefixes(nest)
    assert found is not None, "the nest reduces all prefixes"
    return found


def _find_prefixes(nest: Nest) -> _Prefixes | None:
    """The reduction of prefixes in a nest of one store."""
    if len(nest.stores) != 1:
        return None
    (store,) = nest.stores
    reduces = [u for u in store.toposort() if u.op is Ops.REDUCE]
    loops = loops_of(store)
    if len(reduces) != 1 or len(reduces[0].src) != 2:
        return None
    (chosen, reduced), op = reduces[0].src, reduces[0].arg
    if chosen.op is not Ops.WHERE or not all(map(is_static, (*loops, reduced))):
        return None
    condition, yes, no = chosen.src
    nothing = identity_element(op, chosen.dtype)
    if condition.op is not Ops.CMPLT or (yes is nothing) == (no is nothing):
        return None
    value = no if yes is nothing else yes
    form = affine(condition.src[0] - condition.src[1])
    factors = form.terms
    along = next((r for r in factors if r in loops), None)
    if along is None or along.arg.kind is not AxisType.LOOP or extent(along) < MIN_STEPS:
        return None
    if len(factors) != 2 or factors.get(reduced, 0) != -factors[along] or abs(factors[along]) != 1:
        return None
    # nothing where i < k, or the value where k < i + 1: the steps up to i
    if form.constant != (0 if yes is nothing else -1) or extent(along) != extent(reduced):
        return None
    if along in FreeRanges()[value]:
        return None
    is_forward = (factors[along] == 1) == (yes is nothing)
    return _Prefixes(reduces[0], value, reduced, along, is_forward)
