"""Transpose in square tiles through shared memory.

Before: a store that is contiguous along one axis, of loads that are contiguous along another.
After: a block loads a tile into shared memory, with neighbouring threads along the axis of the
loads, and stores it with neighbouring threads along the axis of the store.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.codegen.analysis.ranges import FreeRanges, clone_ranges, substitute
from tinygrad.codegen.optimize.lanes.transpose import find_transpose
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.split import Fit
from tinygrad.codegen.optimize.staging import row_major_index
from tinygrad.codegen.optimize.threads.elementwise import BLOCK_THREADS
from tinygrad.codegen.optimize.threads.mapping import Block
from tinygrad.dtype import AddrSpace
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

TILE = 32
MIN_EXTENT = 16
# elements that pad each row of a tile, so that a column maps to different banks
ROW_PADDING = 1


@dataclass(frozen=True)
class Transpose:
    """Square tiles of `tile` elements a side, each by a block of `threads`."""

    threads: int
    tile: int

    def __str__(self) -> str:
        return f"transposed in tiles of {self.tile} x {self.tile} by {self.threads} threads"


def map_transpose(nest: Nest) -> bool:
    """Transpose the nest in tiles if it is one transposing store; returns whether it is."""
    found = find_transpose(nest, MIN_EXTENT)
    if found is None:
        return False
    option = nest.choose(transpose_options(nest))
    if option is None:
        return False
    nest.note(str(option))
    columns, rows, _ = found
    apply_transpose(nest, option, columns, rows)
    return True


def transpose_options(nest: Nest) -> list[Transpose]:
    """The mappings of a transposing nest, that of the heuristic first."""
    limit = nest.renderer.target.block_threads
    best = nest.threads or min(BLOCK_THREADS, limit)
    counts = [best] if nest.threads else [best, *(n for n in (128, 256, 512) if n <= limit)]
    return [Transpose(n, tile) for n in dict.fromkeys(counts) for tile in (TILE, TILE // 2)]


def apply_transpose(nest: Nest, option: Transpose, columns: UOp, rows: UOp) -> None:
    """Transform the nest, whose store is contiguous along `columns` and loads along `rows`."""
    row_outer, row = nest.split(rows, option.tile, AxisType.LOOP, Fit.MASKED)
    column_outer, column = nest.split(columns, option.tile, AxisType.LOOP, Fit.MASKED)
    store = nest.stores[0]
    outer = [r for r in (row_outer, column_outer) if r is not None]
    grid = [r for r in store.src[2:] if r not in (row, column, *outer)] + outer
    nest.reorder(store, [*grid, row, column])
    block = Block(nest, option.threads, option.threads)
    block.distribute(grid)
    free = FreeRanges()
    loads = [u for u in nest.root.toposort() if u.op is Ops.LOAD]
    strided = [u for u in loads if free.stride(u.src[0].src[1], column) not in {0, 1}]
    filled: list[list[UOp]] = []
    table: dict[UOp, UOp] = {}
    for load in strided:
        loops = clone_ranges([column, row], nest.factory)
        table[load] = _staged(nest, load, [column, row], loops)
        filled.append(loops)
    nest.root = nest.root.substitute(table)
    for loops in (*filled, [row, column]):
        block.share(loops, tile=True)


def _staged(nest: Nest, load: UOp, axes: list[UOp], loops: list[UOp]) -> UOp:
    """A load from shared memory that was filled in `loops`, of which the last is contiguous."""
    rows, columns = (int(r.src[0].arg) for r in axes)
    number = nest.factory.next
    nest.factory.next += 1
    pointer = load.dtype.ptr(rows * (columns + ROW_PADDING), AddrSpace.LOCAL)
    shared = UOp(Ops.DEFINE_LOCAL, pointer, (), number)
    value = substitute(load, dict(zip(axes, loops, strict=True)))
    fill = shared.index(row_major_index(loops, ROW_PADDING)).store(value, *loops)
    ready = UOp(Ops.AFTER, pointer, (shared, fill))
    return ready.index(row_major_index(axes, ROW_PADDING)).load(dtype=load.dtype)
