"""Tile sums of products: matrix products, convolutions and the gradients of both.

Before: `out[...] = f(sum over terms of a * b)` where some outputs matter to `a` alone and some to
`b` alone. After: a micro-kernel. One axis of one operand (the panel side) becomes vector lanes; a
few steps of axes of the other (the row side) become a register tile, whose values are read one by
one and repeated in all lanes. The panel is staged in scratch memory; very long sums are cut in
blocks that add into scratch memory.

    for item in grid: for block of terms:
        panel[...] = ...
        for rows, for columns:
            for term: for row in tile: for vector: acc[row, vector] += a[row, term] * panel[term,
            vector]
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.codegen.blocking import accumulate_in_memory
from tinygrad.codegen.footprint import find_footprint
from tinygrad.codegen.nest import Nest, points
from tinygrad.codegen.ranges import FreeRanges, RangeFactory, extent, is_static
from tinygrad.codegen.skinny_matmul import share_terms
from tinygrad.codegen.split import Fit
from tinygrad.codegen.staging import is_contiguous, lanes_of, stage
from tinygrad.codegen.tiling import (
    LONGEST_WHOLE_PANEL,
    ROW_BYTES,
    Contraction,
    Tiling,
    choose_tiling,
)
from tinygrad.dtype import dtypes
from tinygrad.helpers import ceildiv
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

MIN_PRODUCTS = 1 << 12
ITEMS_PER_THREAD = 4
# bytes of vectors that are worth a tile of their own, and the side of a tile without them
NARROWEST_VECTOR = 16
SCALAR_TILE = 4
# bytes of a staged panel that leave room for the rest in a core's second-level cache
PANEL_BYTES = 1 << 18
ACCUMULATOR_BYTES = 1 << 18
# numbers of scratch arrays
PANEL, SUMS, ROWS, WINDOW = 0, 1, 2, 3


def tile_contraction(nest: Nest) -> bool:
    """Tile the nest if it is one sum of products; returns whether it was."""
    found = find_contraction(nest)
    if found is None:
        return False
    if nest.renderer.vector_bytes < NARROWEST_VECTOR:
        tile_scalars(nest, found)
        return True
    if share_terms(nest, found):
        return False
    kept = nest.root
    found = stage_windows(nest, found)
    tiling = choose_tiling(found, nest.renderer)
    if tiling is None:
        nest.root = kept
        return False
    _Application(nest, found, tiling).run()
    return True


def stage_windows(nest: Nest, found: Contraction) -> Contraction:
    """Read factors that windows slide over, with conditions, from scratch memory without them."""
    untiled: frozenset[UOp] = frozenset()
    for operand in found.operands:
        for load in [u for u in operand.toposort() if u.op is Ops.LOAD]:
            footprint = find_footprint(
                load, found.reduce.src[1:], found.products(), nest.factory, WINDOW
            )
            if footprint is not None and not untiled:
                nest.root = nest.root.substitute({load: footprint.load})
                nest.note("windows staged")
                untiled = footprint.outside
    if nest.stores[0] is found.store:
        return found
    again = find_contraction(nest)
    assert again is not None, "a sum of products stays one when a factor is read elsewhere"
    again.untiled = untiled
    return again


def find_contraction(nest: Nest) -> Contraction | None:
    """The one sum of products of a nest with one store, or None."""
    if len(nest.stores) != 1:
        return None
    store = nest.stores[0]
    own = store.src[2:]
    reduces = [u for u in store.toposort() if u.op is Ops.REDUCE]
    if len(reduces) != 1 or any(r.arg.kind is not AxisType.LOOP for r in own):
        return None
    reduce = reduces[0]
    product = reduce.src[0]
    while product.op is Ops.CAST:
        product = product.src[0]
    if reduce.arg is not Ops.ADD or product.op is not Ops.MUL:
        return None
    if not dtypes.is_float(product.dtype):
        return None
    free = FreeRanges()
    outputs = free[reduce]
    if not outputs.issubset(own) or points(outputs.union(reduce.src[1:])) < MIN_PRODUCTS:
        return None
    left, right = product.src
    only_left = [r for r in own if r in free[left] and r not in free[right]]
    only_right = [r for r in own if r in free[right] and r not in free[left]]
    if not only_left or not only_right:
        return None
    shared = [r for r in own if r not in only_left and r not in only_right]
    return Contraction(store, reduce, (left, right), (only_left, only_right), shared, free)


def tile_scalars(nest: Nest, found: Contraction) -> None:
    """Without vectors: each item of a large grid keeps a square of sums in registers."""
    fit = Fit.MASKED if nest.is_in_place() else Fit.OVERLAP
    tile: list[UOp] = []
    for axes in found.axes:
        longest = max((r for r in axes if is_static(r)), key=extent, default=None)
        if longest is not None and extent(longest) >= SCALAR_TILE:
            tile.append(nest.split(longest, SCALAR_TILE, AxisType.TILE, fit)[1])
    store = nest.stores[0]
    nest.reorder(store, [*[r for r in store.src[2:] if r not in tile], *tile])
    nest.note(f"tile {' x '.join([str(SCALAR_TILE)] * len(tile))} scalars")
    nest.grid_over(nest.prefix())


@dataclass
class _Loops:
    """The loops of a tiled nest by their part in it, outermost first."""

    shared: list[UOp]
    rows: list[UOp]
    columns: list[UOp]
    row_tile: list[UOp]
    vectors: list[UOp]
    lane: UOp

    def inner(self) -> list[UOp]:
        """The loops of the register tile."""
        return [*self.row_tile, *self.vectors, self.lane]


class _Application:
    """Carries a tiling out, one step after the other, on the nest's graph."""

    def __init__(self, nest: Nest, found: Contraction, tiling: Tiling) -> None:
        self.nest = nest
        self.found = found
        self.tiling = tiling
        self.factory: RangeFactory = nest.factory
        self.shared = found.shared
        self.terms_outside: list[UOp] = []

    @property
    def store(self) -> UOp:
        """The nest's store as it is now."""
        return self.nest.stores[0]

    def reduce(self) -> UOp:
        """The nest's reduction as it is now."""
        return next(u for u in self.store.toposort() if u.op is Ops.REDUCE)

    def operand(self, side: int) -> UOp:
        """One factor of the products, as it is now."""
        product = self.reduce().src[0]
        while product.op is Ops.CAST:
            product = product.src[0]
        return product.src[side]

    def run(self) -> None:
        """All steps."""
        tiling, nest = self.tiling, self.nest
        loops = self.split_loops()
        hoisted = tiling.staged and self.panel_is_hoisted(loops)
        if tiling.staged and not hoisted:
            self.block_terms(max(16, PANEL_BYTES // (self.width * self.itemsize)))
        grid = self.choose_grid(loops, hoisted)
        outside = [*loops.shared, *loops.rows, *loops.columns]
        kept = [r for r in outside if r not in grid]
        nest.reorder(self.store, [*grid, *kept, *loops.inner()])
        if tiling.staged:
            self.stage_panel(grid)
        if tiling.rows_staged:
            self.stage_rows(loops.row_tile)
        if self.terms_outside:
            self.move_sum_to_memory([*kept, *loops.inner()])
        nest.make_grid(grid)
        nest.note(tiling.describe())

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the panel."""
        return self.operand(self.tiling.side).dtype.itemsize

    @property
    def width(self) -> int:
        """Columns of the register tile."""
        return self.tiling.lanes * self.tiling.vectors

    def panel_is_hoisted(self, loops: _Loops) -> bool:
        """Whether one panel serves the whole grid: it is small and depends on no shared loop."""
        if loops.shared:
            return False
        steps = points(frozenset([*self.reduce().src[1:], *loops.columns]))
        # all rows go by one block of columns, which is not read again for another one
        most = PANEL_BYTES if loops.columns else 4 * LONGEST_WHOLE_PANEL
        return steps * self.width * self.itemsize <= most

    def split_loops(self) -> _Loops:
        """Split the lanes' axis and the tiled rows."""
        tiling, nest = self.tiling, self.nest
        repeat = not nest.is_in_place()
        rows: list[UOp] = []
        tile: list[UOp] = []
        for axis in self.found.axes[1 - tiling.side]:
            factor = tiling.rows.get(axis, 1)
            if factor == 1:
                rows.append(axis)
                continue
            fit = Fit.OVERLAP if repeat else Fit.MASKED
            outer, inner = nest.split(axis, factor, AxisType.TILE, fit)
            tile.append(inner)
            if outer is not None:
                rows.append(outer)
        width = tiling.lanes * tiling.vectors
        columns = [r for r in self.found.axes[tiling.side] if r is not tiling.axis]
        fits = repeat and extent(tiling.axis) >= width
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
        return _Loops(list(self.found.shared), rows, columns, tile, vectors, lane)

    def block_terms(self, most: int) -> None:
        """Cut the sum so that one block has at most `most` terms; innermost terms stay together."""
        inside = 1
        for term in reversed(self.reduce().src[1:]):
            if self.terms_outside:
                self.terms_outside.insert(0, term)
                continue
            if inside * extent(term) <= most:
                inside *= extent(term)
                continue
            factor = most // inside
            if factor < 2:
                self.terms_outside.insert(0, term)
                continue
            outer, _ = self.nest.split(term, factor, AxisType.REDUCE, Fit.BOUNDED)
            inside = most
            if outer is not None:
                self.terms_outside.insert(0, outer)

    def choose_grid(self, loops: _Loops, hoisted: bool) -> list[UOp]:
        """The loops that run in parallel, outermost first; rows may be cut for it."""
        if self.nest.work() < 4 * self.nest.renderer.parallel_work:
            return []
        threads = self.nest.renderer.threads
        wanted = threads * (2 if self.terms_outside else ITEMS_PER_THREAD)
        repeats_staging = self.tiling.staged and not hoisted
        columns = [] if hoisted else loops.columns
        rows = [] if repeats_staging else loops.rows
        grid: list[UOp] = []
        items = 1
        for axis in [*loops.shared, *rows, *columns]:
            if items >= wanted:
                break
            grid.append(axis)
            items *= extent(axis)
        if self.terms_outside:
            kept = [r for r in (*loops.rows, *loops.columns, *loops.inner()) if r not in grid]
            wanted = max(wanted, items * points(frozenset(kept)) * 4 // ACCUMULATOR_BYTES)
        if repeats_staging:
            items = self.cut_rows(loops, grid, items, wanted)
        return grid if items > 1 else []

    def cut_rows(self, loops: _Loops, grid: list[UOp], items: int, wanted: int) -> int:
        """Add parts of the rows to the grid, no more than needed: each part stages the panel
        again."""
        for axis in list(loops.rows):
            if items >= wanted or not is_static(axis):
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

    def stage_panel(self, grid: list[UOp]) -> None:
        """Read the panel side from scratch memory."""
        operand = self.operand(self.tiling.side)
        free = FreeRanges()[operand]
        terms = [r for r in self.reduce().src[1:] if r not in self.terms_outside]
        columns = [r for r in self.store.src[2:] if r not in grid and r not in self.shared]
        outside = [r for r in columns if r.arg.kind is AxisType.LOOP]
        inside = [r for r in columns if r.arg.kind is not AxisType.LOOP]
        axes = [r for r in (*outside, *terms, *inside) if r in free]
        staged = stage(operand, axes, self.factory, PANEL)
        self.nest.root = self.nest.root.substitute({operand: staged})

    def stage_rows(self, tile: list[UOp]) -> None:
        """Compute the row side of one register tile before its terms are summed."""
        operand = self.operand(1 - self.tiling.side)
        free = FreeRanges()[operand]
        terms = [r for r in self.reduce().src[1:] if r not in self.terms_outside]
        own = [r for r in terms if r in free]
        rows = [r for r in tile if r in free]
        if not own or points(frozenset(own + rows)) * operand.dtype.itemsize > ROW_BYTES:
            return
        if is_contiguous(operand, own[-1], FreeRanges()):
            # written as it is computed; rows start in different sets of the cache
            staged = stage(operand, [*rows, *own], self.factory, ROWS, lanes_of(operand))
        else:
            staged = stage(operand, [*own, *rows], self.factory, ROWS)
        self.nest.root = self.nest.root.substitute({operand: staged})

    def move_sum_to_memory(self, moved: list[UOp]) -> None:
        """Make the outer terms a loop that adds into scratch memory."""
        terms = points(frozenset(self.reduce().src[1:]).difference(self.terms_outside))
        store = accumulate_in_memory(
            self.store, self.reduce(), self.terms_outside, moved, self.factory, SUMS
        )
        self.nest.root = self.nest.root.substitute({self.store: store})
        self.nest.note(f"sum in blocks of {terms} terms")
