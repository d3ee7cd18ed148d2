"""Transpose in square blocks through scratch memory.

Before: a store that is contiguous along one axis, of loads that are contiguous along another.
After: for each square block, contiguous vectors are loaded into scratch memory, and vectors along
the other axis are gathered from it and stored. Every cache line is read and written once, whole.
"""

from __future__ import annotations

from tinygrad.codegen.analysis.accesses import index_of
from tinygrad.codegen.analysis.ranges import FreeRanges, extent, is_static, loops_of
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.split import Fit
from tinygrad.codegen.optimize.staging import stage
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

# elements that pad each row of a block, so that a column maps to different cache sets
ROW_PADDING = 1
# neighbouring blocks in both directions, so that a TLB entry serves more than one cache line
BLOCKS_PER_GROUP = 4


def transpose_blocks(nest: Nest, lanes: int) -> bool:
    """Transpose the nest in blocks if it is one transposing store; returns whether it is."""
    found = find_transpose(nest, lanes)
    if found is None:
        return False
    columns, rows, count = found
    row_outer, row = nest.split(rows, lanes, AxisType.LOOP, Fit.OVERLAP)
    column_outer, column = nest.split(columns, lanes, AxisType.VECTOR, Fit.OVERLAP)
    near: list[UOp] = []
    far: list[UOp] = []
    for outer in (row_outer, column_outer):
        if outer is not None:
            group, inner = nest.split(outer, BLOCKS_PER_GROUP, AxisType.LOOP, Fit.BOUNDED)
            near.append(inner)
            far += [] if group is None else [group]
    store = nest.stores[0]
    outside = [r for r in loops_of(store) if r not in (row, column, *near, *far)]
    nest.reorder(store, [*outside, *far, *near, row, column])
    free = FreeRanges()
    loads = [u for u in nest.root.toposort() if u.op is Ops.LOAD]
    strided = [u for u in loads if free.stride(index_of(u), column) not in {0, 1}]
    assert len(strided) == count
    table = {
        u: stage(u, [column, row], nest.factory, number, ROW_PADDING)
        for number, u in enumerate(strided)
    }
    nest.root = nest.root.substitute(table)
    nest.note(f"transposed in blocks of {lanes} x {lanes}")
    return True


def find_transpose(nest: Nest, lanes: int) -> tuple[UOp, UOp, int] | None:
    """The contiguous axis of the store, that of the strided loads, and the number of these."""
    if lanes < 4 or len(nest.stores) != 1 or nest.is_in_place():
        return None
    store = nest.stores[0]
    nodes = store.toposort()
    if any(u.op is Ops.REDUCE for u in nodes):
        return None
    long = [
        r
        for r in loops_of(store)
        if r.arg.kind is AxisType.LOOP and is_static(r) and extent(r) >= lanes
    ]
    free = FreeRanges()
    columns = next((r for r in long if free.stride(index_of(store), r) == 1), None)
    loads = [u for u in nodes if u.op is Ops.LOAD]
    if columns is None:
        return None
    strided = [u for u in loads if free.stride(index_of(u), columns) not in {0, 1}]
    for rows in long:
        if strided and all(free.stride(index_of(u), rows) == 1 for u in strided):
            return columns, rows, len(strided)
    return None
