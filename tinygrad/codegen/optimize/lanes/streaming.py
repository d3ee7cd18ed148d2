"""Stream a column reduction over long rows in memory order.

Before: `out[column] = f(sum over row of value[row, column])`, where rows are so long that each is
in another page. After: a work item owns a slice of the columns and adds a few rows at a time into
scratch memory, so that its slice of a row is read as a whole before that of the next rows.

    for slice in grid: acc = 0; for rows: for column in slice: acc += sum over a few rows of value

Of very many rows, blocks are added so, and their sums alike.
"""

from __future__ import annotations

from tinygrad.codegen.analysis.accesses import index_of
from tinygrad.codegen.analysis.identity import steps_of_block
from tinygrad.codegen.analysis.ranges import FreeRanges, extent, is_static, loops_of
from tinygrad.codegen.optimize.lanes.vectorize import (
    MAX_ELEMENTARY_STEPS,
    has_elementary,
    max_lanes,
)
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.product.blocking import accumulate_in_memory
from tinygrad.codegen.optimize.split import Fit
from tinygrad.helpers import ceildiv
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

# row stride in bytes, below which the hardware prefetcher covers neighbouring rows
MIN_ROW_BYTES = 1 << 11
# bytes of an array, below which it stays in a cache
MIN_ARRAY_BYTES = 1 << 20
# rows that are added at a time, in order of preference
ROWS_PER_STEP = range(16, 3, -1)
# bytes of accumulators: enough for the prefetcher, few enough for a first-level cache
MIN_SLICE_BYTES, MAX_SLICE_BYTES = 1 << 11, 1 << 14
SLICES_PER_THREAD = 2
SUMS = 0


def stream_rows(nest: Nest) -> bool:
    """Stream the nest if it is one column reduction over long rows; returns whether it is."""
    found = _columns_and_rows(nest)
    if found is None:
        return False
    column, row, step = found
    lanes = max_lanes(nest)
    itemsize = nest.stores[0].src[1].dtype.itemsize
    width = ceildiv(extent(column), SLICES_PER_THREAD * nest.renderer.target.threads)
    width = min(max(width, MIN_SLICE_BYTES // itemsize), MAX_SLICE_BYTES // itemsize)
    width = ceildiv(width, lanes) * lanes
    if width * nest.renderer.target.threads > extent(column):
        return False
    _, inside = nest.split(column, width, AxisType.LOOP, Fit.OVERLAP)
    vector, lane = nest.split(inside, lanes, AxisType.VECTOR, Fit.OVERLAP)
    rows, together = nest.split(row, step, AxisType.REDUCE, Fit.MASKED)
    assert vector is not None and rows is not None
    nest.set_kind(together, AxisType.TILE)
    split = nest.split(rows, steps_of_block(extent(rows)), AxisType.REDUCE, Fit.BOUNDED)
    blocks = [x for x in split if x is not None]

    store = nest.stores[0]
    grid = [r for r in loops_of(store) if r not in (vector, lane)]
    nest.reorder(store, [*grid, vector, lane])
    store = nest.stores[0]
    nest.root = nest.root.substitute({store: _accumulated(store, blocks, [vector, lane], nest)})
    nest.note(f"{step} rows of {width} columns at a time")
    nest.make_grid(grid)
    return True


def _accumulated(store: UOp, blocks: list[UOp], outputs: list[UOp], nest: Nest) -> UOp:
    """The store of a reduction, with sums in scratch memory over the first of the loops `blocks`,
    of which each sums in scratch memory over the next ones.
    """
    reduce = next(u for u in store.toposort() if u.op is Ops.REDUCE)
    outer, *rest = blocks
    number = SUMS + len(rest)
    parts = [(reduce, [outer])]
    summed = accumulate_in_memory(store, reduce, parts, outputs, nest.factory, number)
    if not rest:
        return summed
    update = next(u for u in summed.toposort() if u.op is Ops.STORE and outer in loops_of(u))
    inside = _accumulated(update, rest, list(loops_of(update)[1:]), nest)
    return summed.substitute({update: inside})


def _columns_and_rows(nest: Nest) -> tuple[UOp, UOp, int] | None:
    """The loops over columns and rows, and the number of rows to add at a time."""
    if len(nest.stores) != 1 or nest.is_in_place() or max_lanes(nest) < 2:
        return None
    store = nest.stores[0]
    reduces = [u for u in store.toposort() if u.op is Ops.REDUCE]
    if len(reduces) != 1 or len(reduces[0].src) != 2 or len(store.src) < 3:
        return None
    (value, row), column = reduces[0].src, loops_of(store)[-1]
    if any(r.arg.kind is not AxisType.LOOP or not is_static(r) for r in loops_of(store)):
        return None
    free = FreeRanges()
    loads = [u for u in value.toposort() if u.op is Ops.LOAD and column in free[u]]
    of_rows = [u for u in loads if row in free[u]]
    if not of_rows or not all(_is_long_row(u, row, free) for u in of_rows):
        return None
    if any(free.stride(index_of(u), column) != 1 for u in loads):
        return None
    nbytes = extent(row) * extent(column) * of_rows[0].dtype.itemsize
    if not is_static(row) or nbytes < MIN_ARRAY_BYTES:
        return None
    most = MAX_ELEMENTARY_STEPS if has_elementary(value) else ROWS_PER_STEP[0]
    steps = (n for n in ROWS_PER_STEP if n <= most and extent(row) % n == 0 and extent(row) > n)
    step = next(steps, None)
    return None if step is None else (column, row, step)


def _is_long_row(load: UOp, row: UOp, free: FreeRanges) -> bool:
    """Whether the elements of a load in neighbouring rows are far from each other."""
    stride = free.stride(index_of(load), row)
    return stride is not None and abs(stride) * load.dtype.itemsize >= MIN_ROW_BYTES
