"""Choose the register tile of a contraction with a cost model in cycles.

In: a `Contraction`. Out: a `Tiling`: the axis that becomes lanes, the number of lanes and vectors,
the rows of the register tile, and which panels and rows are packed into scratch memory. Several
sums of products have one register tile, whose cost is that of all of them.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tinygrad.codegen.analysis.accesses import index_of
from tinygrad.codegen.analysis.ranges import extent, is_static, loops_of
from tinygrad.codegen.optimize.contraction import Contraction, SumOfProducts
from tinygrad.codegen.optimize.nest import points
from tinygrad.codegen.optimize.staging import is_contiguous
from tinygrad.dtype import dtypes
from tinygrad.helpers import ceildiv
from tinygrad.renderer import Renderer, Target
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

# costs in cycles of a multiply-add of a full vector
LOAD_VECTOR = 1.0
# a vector of an operand with a large stride along the reduction
LOAD_SCATTERED = 16.0
# a vector of an operand that is read once, and a row of it in memory that is read next
LOAD_STREAMED, LOAD_ROW = 6.0, 8.0
# a line of the second-level cache
LOAD_LINE = 4.0
COPY_ROW = 1.5
# a scalar that an instruction of its own broadcasts, and one that a multiply-add broadcasts
LOAD_SCALAR, LOAD_OPERAND = 1.0, 0.5
# the shortest step of a register tile, in which each multiply-add waits for the one before, and
# the same where multiply-adds broadcast
MIN_STEP, MIN_STEP_OF_OPERANDS = 8.0, 4.0
# a scalar load of more rows in one set of the first-level cache than it has ways
LOAD_CONFLICTING = 3.0
CACHE_LINE, CACHE_SETS, CACHE_WAYS = 64, 64, 8
MASK_SCALAR = 0.7
MASK_VECTOR = 1.5
COPY_CONTIGUOUS = 0.2
COPY_STRIDED = 1.2
STORE_STRIDED = 6.0
LOOP_OVERHEAD = 0.6
MIN_WIDTH_COST = 0.5
SLOW_OPERATION = 12
SLOW_OPERATIONS = GroupOp.Elementary | {Ops.POW, Ops.SQRT, Ops.RECIPROCAL}
MIN_STAGED_OPERATIONS = 2
# maximum bytes of the staged rows of a tile, which stay in a core's caches
MAX_ROW_BYTES = 1 << 18
# about the longest block of a reduction whose rows are staged
MAX_BLOCK_STEPS = 1 << 10
MAX_ROWS = 14
# maximum rows for which a panel is not packed but streamed, and the steps of a block of the
# reduction, which are as many rows in memory
MAX_STREAMED_ROWS = 64
STREAMED_STEPS = 32
# about so many columns use rows that are staged once
STAGED_COLUMNS = 256
MAX_ROWS_OF_ONE_VECTOR = 25
# maximum elements of a panel: one of several, and one that covers the whole operand; beyond it the
# reduction is blocked, and about so many chunks of rows pack the panel again
MAX_PANEL = 1 << 16
MAX_SINGLE_PANEL = 1 << 17
REPACKED_CHUNKS = 4


@dataclass(frozen=True)
class Tiling:
    """A tile. `side` is the operand with lanes; `rows` are the tile factors of the other's axes;
    `staged` and `rows_staged` are the numbers of the sums whose panel or rows are packed; where
    `is_streamed`, panels are in place, in blocks of the reduction.
    """

    side: int
    axis: UOp
    lanes: int
    vectors: int
    rows: dict[UOp, int] = field(hash=False)
    staged: tuple[int, ...]
    rows_staged: tuple[int, ...]
    is_streamed: bool
    sums: int
    cost: float

    @property
    def width(self) -> int:
        """The columns of the tile."""
        return self.lanes * self.vectors

    def describe(self) -> str:
        """The tiling as text for DEBUG=3."""
        rows = " x ".join(f"{f} of loop {r.arg.index}" for r, f in self.rows.items() if f > 1)
        place = "panel packed" if self.staged else "panel in place"
        place = "panel streamed" if self.is_streamed else place
        place += ", rows staged" if self.rows_staged else ""
        place += f", {self.sums} sums" if self.sums > 1 else ""
        columns = f"{self.vectors} x {self.lanes} lanes of loop {self.axis.arg.index}"
        return f"tile {rows or '1'} by {columns}, {place}"


@dataclass(frozen=True)
class _RowTile:
    """Factors of the row axes, the rows of a tile, and the number of tiles; `conflicting` are the
    numbers of the sums whose rows share too few sets of the first-level cache.
    """

    factors: tuple[tuple[UOp, int], ...]
    rows: int
    tiles: int
    conflicting: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Panel:
    """The panel side of a sum with lanes along one of its axes."""

    extent: int
    others: int
    """The size of the iteration space of its other axes and of shared axes."""
    steps: int
    """`others` times the size of the reduction."""
    is_contiguous: bool
    is_scattered: bool
    is_simple: bool
    """Whether it is loaded without a mask and without arithmetic on its elements."""
    is_window: bool

    def is_staged(self, uses: int) -> bool:
        """Whether to pack panels that `uses` register tiles read."""
        return not self.is_contiguous or (self.is_scattered and uses > 1 and not self.is_window)

    def is_streamed(self, rows: int) -> bool:
        """Whether to read a panel in place, in short blocks of the reduction, for all `rows`."""
        is_few = rows <= MAX_STREAMED_ROWS
        return is_few and self.is_contiguous and self.is_scattered and self.is_simple


def choose_tiling(
    contraction: Contraction, renderer: Renderer, lanes: UOp | None = None
) -> Tiling | None:
    """The tiling of least cost, with lanes along one axis if given, or None if none applies."""
    best: Tiling | None = None
    for side in (0, 1):
        search = _Search(contraction, side, renderer)
        for axis in contraction.axes[side]:
            if not is_static(axis) or extent(axis) < 2 or axis in contraction.untiled:
                continue
            if lanes is not None and axis is not lanes:
                continue
            tiling = search.along(axis)
            if tiling is not None and (best is None or tiling.cost < best.cost):
                best = tiling
    return best


def _arithmetic(operand: UOp) -> int:
    """The operations per element of an operand, in units of simple ones."""
    return sum(
        SLOW_OPERATION if u.op in SLOW_OPERATIONS else 1
        for u in operand.toposort()
        if (u.op in GroupOp.ALU or u.op is Ops.CAST) and dtypes.is_float(u.dtype)
    )


def _is_masked(operand: UOp) -> bool:
    """Whether a load of the operand is masked."""
    return any(u.op is Ops.INDEX and len(u.src) > 2 for u in operand.toposort())


def _is_staged(operand: UOp) -> bool:
    """Whether an operand reads scratch memory, which masked loads fill."""
    return any(u.op is Ops.STORE for u in operand.toposort())


class _Operands:
    """The operands of one sum for one choice of the panel side, and what they cost."""

    def __init__(
        self, contraction: Contraction, which: SumOfProducts, side: int, target: Target
    ) -> None:
        self.contraction = contraction
        self.reduce = which.reduce
        self.reduction_size = which.reduction_size()
        self.panel, self.other = which.operands[side], which.operands[1 - side]
        self.itemsize = max(self.reduce.dtype.itemsize, self.panel.dtype.itemsize)
        # staged rows are computed once, in vectors, before they are broadcast
        is_costly = _arithmetic(self.other) >= MIN_STAGED_OPERATIONS
        self.rows_staged = is_costly or self.rows_are_far(side)
        in_order = is_contiguous(self.other, self.reduce.src[-1], contraction.free)
        self.row_copy = COPY_CONTIGUOUS if in_order else COPY_ROW
        # each step of rows in place is in another line
        in_lines = self.is_scattered(self.other) and not self.rows_staged
        self.row_load = LOAD_LINE if in_lines else 0.0
        masked = _is_masked(self.other) and not (self.rows_staged or _is_staged(self.other))
        load = LOAD_OPERAND if target.has_broadcast else LOAD_SCALAR
        self.scalar_load = load + (MASK_SCALAR if masked else 0)
        self.min_step = MIN_STEP_OF_OPERANDS if target.has_broadcast else MIN_STEP
        # of windows in scratch memory too, which the vectors straddle cache lines of
        self.panel_load = LOAD_SCATTERED if self.is_scattered(self.panel) else LOAD_VECTOR
        self.panel_mask = MASK_VECTOR if _is_masked(self.panel) else 0.0

    def panel_along(self, axis: UOp, others: int) -> _Panel:
        """The properties of the panel side with lanes along `axis`."""
        return _Panel(
            extent(axis),
            others,
            self.reduction_size * others,
            is_contiguous(self.panel, axis, self.contraction.free),
            self.is_scattered(self.panel),
            self.is_simple(),
            _is_staged(self.panel),
        )

    def packing_cost(self, panel: _Panel, columns: int) -> float:
        """The cycles of packing all panels of `columns` columns."""
        panels = panel.others * ceildiv(panel.extent, columns)
        # in a blocked reduction each chunk of rows packs the panel
        limit = MAX_PANEL if panels > 1 else MAX_SINGLE_PANEL
        is_blocked = self.reduction_size * columns > limit
        chunks = ceildiv(REPACKED_CHUNKS, panels) if is_blocked else 1
        copy = COPY_CONTIGUOUS if panel.is_contiguous else COPY_STRIDED
        return panel.steps * ceildiv(panel.extent, columns) * columns * copy * chunks

    def tile_cost(
        self, rows: int, vectors: int, width: float, *, staged: bool, conflicting: bool
    ) -> float:
        """The cycles of one reduction step of one register tile."""
        products = rows * vectors * width
        scalar_load = LOAD_CONFLICTING if conflicting else self.scalar_load
        panel_load = LOAD_VECTOR if staged else self.panel_load
        loads = rows * scalar_load + self.row_load + vectors * panel_load * width
        masks = 0.0 if staged else vectors * self.panel_mask
        return max(products + masks, loads + masks, self.min_step) + 0.1 * loads + LOOP_OVERHEAD

    def conflicts(self, factors: Sequence[tuple[UOp, int]]) -> bool:
        """Whether a set of the first-level cache has too few ways for the lines of all rows."""
        if self.rows_staged or math.prod(rows for _, rows in factors) <= CACHE_WAYS:
            return False
        free = self.contraction.free
        for load in [u for u in self.other.toposort() if u.op is Ops.LOAD]:
            strides = [free.stride(index_of(load), axis) or 0 for axis, _ in factors]
            steps = itertools.product(*(range(rows) for _, rows in factors))
            offsets = [sum(map(operator.mul, strides, step)) for step in steps]
            lines = {offset * load.dtype.itemsize // CACHE_LINE for offset in offsets}
            if max(Counter(line % CACHE_SETS for line in lines).values()) > CACHE_WAYS:
                return True
        return False

    def is_simple(self) -> bool:
        """Whether the panel side is loaded from memory, unmasked and without arithmetic."""
        return not any(
            (u.op in GroupOp.Elementwise and u.dtype is self.panel.dtype) or u.op is Ops.STORE
            for u in self.panel.toposort()
        ) and not _is_masked(self.panel)

    def rows_are_far(self, side: int) -> bool:
        """Whether the steps of a row are scattered in memory, beyond the second-level cache."""
        rows = points(self.contraction.axes[1 - side])
        is_large = rows * self.reduction_size * self.other.dtype.itemsize > MAX_ROW_BYTES
        return is_large and self.is_scattered(self.other) and not _is_staged(self.other)

    def is_scattered(self, operand: UOp) -> bool:
        """Whether an operand strides far along the reduction, which is slow in place."""
        free = self.contraction.free
        axis = self.reduce.src[-1]
        loads = [u for u in operand.toposort() if u.op is Ops.LOAD]
        strides = [free.stride(index_of(u), axis) for u in loads]
        return any(s is None or abs(s) * operand.dtype.itemsize >= 256 for s in strides)


def _tiles_of_two_axes(
    axes: list[UOp], max_rows: int, others: int
) -> Iterator[tuple[tuple[UOp, int], int]]:
    """Each of some axes with a number of its rows that a tile takes besides those of another axis,
    and the number of such tiles of `others` elements in all.
    """
    for axis in axes:
        size = extent(axis)
        for rows in range(2, min(max_rows, size) + 1):
            yield (axis, rows), ceildiv(size, rows) * (others // size)


class _Search:
    """The search for one choice of the panel side."""

    def __init__(self, contraction: Contraction, side: int, renderer: Renderer) -> None:
        self.contraction = contraction
        self.side = side
        target = renderer.target
        self.sums = [_Operands(contraction, x, side, target) for x in contraction.sums]
        self.row_axes = self.by_contiguity(
            [r for r in contraction.axes[1 - side] if is_static(r) and r not in contraction.untiled]
        )
        self.registers = target.vector_registers
        self.max_lanes = target.vector_bytes // max(x.itemsize for x in self.sums)
        self.rows_staged = tuple(i for i, x in enumerate(self.sums) if x.rows_staged)
        self.row_tiles = {v: self.tiles_for(v) for v in (1, 2, 3, 4)}

    def by_contiguity(self, axes: list[UOp]) -> list[UOp]:
        """The axes, those of small stride first."""
        free = self.contraction.free
        loads = [u for x in self.sums for u in x.other.toposort() if u.op is Ops.LOAD]

        def key(axis: UOp) -> int:
            strides = [free.stride(index_of(u), axis) for u in loads]
            return max((abs(s) if s is not None else 1 << 40 for s in strides), default=0)

        return sorted(axes, key=key)

    def tiles_for(self, vectors: int) -> list[_RowTile]:
        """Candidate register tiles that fit the registers together with `vectors` columns."""
        limit = MAX_ROWS_OF_ONE_VECTOR if vectors == 1 else MAX_ROWS
        max_rows = min(limit, (self.registers - 1 - vectors) // vectors)
        for i in self.rows_staged:
            row_bytes = (
                min(MAX_BLOCK_STEPS, self.sums[i].reduction_size)
                * self.sums[i].other.dtype.itemsize
            )
            max_rows = max(1, min(max_rows, MAX_ROW_BYTES // row_bytes))
        axes = self.row_axes[:4]
        total = math.prod(extent(r) for r in self.contraction.axes[1 - self.side])
        # rows of symbolic size stay loops
        candidates = [] if axes else [_RowTile((), 1, total)]
        for i, first in enumerate(axes):
            n = extent(first)
            for f in range(1, min(max_rows, n) + 1):
                if self.contraction.is_inner and n % f:
                    continue
                blocks = ceildiv(n, f)
                candidates.append(self.row_tile(((first, f),), blocks * (total // n)))
                if f > 1:
                    both = _tiles_of_two_axes(axes[i + 1 :], max_rows // f, total // n)
                    candidates += [
                        self.row_tile(((first, f), second), blocks * tiles)
                        for second, tiles in both
                    ]
        return candidates

    def row_tile(self, factors: tuple[tuple[UOp, int], ...], tiles: int) -> _RowTile:
        """The tile of some factors of row axes."""
        conflicting = tuple(i for i, x in enumerate(self.sums) if x.conflicts(factors))
        return _RowTile(factors, math.prod(rows for _, rows in factors), tiles, conflicting)

    def along(self, axis: UOp) -> Tiling | None:
        """The tiling of least cost with lanes along `axis`."""
        n = extent(axis)
        if self.max_lanes < 4 or (not self.row_axes and n < self.max_lanes):
            return None
        others = points(self.contraction.shared) * math.prod(
            extent(r) for r in self.contraction.axes[self.side] if r is not axis
        )
        panels = [x.panel_along(axis, others) for x in self.sums]
        store_cost = self.store_cost(axis)
        is_streamed = self.is_streamed(panels)
        best: Tiling | None = None
        for lanes, vectors in self.widths(n):
            for tile in self.row_tiles[vectors]:
                uses = 0 if is_streamed else tile.tiles
                staged = tuple(i for i, x in enumerate(panels) if uses and x.is_staged(uses))
                cost = store_cost + self.cost_of(
                    panels, tile, lanes, vectors, staged, is_streamed=is_streamed
                )
                if best is None or cost < best.cost:
                    rows = dict(tile.factors)
                    best = Tiling(
                        self.side,
                        axis,
                        lanes,
                        vectors,
                        rows,
                        staged,
                        () if is_streamed else self.rows_staged,
                        is_streamed,
                        len(self.sums),
                        cost,
                    )
        return best

    def is_streamed(self, panels: list[_Panel]) -> bool:
        """Whether all panels are streamed, for rows that need no arithmetic."""
        axes = self.contraction.axes[1 - self.side]
        may_block = not (self.contraction.is_inner or self.contraction.outer)
        return (
            may_block
            and all(map(is_static, axes))
            and all(panel.is_streamed(points(axes)) for panel in panels)
            and not any(_arithmetic(x.other) >= MIN_STAGED_OPERATIONS for x in self.sums)
        )

    def widths(self, size: int) -> Iterator[tuple[int, int]]:
        """The lanes and the number of vectors of a tile along an axis of `size` elements."""
        for lanes in (self.max_lanes, self.max_lanes // 2, self.max_lanes // 4):
            if lanes < 4 or (lanes > 4 and lanes >= 2 * size):
                continue
            for vectors in self.row_tiles:
                if vectors == 1 or (vectors - 1) * lanes < size:
                    yield lanes, vectors

    def cost_of(
        self,
        panels: list[_Panel],
        tile: _RowTile,
        lanes: int,
        vectors: int,
        staged: tuple[int, ...],
        *,
        is_streamed: bool,
    ) -> float:
        """The cycles of all sums in one register tile, without storing the outputs."""
        width = max(lanes / self.max_lanes, MIN_WIDTH_COST)
        cost = 0.0
        for i, (x, panel) in enumerate(zip(self.sums, panels, strict=True)):
            work = x.tile_cost(
                tile.rows,
                vectors,
                width,
                staged=is_streamed or i in staged,
                conflicting=i in tile.conflicting,
            )
            if is_streamed:
                work += (vectors * width * LOAD_STREAMED + LOAD_ROW) / tile.tiles
                work += 2 * vectors * width * tile.rows / STREAMED_STEPS
            cost += panel.steps * ceildiv(panel.extent, lanes * vectors) * tile.tiles * work
            if i in staged:
                cost += x.packing_cost(panel, lanes * vectors)
            if x.rows_staged and not is_streamed:
                chunks = ceildiv(panel.others * panel.extent, STAGED_COLUMNS)
                cost += x.reduction_size * tile.tiles * tile.rows * chunks * x.row_copy
        return cost

    def store_cost(self, axis: UOp) -> float:
        """The cycles of storing all outputs with lanes along `axis`."""
        outputs = points(loops_of(self.contraction.store))
        stride = self.contraction.free.stride(index_of(self.contraction.store), axis)
        return outputs * (1 / self.max_lanes if stride == 1 else STORE_STRIDED)
