"""Tile a contraction: the micro-kernel of matrix products, convolutions and their gradients.

Before: a nest of plain loops that is one contraction. After: a micro-kernel. An axis of one operand
(the panel side) becomes vector lanes; a few steps of axes of the other (the row side) become a
register tile, whose elements are loaded one by one and broadcast to all lanes. The panel is packed
into scratch memory; a very long reduction is blocked, with accumulators in scratch memory. Rows
that are costly to compute, or scattered along the reduction, are staged for a chunk of columns; the
panel of a few rows is not packed but streamed, in short blocks of the reduction.

    for item in grid: for block of k:
        panel[...] = ...
        for rows: for columns:
            for k: for row in tile: for vector: acc[row, vector] += a[row, k] * panel[k, vector]

Several sums of products share the tile: the loop over k is repeated for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.codegen.analysis.ranges import FreeRanges, RangeFactory, extent, is_static, loops_of
from tinygrad.codegen.optimize.contraction import (
    Contraction,
    add_reductions_first,
    below_casts,
    find_contraction,
    reductions_of,
    total_of,
)
from tinygrad.codegen.optimize.nest import Nest, points
from tinygrad.codegen.optimize.product.blocking import accumulate_in_memory
from tinygrad.codegen.optimize.product.footprint import find_footprint
from tinygrad.codegen.optimize.product.phases import split_into_phases
from tinygrad.codegen.optimize.product.skinny_matmul import tile_skinny_product
from tinygrad.codegen.optimize.product.tiling import (
    MAX_ROW_BYTES,
    MAX_SINGLE_PANEL,
    STAGED_COLUMNS,
    STREAMED_STEPS,
    Tiling,
    choose_tiling,
)
from tinygrad.codegen.optimize.split import Fit
from tinygrad.codegen.optimize.staging import is_contiguous, packed_lanes, stage
from tinygrad.helpers import ceildiv
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

ITEMS_PER_THREAD = 4
# bytes of a vector, below which a tile is scalar, and the side of a scalar tile
MIN_VECTOR_BYTES = 16
SCALAR_TILE = 4
# upper bounds of a packed panel and of accumulators, which share a core's second-level cache, and
# of all panels of a work item
MAX_PANEL_BYTES = 1 << 18
MAX_ACCUMULATOR_BYTES = 1 << 18
MAX_ITEM_PANEL_BYTES = 1 << 20
# accumulators of a chunk of columns, which are next read in the next block of the reduction
MAX_STAGED_ACCUMULATOR_BYTES = 1 << 20
# rows that are staged together, and columns of a panel that are streamed together
STAGED_ROWS, STREAMED_COLUMNS = 24, 512
# steps of a block of a reduction whose windows are staged, if its inner loops allow it
MIN_WINDOW_STEPS, MAX_WINDOW_STEPS = 1 << 9, 1 << 12
# steps that are whole vectors, and blocks of quantised weights
WHOLE_STEPS = 32
# numbers of the scratch arrays, and how many each sum has
PANEL, ACCUMULATORS, ROWS, WINDOW = 0, 1, 2, 3
PER_SUM = 4


def tile_contraction(nest: Nest) -> bool:
    """Tile the nest if it is one contraction; returns whether it is tiled."""
    original, notes = nest.root, list(nest.applied)
    nest.root = UOp.sink(*map(add_reductions_first, nest.stores))
    split_into_phases(nest)
    contraction = find_contraction(nest)
    if contraction is None:
        nest.root, nest.applied = original, notes
        return False
    if nest.renderer.target.vector_bytes < MIN_VECTOR_BYTES:
        tile_scalars(nest, contraction)
        return True
    if tile_skinny_product(nest, contraction):
        return False
    if len(contraction.sums) == 1:
        contraction = stage_windows(nest, contraction)
    tiling = choose_tiling(contraction, nest.renderer)
    if tiling is None:
        nest.root, nest.applied = original, notes
        return False
    _MicroKernel(nest, contraction, tiling).build()
    return True


def tile_inner(nest: Nest, lanes: UOp | None) -> bool:
    """Tile a nest inside of other loops if it is a contraction, with lanes along a loop if one is
    given; returns whether it is tiled.
    """
    contraction = find_contraction(nest)
    tiling = None if contraction is None else choose_tiling(contraction, nest.renderer, lanes)
    if contraction is None or tiling is None:
        return False
    _MicroKernel(nest, contraction, tiling).build()
    return True


def stage_windows(nest: Nest, contraction: Contraction) -> Contraction:
    """Stage operands that sliding windows read under a condition; staged reads need none.

    A reduction that is too long for a panel is blocked first, to stage the windows of one block.
    """
    original = nest.root
    staged = stage_windows_of(nest, contraction)
    if staged is contraction:
        return contraction
    nest.note("windows staged")
    unblocked, nest.root = nest.root, original
    outer = split_long_reduction(nest, contraction.sums[0].reduce)
    if outer is not None:
        blocked = find_contraction(nest)
        assert blocked is not None, "a contraction stays one when its reduction is split"
        blocked.outer = (outer,)
        again = stage_windows_of(nest, blocked)
        if again is not blocked:
            return again
    nest.root = unblocked
    return staged


def split_long_reduction(nest: Nest, reduce: UOp) -> UOp | None:
    """Split the outermost loop of a reduction that is too long for the narrowest panel into equal
    blocks; returns the loop over these, None for any other reduction.
    """
    axis, *others = loops_of(reduce)
    inside = points(others)
    max_steps = MAX_PANEL_BYTES // nest.renderer.target.vector_bytes
    if not is_static(axis) or extent(axis) * inside <= max_steps:
        return None
    upper = min(max(1, MAX_WINDOW_STEPS // inside), extent(axis))
    factor = next(n for n in range(upper, 0, -1) if extent(axis) % n == 0)
    if factor * inside < MIN_WINDOW_STEPS:
        return None
    return axis if factor == 1 else nest.split(axis, factor, AxisType.REDUCE, Fit.BOUNDED)[0]


def stage_windows_of(nest: Nest, contraction: Contraction) -> Contraction:
    """The contraction with the windows of a block staged, or as it was if none are."""
    untiled: frozenset[UOp] = frozenset()
    loops = loops_of(contraction.sums[0].reduce)
    reduction = tuple(r for r in loops if r not in contraction.outer)
    for operand in contraction.sums[0].operands:
        for load in [u for u in operand.toposort() if u.op is Ops.LOAD]:
            footprint = find_footprint(
                load, reduction, contraction.multiply_adds(), nest.factory, WINDOW
            )
            if footprint is not None and not untiled:
                nest.root = nest.root.substitute({load: footprint.load})
                untiled = footprint.outside
    if nest.stores[0] is contraction.store:
        return contraction
    again = find_contraction(nest)
    assert again is not None, "a contraction stays one when an operand is staged"
    again.untiled, again.outer = untiled, contraction.outer
    return again


def block_steps(size: int, limit: int) -> int:
    """The steps of a block of a loop, at most `limit`: a divisor of its size if one is at least
    half of the limit, since the size of a last, shorter block would be symbolic.

    A block is whole vectors and blocks of quantised weights if it can be.
    """
    limit = min(limit, size)
    fair = range(limit, limit // 2, -1)
    divisors = [n for n in fair if size % n == 0]
    whole = [n for n in divisors or fair if n % WHOLE_STEPS == 0]
    return next(iter(whole or divisors or fair), 1)


def tile_scalars(nest: Nest, contraction: Contraction) -> None:
    """Tile for a target without vectors: a work item holds a square of scalar accumulators."""
    fit = Fit.MASKED if nest.is_in_place() else Fit.OVERLAP
    tile: list[UOp] = []
    for axes in contraction.axes:
        longest = max((r for r in axes if is_static(r)), key=extent, default=None)
        if longest is not None and extent(longest) >= SCALAR_TILE:
            tile.append(nest.split(longest, SCALAR_TILE, AxisType.TILE, fit)[1])
    store = nest.stores[0]
    nest.reorder(store, [*[r for r in loops_of(store) if r not in tile], *tile])
    nest.note(f"scalar tile {' x '.join([str(SCALAR_TILE)] * len(tile))}")
    nest.grid_over(nest.prefix())


@dataclass
class _Loops:
    """The loops of a tiled nest by their role, each outermost first."""

    shared: list[UOp]
    rows: list[UOp]
    columns: list[UOp]
    row_tile: list[UOp]
    vectors: list[UOp]
    lane: UOp

    def inner(self) -> list[UOp]:
        """The loops of the register tile."""
        return [*self.row_tile, *self.vectors, self.lane]


class _MicroKernel:
    """The nest of a contraction while a tiling is applied to it, step by step."""

    def __init__(self, nest: Nest, contraction: Contraction, tiling: Tiling) -> None:
        self.nest = nest
        self.contraction = contraction
        self.tiling = tiling
        self.factory: RangeFactory = nest.factory
        self.shared = contraction.shared
        self.may_overlap = not nest.is_in_place()
        # the loops of each sum that are outside of the tiles
        self.outer_reduction = [list(contraction.outer) for _ in contraction.sums]

    @property
    def store(self) -> UOp:
        """The current store of the nest."""
        return self.nest.stores[0]

    def reduce(self, number: int) -> UOp:
        """The current reduction of a sum."""
        return reductions_of(self.store)[number]

    def operand(self, number: int, side: int) -> UOp:
        """A current operand of a sum."""
        found = self.contraction.sums[number]
        is_swapped = below_casts(found.reduce.src[0]).src != found.operands
        return below_casts(self.reduce(number).src[0]).src[side != is_swapped]

    def scratch(self, array: int, number: int) -> int:
        """The number of a scratch array of a sum."""
        return self.nest.scratch + PER_SUM * number + array

    def build(self) -> None:
        """Apply all steps."""
        tiling, nest = self.tiling, self.nest
        loops = self.split_loops()
        hoisted = bool(tiling.staged) and self.panels_are_hoisted(loops)
        kept = [] if hoisted else self.keep_columns(loops)
        if tiling.is_streamed:
            for i in range(tiling.sums):
                self.block_reduction(i, STREAMED_STEPS)
        elif not hoisted:
            for i in {*tiling.staged, *tiling.rows_staged}:
                self.block_reduction(i, max(16, self.max_steps(i, loops, kept)))
        row_block = self.keep_rows(loops)
        grid = self.choose_grid(loops, hoisted, [*kept, *row_block])
        tiles = [*loops.rows, *loops.columns]
        if tiling.is_streamed:
            # all rows while the columns of a tile are in the first-level cache
            tiles = [*loops.columns, *loops.rows]
        outer = [*loops.shared, *tiles]
        kept = [r for r in outer if r not in grid]
        nest.reorder(self.store, [*grid, *kept, *loops.inner()])
        for i in tiling.staged:
            self.pack_panel(i, grid)
        for i in tiling.rows_staged:
            self.stage_rows(i, [*row_block, *loops.row_tile])
        if any(self.outer_reduction):
            self.accumulate_in_scratch([*kept, *loops.inner()])
        nest.make_grid(grid)
        nest.note(tiling.describe())

    def row_bytes(self, number: int) -> int:
        """The bytes of a row of the panel of a sum: the columns of the register tile."""
        itemsize = self.operand(number, self.tiling.side).dtype.itemsize
        return self.tiling.width * itemsize

    def max_steps(self, number: int, loops: _Loops, kept: list[UOp]) -> int:
        """The steps of a block of a reduction for which the panel and the staged rows are small."""
        limits: list[int] = []
        if number in self.tiling.staged:
            limits.append(MAX_PANEL_BYTES // (self.row_bytes(number) * points(kept)))
        if number in self.tiling.rows_staged:
            limits.append(MAX_ROW_BYTES // self.column_bytes(number, loops))
        return min(limits)

    def column_bytes(self, number: int, loops: _Loops) -> int:
        """The bytes of a column of the staged rows of a register tile."""
        operand = self.operand(number, 1 - self.tiling.side)
        return points(loops.row_tile) * operand.dtype.itemsize

    def panels_are_hoisted(self, loops: _Loops) -> bool:
        """Whether one panel of each sum serves the whole grid: they are small and independent of
        shared loops.
        """
        if loops.shared or self.contraction.outer:
            return False
        nbytes = sum(
            points([*loops_of(self.reduce(i)), *loops.columns]) * self.row_bytes(i)
            for i in self.tiling.staged
        )
        # without a loop over columns, the panel is read once
        return nbytes <= (MAX_PANEL_BYTES if loops.columns else 4 * MAX_SINGLE_PANEL)

    def split_loops(self) -> _Loops:
        """Split the axis of the lanes and the tiled rows."""
        tiling, nest = self.tiling, self.nest
        rows: list[UOp] = []
        tile: list[UOp] = []
        for axis in self.contraction.axes[1 - tiling.side]:
            factor = tiling.rows.get(axis, 1)
            if factor == 1:
                rows.append(axis)
                continue
            fit = Fit.OVERLAP if self.may_overlap else Fit.MASKED
            outer, inner = nest.split(axis, factor, AxisType.TILE, fit)
            tile.append(inner)
            if outer is not None:
                rows.append(outer)
        width = tiling.width
        columns = [r for r in self.contraction.axes[tiling.side] if r is not tiling.axis]
        fits = self.may_overlap and extent(tiling.axis) >= width
        fit = Fit.OVERLAP if fits else Fit.MASKED
        block, inner = nest.split(tiling.axis, width, AxisType.TILE, fit)
        if block is not None:
            columns.append(block)
        vectors: list[UOp] = []
        if tiling.vectors > 1:
            outer, lane = nest.split(inner, tiling.lanes, AxisType.VECTOR, Fit.MASKED)
            assert outer is not None
            vectors = [outer]
        else:
            lane = nest.set_kind(inner, AxisType.VECTOR)
        return _Loops(list(self.contraction.shared), rows, columns, tile, vectors, lane)

    def stages_blocks(self, loops: list[UOp]) -> bool:
        """Whether rows are staged once for several steps of the innermost of some loops."""
        is_staged = bool(self.tiling.rows_staged) and not self.contraction.is_inner
        return is_staged and bool(loops) and is_static(loops[-1])

    def keep_columns(self, loops: _Loops) -> list[UOp]:
        """Split the columns into chunks, for each of which rows are staged once, or which are
        streamed together; returns the loop inside of a chunk.
        """
        limit = STAGED_COLUMNS // self.tiling.width
        if self.tiling.is_streamed and loops.columns:
            share = extent(loops.columns[-1]) // self.nest.renderer.target.threads
            limit = min(STREAMED_COLUMNS // self.tiling.width, share)
        elif not self.stages_blocks(loops.columns):
            return []
        if not loops.columns or not is_static(loops.columns[-1]):
            return []
        axis = loops.columns.pop()
        chunk = block_steps(extent(axis), max(1, limit))
        outer, inner = self.nest.split(axis, chunk, AxisType.LOOP, Fit.BOUNDED)
        loops.columns += [inner] if outer is None else [outer, inner]
        return [inner]

    def keep_rows(self, loops: _Loops) -> list[UOp]:
        """Split the rows into blocks of some tiles that are staged together; returns the loop over
        the tiles of a block.
        """
        if not self.stages_blocks(loops.rows):
            return []
        tile_bytes = max(
            self.column_bytes(i, loops) * points(self.inner_reduction(i))
            for i in self.tiling.rows_staged
        )
        limit = min(STAGED_ROWS // points(loops.row_tile), MAX_ROW_BYTES // tile_bytes)
        size = extent(loops.rows[-1])
        # a last block of less tiles would overlap with the one before
        tiles = min(range(min(limit, size), limit // 2, -1), key=lambda n: -size % n, default=1)
        if tiles < 2 or (size % tiles and not self.may_overlap):
            return []
        axis = loops.rows.pop()
        outer, inner = self.nest.split(axis, tiles, AxisType.LOOP, Fit.OVERLAP)
        loops.rows += [inner] if outer is None else [outer, inner]
        return [inner]

    def block_reduction(self, number: int, max_steps: int) -> None:
        """Split a reduction into blocks of at most `max_steps`, innermost axes first."""
        inside = 1
        outside: list[UOp] = []
        for axis in reversed(self.inner_reduction(number)):
            if outside:
                outside.insert(0, axis)
                continue
            if inside * extent(axis) <= max_steps:
                inside *= extent(axis)
                continue
            limit = max_steps // inside
            if limit < 2:
                outside.insert(0, axis)
                continue
            factor = block_steps(extent(axis), limit) if is_static(axis) else limit
            outer, _ = self.nest.split(axis, factor, AxisType.REDUCE, Fit.BOUNDED)
            inside = max_steps
            if outer is not None:
                outside.insert(0, outer)
        self.outer_reduction[number] += outside

    def choose_grid(self, loops: _Loops, hoisted: bool, inside: list[UOp]) -> list[UOp]:
        """The loops of the grid, outermost first, without the loops `inside` of a work item; rows
        may be split to get enough work items.
        """
        if (
            self.contraction.is_inner
            or self.nest.work() < 4 * self.nest.renderer.target.parallel_work
        ):
            return []
        threads = self.nest.renderer.target.threads
        blocked = any(self.outer_reduction)
        wanted = threads * (2 if blocked else ITEMS_PER_THREAD)
        repacks = (self.tiling.is_streamed or bool(self.tiling.staged)) and not hoisted
        columns = [] if hoisted else [r for r in loops.columns if r not in inside]
        rows = [] if repacks else [r for r in loops.rows if r not in inside]
        grid: list[UOp] = []
        items = 1
        for axis in [*loops.shared, *rows, *columns]:
            if items >= wanted and self.panels_fit([r for r in loops.columns if r not in grid]):
                break
            grid.append(axis)
            items *= extent(axis)
        if blocked:
            kept = [r for r in (*loops.rows, *loops.columns, *loops.inner()) if r not in grid]
            limit = MAX_STAGED_ACCUMULATOR_BYTES if inside else MAX_ACCUMULATOR_BYTES
            wanted = max(wanted, items * points(kept) * 4 // limit)
        if repacks:
            items = self.split_rows(loops, grid, items, wanted, inside)
        return grid if items > 1 else []

    def panels_fit(self, columns: list[UOp]) -> bool:
        """Whether the panels of all steps of some columns are small enough for a work item."""
        nbytes = sum(
            points([*self.inner_reduction(i), *columns]) * self.row_bytes(i)
            for i in self.tiling.staged
        )
        return nbytes <= MAX_ITEM_PANEL_BYTES

    def split_rows(
        self, loops: _Loops, grid: list[UOp], items: int, wanted: int, inside: list[UOp]
    ) -> int:
        """Add chunks of the rows to the grid, no more than needed: each chunk packs the panel."""
        for axis in list(loops.rows):
            if items >= wanted or axis in inside or not is_static(axis):
                break
            chunk = ceildiv(extent(axis), min(extent(axis), ceildiv(wanted, items)))
            items *= ceildiv(extent(axis), chunk)
            if chunk == 1:
                grid.append(axis)
                continue
            outer, inner = self.nest.split(axis, chunk, AxisType.LOOP, Fit.BOUNDED)
            loops.rows[loops.rows.index(axis)] = inner
            if outer is not None:
                grid.append(outer)
        return items

    def pack_panel(self, number: int, grid: list[UOp]) -> None:
        """Pack the panel of a sum into scratch memory."""
        operand = self.operand(number, self.tiling.side)
        free = FreeRanges()[operand]
        reduction = self.inner_reduction(number)
        columns = [r for r in loops_of(self.store) if r not in grid and r not in self.shared]
        outer = [r for r in columns if r.arg.kind is AxisType.LOOP]
        inner = [r for r in columns if r.arg.kind is not AxisType.LOOP]
        axes = [r for r in (*outer, *reduction, *inner) if r in free]
        staged = stage(operand, axes, self.factory, self.scratch(PANEL, number))
        self.nest.root = self.nest.root.substitute({operand: staged})

    def inner_reduction(self, number: int) -> list[UOp]:
        """The loops of a sum that are inside of the tiles."""
        outside = self.outer_reduction[number]
        return [r for r in loops_of(self.reduce(number)) if r not in outside]

    def stage_rows(self, number: int, tile: list[UOp]) -> None:
        """Stage the rows of one register tile, computed once, before they are reduced."""
        operand = self.operand(number, 1 - self.tiling.side)
        free = FreeRanges()[operand]
        own = [r for r in self.inner_reduction(number) if r in free]
        rows = [r for r in tile if r in free]
        if not own or points(own + rows) * operand.dtype.itemsize > MAX_ROW_BYTES:
            return
        array = self.scratch(ROWS, number)
        if is_contiguous(operand, own[-1], FreeRanges()):
            # stored in the order of computation, padded so that rows map to different cache sets
            staged = stage(operand, [*rows, *own], self.factory, array, packed_lanes(operand))
        else:
            block = [r for r in rows if r.arg.kind is AxisType.LOOP]
            inner = [r for r in rows if r.arg.kind is not AxisType.LOOP]
            order = [*own, *block, *inner]
            staged = stage(operand, [*block, *own, *inner], self.factory, array, order=order)
        self.nest.root = self.nest.root.substitute({operand: staged})

    def accumulate_in_scratch(self, outputs: list[UOp]) -> None:
        """Move the outer reduction loops outside of `outputs`, with accumulators in memory."""
        reduces = reductions_of(self.store)
        total = total_of(reduces, self.store)
        assert total is not None, "the sums stay added"
        loops = list(zip(reduces, self.outer_reduction, strict=True))
        number = self.nest.scratch + ACCUMULATORS
        store = accumulate_in_memory(self.store, total, loops, outputs, self.factory, number)
        self.nest.root = self.nest.root.substitute({self.store: store})
        blocks = [points(frozenset(loops_of(x)).difference(out)) for x, out in loops if out]
        self.nest.note(f"reduction in blocks of {' and '.join(map(str, blocks))}")
