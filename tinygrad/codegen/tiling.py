"""Choose the register tile of a sum of products by estimating cycles.

In: a `Contraction`. Out: a `Tiling`: which axis of which operand becomes lanes, how many, which
rows of the other operand share a tile, and whether the panel side is staged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tinygrad.codegen.nest import points
from tinygrad.codegen.ranges import FreeRanges, extent, is_static
from tinygrad.codegen.staging import is_contiguous
from tinygrad.dtype import dtypes
from tinygrad.helpers import ceildiv
from tinygrad.renderer import Renderer
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

# rough cycles of one core, in units of a multiply-add of a full vector
LOAD_VECTOR = 1.0
LOAD_SCALAR = 0.5
GUARD_SCALAR = 0.7
GUARD_VECTOR = 1.5
COPY_CONTIGUOUS = 0.2
COPY_STRIDED = 1.2
STORE_STRIDED = 1.2
LOOP_OVERHEAD = 0.6
NARROWEST_COST = 0.5
LONG_OPERATION = 12
LONG_OPERATIONS = frozenset({Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.POW, Ops.SQRT, Ops.RECIPROCAL})
MIN_STAGED_OPERATIONS = 2
# bytes of the rows of a tile that stay in a core's caches until they are summed
ROW_BYTES = 1 << 18
MAX_ROWS = 14
MAX_ROWS_OF_ONE_VECTOR = 25
# elements of a panel that is copied block by block, and the parts that its rows are then cut in
LONG_PANEL = 1 << 16
# of one that is all that the panel side has
LONGEST_WHOLE_PANEL = 1 << 17
LONG_PARTS = 4


@dataclass
class Contraction:
    """A store of a sum of products. `axes[i]` are the output axes that only `operands[i]` depends
    on."""

    store: UOp
    reduce: UOp
    operands: tuple[UOp, UOp]
    axes: tuple[list[UOp], list[UOp]]
    shared: list[UOp]
    free: FreeRanges
    untiled: frozenset[UOp] = frozenset()
    """Output axes that must stay loops."""

    def terms(self) -> int:
        """Number of products in a sum."""
        return points(frozenset(self.reduce.src[1:]))

    def products(self) -> int:
        """Number of products in all sums."""
        return points(self.free[self.reduce].union(self.reduce.src[1:]))


@dataclass(frozen=True)
class Tiling:
    """The decision. `side` is the operand that gets lanes; `rows` are factors of the other one's
    axes."""

    side: int
    axis: UOp
    lanes: int
    vectors: int
    rows: dict[UOp, int] = field(hash=False)
    staged: bool
    rows_staged: bool
    cost: float

    def describe(self) -> str:
        """For people."""
        rows = " x ".join(f"{f} of loop {r.arg.index}" for r, f in self.rows.items() if f > 1)
        place = "staged" if self.staged else "direct"
        place += ", rows staged" if self.rows_staged else ""
        columns = f"{self.vectors} x {self.lanes} lanes of loop {self.axis.arg.index}"
        return f"tile {rows or '1'} by {columns}, {place}"


@dataclass(frozen=True)
class _RowTile:
    """Factors of the row axes: how many rows, and how many tiles cover all of them."""

    factors: tuple[tuple[UOp, int], ...]
    rows: int
    tiles: int


def choose_tiling(found: Contraction, renderer: Renderer) -> Tiling | None:
    """The cheapest tiling, or None if there is nothing to gain."""
    best: Tiling | None = None
    for side in (0, 1):
        search = _Search(found, side, renderer)
        for axis in found.axes[side]:
            if not is_static(axis) or extent(axis) < 2 or axis in found.untiled:
                continue
            tiling = search.along(axis)
            if tiling is not None and (best is None or tiling.cost < best.cost):
                best = tiling
    return best


def _arithmetic(operand: UOp) -> int:
    """How much is computed for each element of an operand, in simple operations."""
    return sum(
        LONG_OPERATION if u.op in LONG_OPERATIONS else 1
        for u in operand.toposort()
        if (u.op in GroupOp.ALU or u.op is Ops.CAST) and dtypes.is_float(u.dtype)
    )


def _is_guarded(operand: UOp) -> bool:
    """Whether reading the operand needs conditions."""
    return any(u.op is Ops.INDEX and len(u.src) > 2 for u in operand.toposort())


class _Search:
    """Estimates for one choice of the panel side."""

    def __init__(self, found: Contraction, side: int, renderer: Renderer) -> None:
        self.found = found
        self.side = side
        self.panel, self.other = found.operands[side], found.operands[1 - side]
        self.row_axes = self.by_contiguity(
            [r for r in found.axes[1 - side] if is_static(r) and r not in found.untiled]
        )
        self.registers = renderer.vector_registers
        self.most_lanes = renderer.vector_bytes // max(
            found.reduce.dtype.itemsize, self.panel.dtype.itemsize
        )
        # what the row side computes is done once, in vectors, before its values fill lanes
        self.rows_staged = _arithmetic(self.other) >= MIN_STAGED_OPERATIONS
        guarded = _is_guarded(self.other) and not self.rows_staged
        self.scalar_load = LOAD_SCALAR + (GUARD_SCALAR if guarded else 0)
        self.panel_guard = GUARD_VECTOR if _is_guarded(self.panel) else 0.0
        self.row_tiles = {v: self.tiles_for(v) for v in (1, 2, 3, 4)}

    def by_contiguity(self, axes: list[UOp]) -> list[UOp]:
        """The axes with the smallest strides first."""
        free = self.found.free
        loads = [u for u in self.other.toposort() if u.op is Ops.LOAD]

        def key(axis: UOp) -> int:
            strides = [free.stride(u.src[0].src[1], axis) for u in loads]
            return max((abs(s) if s is not None else 1 << 40 for s in strides), default=0)

        return sorted(axes, key=key)

    def tiles_for(self, vectors: int) -> list[_RowTile]:
        """Candidate register tiles that fit beside `vectors` columns."""
        limit = MAX_ROWS_OF_ONE_VECTOR if vectors == 1 else MAX_ROWS
        most = min(limit, (self.registers - 1 - vectors) // vectors)
        if self.rows_staged:
            row_bytes = self.found.terms() * self.other.dtype.itemsize
            most = max(1, min(most, ROW_BYTES // row_bytes))
        axes = self.row_axes[:4]
        total = math.prod(extent(r) for r in self.found.axes[1 - self.side])
        # rows of which only a bound is known stay loops
        found = [] if axes else [_RowTile((), 1, total)]
        for i, first in enumerate(axes):
            n = extent(first)
            for f in range(1, min(most, n) + 1):
                blocks = ceildiv(n, f)
                found.append(_RowTile(((first, f),), f, blocks * (total // n)))
                if f == 1 or f * 2 > most:
                    continue
                for second in axes[i + 1 :]:
                    m = extent(second)
                    for g in range(2, min(most // f, m) + 1):
                        tiles = blocks * ceildiv(m, g) * (total // (n * m))
                        found.append(_RowTile(((first, f), (second, g)), f * g, tiles))
        return found

    def along(self, axis: UOp) -> Tiling | None:
        """The best tiling with lanes along `axis`."""
        if self.most_lanes < 4:
            return None
        n = extent(axis)
        if not self.row_axes and n < self.most_lanes:
            return None
        found = self.found
        contiguous = is_contiguous(self.panel, axis, found.free)
        scattered = self.is_scattered()
        simple = self.is_simple()
        terms = found.terms()
        others = points(frozenset(found.shared)) * math.prod(
            extent(r) for r in found.axes[self.side] if r is not axis
        )
        outputs = points(frozenset(found.store.src[2:]))
        fixed = self.store_cost(axis, outputs)
        best: Tiling | None = None
        for lanes in (self.most_lanes, self.most_lanes // 2, self.most_lanes // 4):
            width = max(lanes / self.most_lanes, NARROWEST_COST)
            if lanes < 4 or (lanes > 4 and lanes >= 2 * n):
                continue
            for vectors, tiles in self.row_tiles.items():
                if vectors > 1 and (vectors - 1) * lanes >= n:
                    continue
                blocks = ceildiv(n, lanes * vectors)
                for tile in tiles:
                    staged = not contiguous or (scattered and tile.tiles >= (8 if simple else 2))
                    work = self.tile_cost(tile.rows, vectors, width, staged)
                    cost = terms * others * blocks * tile.tiles * work + fixed
                    if staged:
                        copy = COPY_CONTIGUOUS if contiguous else COPY_STRIDED
                        copied = terms * others * blocks * lanes * vectors
                        # a sum in blocks is cut by rows, and each part copies the panel
                        most = LONG_PANEL if others * blocks > 1 else LONGEST_WHOLE_PANEL
                        long = terms * lanes * vectors > most
                        cost += (
                            copied * copy * (ceildiv(LONG_PARTS, others * blocks) if long else 1)
                        )
                    if best is None or cost < best.cost:
                        best = Tiling(
                            self.side,
                            axis,
                            lanes,
                            vectors,
                            dict(tile.factors),
                            staged,
                            self.rows_staged,
                            cost,
                        )
        return best

    def tile_cost(self, rows: int, vectors: int, width: float, staged: bool) -> float:
        """Cycles of one term of one register tile."""
        products = rows * vectors * width
        # the chain of additions of one accumulator bounds small tiles
        latency = 4.0
        loads = rows * self.scalar_load + vectors * LOAD_VECTOR * width
        guards = 0.0 if staged else vectors * self.panel_guard
        return max(products + guards, loads + guards, latency) + 0.1 * loads + LOOP_OVERHEAD

    def is_simple(self) -> bool:
        """Whether the panel side is read as it is in memory."""
        return not any(
            u.op in GroupOp.Elementwise and u.dtype is self.panel.dtype
            for u in self.panel.toposort()
        )

    def is_scattered(self) -> bool:
        """Whether successive terms lie in different pages, so that reading them in place is
        slow."""
        free = self.found.free
        term = self.found.reduce.src[-1]
        loads = [u for u in self.panel.toposort() if u.op is Ops.LOAD]
        strides = [free.stride(u.src[0].src[1], term) for u in loads]
        return any(s is None or abs(s) * self.panel.dtype.itemsize >= 256 for s in strides)

    def store_cost(self, axis: UOp, outputs: int) -> float:
        """Cycles of writing all outputs with lanes along `axis`."""
        stride = self.found.free.stride(self.found.store.src[0].src[1], axis)
        return outputs * (1 / self.most_lanes if stride == 1 else STORE_STRIDED)
