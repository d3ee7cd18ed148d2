"""Vectorize an ordinary nest: choose the loops that become lanes, and split them.

Before: plain loops. After: at most one VECTOR loop around every expression. Where neighbouring
outputs read contiguous inputs, lanes are outputs; where a reduction reads contiguous inputs, lanes
are steps of the reduction, with several vector accumulators. Small reductions are unrolled.
"""

from __future__ import annotations

from collections.abc import Container

from tinygrad.codegen.analysis.accesses import index_of
from tinygrad.codegen.analysis.affine_index import affine
from tinygrad.codegen.analysis.ranges import FreeRanges, extent, is_static, loops_of
from tinygrad.codegen.optimize.lanes.block_values import stage_block_values
from tinygrad.codegen.optimize.lanes.row_values import keep_row_values
from tinygrad.codegen.optimize.lanes.transpose import transpose_blocks
from tinygrad.codegen.optimize.nest import Nest, points
from tinygrad.codegen.optimize.split import Fit
from tinygrad.dtype import dtypes
from tinygrad.helpers import ceildiv
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp

# the cost of a gathered or scattered lane, compared with a scalar access
GATHER_COST = 1.0
MIN_STEPS = 4
# maximum steps of an unrolled reduction, and maximum operations of all steps on one vector: an
# output may have several, and LLVM takes about 0.1 ms for each instruction
MAX_UNROLLED_STEPS, MAX_UNROLLED_OPERATIONS = 32, 256
# maximum vector accumulators of one output, and of all outputs of a tile
MAX_ACCUMULATORS = 4
MAX_TILE_ACCUMULATORS = 16
# maximum vectors of neighbouring outputs of a column reduction, for long contiguous reads
MAX_COLUMN_VECTORS = 8
# the same two bounds where an elementary function is reduced: two of these fill the pipeline, and
# each is tens of instructions to compile
MAX_ELEMENTARY_STEPS = 4
MAX_ELEMENTARY_VECTORS = 2
# maximum steps of an unrolled reduction that gathers: of several vectors, each step has so many
# gathers, which a CPU without an instruction for them loads by a branch for each lane
MAX_GATHERED_STEPS = 4


def vectorize_nest(nest: Nest) -> None:
    """Transpose in blocks or vectorize the nest."""
    if transpose_blocks(nest, max_lanes(nest)):
        return
    axes = _AxisSearch(nest).best()
    keep_row_values(nest, axes)
    unroll_small_reduces(nest, set(axes))
    for axis in axes:
        if axis.arg.kind is AxisType.REDUCE:
            vectorize_reduction(nest, axis)
        else:
            vectorize_outputs(nest, axis)


def max_lanes(nest: Nest, axis: UOp | None = None) -> int:
    """The lanes of a vector of the widest dtype that the nest computes with, along `axis`."""
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
    return max(1, nest.renderer.target.vector_bytes // max(widest, 2))


def unroll_small_reduces(nest: Nest, taken: set[UOp]) -> None:
    """Unroll reductions of few steps over axes that are not `taken`, which become lanes."""
    free = FreeRanges()
    for u in list(nest.root.toposort()):
        if u.op is not Ops.REDUCE:
            continue
        loops = loops_of(u)
        if not taken.isdisjoint(loops) or not all(map(is_static, loops)):
            continue
        max_steps = MAX_ELEMENTARY_STEPS if has_elementary(u) else MAX_UNROLLED_STEPS
        if any(_may_gather(x, taken, free) for x in u.toposort() if x.op is Ops.LOAD):
            max_steps = min(max_steps, MAX_GATHERED_STEPS)
        operations = sum(
            x.op in GroupOp.Elementwise and x.dtype is not dtypes.index for x in u.src[0].toposort()
        )
        if points(loops) > max_steps or points(loops) * operations > MAX_UNROLLED_OPERATIONS:
            continue
        for r in loops:
            if r.arg.kind is AxisType.REDUCE:
                nest.set_kind(r, AxisType.TILE)


def _may_gather(load: UOp, axes: set[UOp], free: FreeRanges) -> bool:
    """Whether the index of a load has a quotient or remainder of an axis: the distances of lanes
    are constant only where the vectors of a block start at certain steps.
    """
    terms = affine(index_of(load)).terms
    return any(axis in free[x] for axis in axes for x in terms if x is not axis)


def has_elementary(value: UOp) -> bool:
    """Whether a value is computed by an elementary function, such as an exponential."""
    return any(u.op in GroupOp.Elementary for u in value.toposort())


def vectorize_reduction(nest: Nest, axis: UOp) -> None:
    """Make lanes of a reduction axis, with several vector accumulators if it is long."""
    stage_block_values(nest, axis)
    lanes, n = max_lanes(nest), extent(axis)
    while lanes > 2 and lanes >= 2 * n:
        lanes //= 2
    # every output of a register tile has accumulators of its own
    shared = {r for s in nest.stores for r in loops_of(s) if r.arg.kind is AxisType.TILE}
    reductions = sum(u.op is Ops.REDUCE and axis in loops_of(u) for u in nest.root.toposort())
    sums = max(1, reductions) * points(shared)
    max_unroll = max(1, min(MAX_ACCUMULATORS, MAX_TILE_ACCUMULATORS // sums))
    unroll = 1
    while unroll < max_unroll and n >= 4 * unroll * lanes:
        unroll *= 2
    while unroll > 1 and is_static(axis) and n % lanes == 0 and n % (unroll * lanes):
        unroll //= 2
    if is_static(axis) and n % lanes and ceildiv(n, lanes) <= max_unroll:
        # without a loop, the mask of the last vector is a constant, and the others have none
        unroll = ceildiv(n, lanes)
    _, block = nest.split(axis, unroll * lanes, AxisType.REDUCE, Fit.MASKED)
    split_into_vectors(nest, block, lanes)
    nest.note(f"reduction loop {axis.arg.index} in {unroll} x {lanes} lanes")


def vectorize_outputs(nest: Nest, axis: UOp) -> None:
    """Make lanes of an output axis; reductions accumulate several vectors of outputs."""
    widest, n = max_lanes(nest, axis), extent(axis)
    free = FreeRanges()
    reduced = [u.src[0] for u in nest.root.toposort() if u.op is Ops.REDUCE and axis in free[u]]
    lanes, vectors = widest, 1
    while lanes > 2 and lanes >= 2 * n:
        lanes //= 2
    if reduced:
        is_long = n >= 4 * MAX_COLUMN_VECTORS * widest
        max_vectors = MAX_COLUMN_VECTORS if is_long else MAX_ACCUMULATORS
        if any(map(has_elementary, reduced)):
            max_vectors = MAX_ELEMENTARY_VECTORS
        lanes, vectors = block_of_vectors(n, widest, max_vectors)
    may_overlap = is_static(axis) and n >= lanes * vectors and not nest.is_in_place()
    fit = Fit.OVERLAP if may_overlap else Fit.MASKED
    _, block = nest.split(axis, lanes * vectors, AxisType.LOOP, fit)
    split_into_vectors(nest, block, lanes)
    nest.note(f"output loop {axis.arg.index} in {vectors} x {lanes} lanes")


def split_into_vectors(nest: Nest, block: UOp, lanes: int) -> None:
    """Make a block of steps vector lanes, with several vectors side by side if it is longer."""
    if extent(block) == lanes:
        nest.set_kind(block, AxisType.VECTOR)
        return
    vectors, _ = nest.split(block, lanes, AxisType.VECTOR, Fit.MASKED)
    assert vectors is not None, "a block has more steps than lanes"
    nest.set_kind(vectors, AxisType.TILE)


def block_of_vectors(n: int, widest: int, max_vectors: int) -> tuple[int, int]:
    """The lanes and number of vectors of a block that covers `n` outputs at least cost."""
    best, best_cost = (widest, 1), float("inf")
    for lanes in (widest, widest // 2, widest // 4):
        if lanes < 2 or (lanes >= 2 * n and lanes > 2):
            continue
        for vectors in range(max_vectors, 0, -1):
            if vectors > 1 and (vectors - 1) * lanes >= n:
                continue
            blocks = ceildiv(n, lanes * vectors)
            # a narrow vector costs less than a wide one, but more than its share
            cost = blocks * vectors * (lanes / widest + 0.2) + blocks * 0.5
            if cost < best_cost:
                best, best_cost = (lanes, vectors), cost
    return best


class _AxisSearch:
    """The search for the set of vector axes of least cost."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.free = FreeRanges()
        self.lanes = max_lanes(nest)
        nodes = nest.root.toposort()
        self.reduces = [u for u in nodes if u.op is Ops.REDUCE]
        self.costed = [
            u
            for u in nodes
            if u.op in {Ops.LOAD, Ops.STORE}
            or (u.op in GroupOp.ALU and u.dtype is not dtypes.index)
        ]
        self.axes_of = {u: self._axes(u) for u in self.costed}

    def _axes(self, u: UOp) -> frozenset[UOp]:
        if u.op is Ops.STORE:
            return self.free[u.src[0]] | self.free[u.src[1]] | frozenset(loops_of(u))
        return self.free[u]

    def best(self) -> list[UOp]:
        """The axes that become lanes."""
        if self.lanes < 2:
            return []
        outputs = dict.fromkeys(
            r
            for store in self.nest.stores
            for r in loops_of(store)
            if r.arg.kind is AxisType.LOOP
            and extent(r) >= MIN_STEPS
            and self.stores_at_constant_stride(store, r)
        )
        own = [self.best_reduction_axis(u) for u in self.reduces]
        reductions = list(dict.fromkeys(r for r in own if r is not None))
        candidates = [reductions]
        candidates += [[a, *reductions] for a in outputs]
        candidates += [[a] for a in outputs]
        if len(self.nest.stores) > 1:
            candidates.append([*self.best_of_each_store(outputs), *reductions])
        tried = [self.without_conflicts(c) for c in candidates]
        return min([[], *tried], key=self.cost)

    def best_of_each_store(self, outputs: Container[UOp]) -> list[UOp]:
        """The cheapest output axis of every store: stores that share outer loops may have inner
        ones of their own.
        """
        found: dict[UOp, None] = {}
        for store in self.nest.stores:
            below = store.toposort()
            own = [r for r in loops_of(store) if r in outputs]
            if own:
                found[min(own, key=lambda r: self.cost([r], below))] = None
        return list(found)

    def stores_at_constant_stride(self, store: UOp, axis: UOp) -> bool:
        """Whether the store has a constant stride along `axis`, so that lanes pay off."""
        width = min(self.lanes, extent(axis))
        return self.free.lane_stride(index_of(store), axis, width) is not None

    def best_reduction_axis(self, reduce: UOp) -> UOp | None:
        """The axis of a reduction with the cheapest loads as lanes."""
        below = reduce.src[0].toposort()
        loads = [u for u in below if u.op is Ops.LOAD]
        found, found_cost = None, float("inf")
        for r in loops_of(reduce):
            if extent(r) < MIN_STEPS:
                continue
            cost = sum(
                points(self.free[u]) * self.lane_cost(u, r) for u in loads if r in self.free[u]
            )
            if cost <= found_cost:
                found, found_cost = r, cost
        return found

    def lane_cost(self, u: UOp, axis: UOp) -> float:
        """The cost of a node per step when `axis` is lanes, compared with scalar code."""
        width = min(self.lanes, extent(axis))
        if u.op not in {Ops.LOAD, Ops.STORE}:
            return 1 / width
        stride = self.free.lane_stride(index_of(u), axis, width)
        return 1 / width if stride in {0, 1} else GATHER_COST

    def without_conflicts(self, axes: list[UOp]) -> list[UOp]:
        """Drop an axis that shares an expression with an earlier one."""
        kept: list[UOp] = []
        for axis in axes:
            if axis in kept:
                continue
            meets = any(
                axis in self.axes_of[u] and not self.axes_of[u].isdisjoint(kept)
                for u in self.costed
            )
            if not meets and not self.crosses_reduce(axis, kept):
                kept.append(axis)
        return kept

    def crosses_reduce(self, axis: UOp, kept: list[UOp]) -> bool:
        """Whether the value of a reduction depends on `axis` and on a kept axis."""
        inside = (self.free[u.src[0]].union(loops_of(u)) for u in self.reduces)
        return any(axis in loops and not loops.isdisjoint(kept) for loops in inside)

    def cost(self, axes: list[UOp], nodes: Container[UOp] | None = None) -> float:
        """The cost of all nodes, or of those among `nodes`."""
        total = 0.0
        for u in self.costed:
            if nodes is not None and u not in nodes:
                continue
            mine = self.axes_of[u]
            scale = 1.0
            for axis in axes:
                if axis in mine:
                    scale = self.lane_cost(u, axis)
            total += points(mine) * scale
        return total
