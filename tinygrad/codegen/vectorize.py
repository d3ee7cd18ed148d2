"""Choose which loops of an ordinary nest become vector lanes, and apply that.

Before: plain loops. After: at most one VECTOR loop around every expression. Where neighbouring
outputs read neighbouring inputs, lanes are outputs; where a reduction runs along memory, lanes are
its terms, summed up in several vector accumulators. Small reductions are unrolled.
"""

from __future__ import annotations

from tinygrad.codegen.nest import Nest, points
from tinygrad.codegen.ranges import FreeRanges, extent, is_static
from tinygrad.codegen.split import Fit
from tinygrad.codegen.transpose import transpose_blocks
from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import ceildiv
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp

# the cost of a lane that is gathered or scattered, in lanes that are not
GATHER_COST = 1.0
MIN_STEPS = 4
UNROLLED_TERMS = 32
ACCUMULATORS = 4
# those of all outputs together
MAX_ACCUMULATORS = 16
# vectors of neighbouring outputs: long pieces of each row that is read
COLUMN_VECTORS = 8


def vectorize_nest(nest: Nest) -> None:
    """Give the nest its VECTOR and TILE loops."""
    if transpose_blocks(nest, lanes_of(nest)):
        return
    axes = _Choice(nest).best()
    unroll_small_reduces(nest, set(axes))
    for axis in axes:
        if axis.arg.kind is AxisType.REDUCE:
            split_terms(nest, axis)
        else:
            split_outputs(nest, axis)


def lanes_of(nest: Nest, axis: UOp | None = None) -> int:
    """How many of the widest values that the nest computes with, along `axis`, fit a vector."""
    free = FreeRanges()
    widest = max(
        (
            u.dtype.itemsize
            for u in nest.root.toposort()
            if u.op in GroupOp.Elementwise | {Ops.LOAD}
            and u.dtype is not dtypes.index
            and (axis is None or axis in free[u])
        ),
        default=4,
    )
    return max(1, nest.renderer.vector_bytes // max(widest, 2))


def unroll_small_reduces(nest: Nest, taken: set[UOp]) -> None:
    """Reductions over a handful of terms become straight code."""
    for u in list(nest.root.toposort()):
        if u.op is not Ops.REDUCE:
            continue
        own = [r for r in u.src[1:] if r not in taken]
        if len(own) < len(u.src) - 1 or not all(is_static(r) for r in own):
            continue
        if points(frozenset(own)) > UNROLLED_TERMS:
            continue
        for r in own:
            if r.arg.kind is AxisType.REDUCE:
                nest.set_kind(r, AxisType.TILE)


def split_terms(nest: Nest, axis: UOp) -> None:
    """Lanes are terms of a reduction: vector accumulators, several of them if there are many
    terms."""
    lanes, n = lanes_of(nest), extent(axis)
    while lanes > 2 and lanes >= 2 * n:
        lanes //= 2
    # outputs that share terms have accumulators of their own
    shared = {r for s in nest.stores for r in s.src[2:] if r.arg.kind is AxisType.TILE}
    most = max(1, min(ACCUMULATORS, MAX_ACCUMULATORS // points(frozenset(shared))))
    unroll = 1
    while unroll < most and n >= 4 * unroll * lanes:
        unroll *= 2
    while unroll > 1 and is_static(axis) and n % lanes == 0 and n % (unroll * lanes):
        unroll //= 2
    _, block = nest.split(axis, unroll * lanes, AxisType.REDUCE, Fit.MASKED)
    if unroll > 1:
        outer, _ = nest.split(block, lanes, AxisType.VECTOR, Fit.MASKED)
        assert outer is not None
        nest.set_kind(outer, AxisType.TILE)
    else:
        nest.set_kind(block, AxisType.VECTOR)
    nest.note(f"terms of loop {axis.arg.index} in {unroll} x {lanes} lanes")


def split_outputs(nest: Nest, axis: UOp) -> None:
    """Lanes are neighbouring outputs; reductions keep a few vectors of them."""
    most, n = lanes_of(nest, axis), extent(axis)
    free = FreeRanges()
    reduces = any(u.op is Ops.REDUCE and axis in free[u] for u in nest.root.toposort())
    lanes, vectors = most, 1
    while lanes > 2 and lanes >= 2 * n:
        lanes //= 2
    if reduces:
        wide = n >= 4 * COLUMN_VECTORS * most
        lanes, vectors = block_of_vectors(n, most, COLUMN_VECTORS if wide else ACCUMULATORS)
    can_repeat = is_static(axis) and n >= lanes * vectors and not nest.is_in_place()
    fit = Fit.OVERLAP if can_repeat else Fit.MASKED
    _, block = nest.split(axis, lanes * vectors, AxisType.LOOP, fit)
    if vectors > 1:
        outer, _ = nest.split(block, lanes, AxisType.VECTOR, Fit.MASKED)
        assert outer is not None
        nest.set_kind(outer, AxisType.TILE)
    else:
        nest.set_kind(block, AxisType.VECTOR)
    nest.note(f"outputs of loop {axis.arg.index} in {vectors} x {lanes} lanes")


def block_of_vectors(n: int, most_lanes: int, most_vectors: int) -> tuple[int, int]:
    """The lanes and number of vectors of a block, of which few make up `n` with little waste."""
    best, best_cost = (most_lanes, 1), float("inf")
    for lanes in (most_lanes, most_lanes // 2, most_lanes // 4):
        if lanes < 2 or (lanes >= 2 * n and lanes > 2):
            continue
        for vectors in range(most_vectors, 0, -1):
            if vectors > 1 and (vectors - 1) * lanes >= n:
                continue
            blocks = ceildiv(n, lanes * vectors)
            # narrow vectors are cheaper than wide ones, but not in proportion
            cost = blocks * vectors * (lanes / most_lanes + 0.2) + blocks * 0.5
            if cost < best_cost:
                best, best_cost = (lanes, vectors), cost
    return best


class _Choice:
    """The search for the set of loops whose lanes cost the least."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.free = FreeRanges()
        self.lanes = lanes_of(nest)
        nodes = nest.root.toposort()
        self.reduces = [u for u in nodes if u.op is Ops.REDUCE]
        self.priced = [
            u
            for u in nodes
            if u.op in {Ops.LOAD, Ops.STORE}
            or (u.op in GroupOp.ALU and u.dtype is not dtypes.index)
        ]
        self.axes_of = {u: self._axes(u) for u in self.priced}

    def _axes(self, u: UOp) -> frozenset[UOp]:
        if u.op is Ops.STORE:
            return self.free[u.src[0]] | self.free[u.src[1]] | frozenset(u.src[2:])
        return self.free[u]

    def best(self) -> list[UOp]:
        """The loops to make lanes of."""
        if self.lanes < 2:
            return []
        outputs = dict.fromkeys(
            r
            for store in self.nest.stores
            for r in store.src[2:]
            if r.arg.kind is AxisType.LOOP
            and extent(r) >= MIN_STEPS
            and self.writes_in_order(store, r)
        )
        own = [self.best_term_axis(u) for u in self.reduces]
        terms = list(dict.fromkeys(r for r in own if r is not None))
        candidates = [terms]
        candidates += [[a, *terms] for a in outputs]
        candidates += [[a] for a in outputs]
        tried = [self.without_conflicts(c) for c in candidates]
        return min([[], *tried], key=self.cost)

    def writes_in_order(self, store: UOp, axis: UOp) -> bool:
        """Whether neighbours along `axis` are written in equal distances: where each goes where an
        index says, lanes read and write one by one.
        """
        width = min(self.lanes, extent(axis))
        return self.free.lane_stride(store.src[0].src[1], axis, width) is not None

    def best_term_axis(self, reduce: UOp) -> UOp | None:
        """The loop of a reduction that reads memory in order."""
        below = reduce.src[0].toposort()
        loads = [u for u in below if u.op is Ops.LOAD]
        found, found_cost = None, float("inf")
        for r in reduce.src[1:]:
            if extent(r) < MIN_STEPS:
                continue
            cost = sum(
                points(self.free[u]) * self.lane_cost(u, r) for u in loads if r in self.free[u]
            )
            if cost <= found_cost:
                found, found_cost = r, cost
        return found

    def lane_cost(self, u: UOp, axis: UOp) -> float:
        """What a node costs at each point when `axis` is lanes, compared with scalar code."""
        width = min(self.lanes, extent(axis))
        if u.op not in {Ops.LOAD, Ops.STORE}:
            return 1 / width
        stride = self.free.lane_stride(u.src[0].src[1], axis, width)
        return 1 / width if stride in {0, 1} else GATHER_COST

    def without_conflicts(self, axes: list[UOp]) -> list[UOp]:
        """Drop loops that would meet an earlier one in some expression."""
        kept: list[UOp] = []
        for axis in axes:
            if axis in kept:
                continue
            meets = any(
                axis in self.axes_of[u] and not self.axes_of[u].isdisjoint(kept)
                for u in self.priced
            )
            if not meets and not self.crosses_reduce(axis, kept):
                kept.append(axis)
        return kept

    def crosses_reduce(self, axis: UOp, kept: list[UOp]) -> bool:
        """Whether a reduction's value depends on `axis` and on one that is kept."""
        inside = (self.free[u.src[0]].union(u.src[1:]) for u in self.reduces)
        return any(axis in loops and not loops.isdisjoint(kept) for loops in inside)

    def cost(self, axes: list[UOp]) -> float:
        """The price of all nodes."""
        total = 0.0
        for u in self.priced:
            mine = self.axes_of[u]
            scale = 1.0
            for axis in axes:
                if axis in mine:
                    scale = self.lane_cost(u, axis)
            total += points(mine) * scale
        return total


def value_dtype(nest: Nest) -> DType:
    """The type of what is stored."""
    return nest.stores[0].src[1].dtype
