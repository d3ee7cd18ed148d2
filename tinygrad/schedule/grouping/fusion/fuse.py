"""Fusion: choose the values to materialise; all others are fused into the kernels that use them.

Input: the nodes of a per-device graph, sources first. Output: the nodes that get a buffer.
Invariant: no reduction is computed twice, and a kernel can compute every other value that it needs
at one point of its loops.

A *context* is one way in which a kernel reads a node: its root and the movement between the two. A
node with one context is fused. A reduction with two is materialised, cheap arithmetic recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from tinygrad.schedule.grouping.fusion.kernel_budget import Cost, KernelBudget
from tinygrad.schedule.grouping.fusion.product_loops import ProductLoops, product_loops
from tinygrad.schedule.grouping.fusion.row_chains import RowChain
from tinygrad.schedule.grouping.fusion.segments import (
    Segment,
    Segments,
    can_be_stored,
    points_ratio,
)
from tinygrad.schedule.grouping.softmax.chains import SoftmaxChain
from tinygrad.schedule.grouping.targets import find_target
from tinygrad.schedule.grouping.values import is_contraction, max_elements, repeats
from tinygrad.schedule.storage_views import NAMES_MEMORY, STORAGE, movement_base
from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.sint import is_one

# materialised nodes into whose kernels their sources are fused
FUSES_SOURCES = frozenset({Ops.ASSIGN, Ops.CONTIGUOUS, *GroupOp.Scatter})
# values that are in memory before a kernel reads them
IS_READ = STORAGE - FUSES_SOURCES
# nodes that read their sources from memory
READS_MEMORY = NAMES_MEMORY | {Ops.CUSTOM_KERNEL, Ops.TRANSFER}
MAX_RECOMPUTED_LEAVES = 4
"""An expression that reads more arrays is materialised rather than recomputed."""
SMALL_RATIO = 1 / 16
"""Arrays with no more elements, relative to those that are computed from them, stay in a cache."""
MAX_RECOMPUTED_LEAVES_IN_REDUCE = 3
"""The same for one that is recomputed in the loops of a reduction."""
MAX_CONTEXTS = 256
"""The contexts that are tracked for each node; the bound on work is reached before."""
FREE_KERNELS = 4
"""The kernels that may compute a value once each: storing it takes a kernel of its own."""

MAX_NESTED_WORK = 1 << 14
"""The elements of reductions that one kernel computes, nested or beside a contraction, rather than
several: so few take less time than to start another kernel."""
MAX_NESTED_STEPS = 1 << 7
"""The same for each element of the result, which one thread computes."""
MIN_NESTED_RESULTS = 1 << 5
"""The elements of a result that keep a CPU busy, however much each one reduces."""
MIN_NESTED_ROW = 8
"""The contiguous elements that the inner reduction of such a kernel takes, as a vector."""

EXPENSIVE = frozenset({Ops.GATHER, Ops.THREEFRY})
# nodes whose second source is an index
INDEXED = frozenset({Ops.GATHER, *GroupOp.Scatter})
# nodes whose sources are read at other points than they are
CHANGES_CONTEXT = INDEXED | GroupOp.Movement | {Ops.REDUCE_AXIS}


class ReadContext(NamedTuple):
    """One way in which a kernel reads a node. `path` identifies the kernel and the movement from
    its root to the node; `in_reduce` says that the read is inside a reduction.
    """

    path: int
    in_reduce: bool


Contexts: TypeAlias = frozenset[ReadContext]
NO_CONTEXTS: Contexts = frozenset()


class _Fusion:
    """The choice for one graph: the nodes that are `materialized`, and the reductions that every
    other node is computed from.
    """

    def __init__(self, order: list[UOp], default_device: str | None) -> None:
        self.order, self.default_device = order, default_device
        self.materialized: set[UOp] = {n for n in order if n.op in STORAGE}
        # never materialised: kernels compute them again, block by block
        self.recomputed: set[UOp] = set()
        # nodes of kernels whose threads share rows; no other reduction is fused into these
        self.in_rows: set[UOp] = set()
        # the fused reductions that a node is computed from: one of them, or a node that has them
        self.reduced: dict[UOp, UOp] = {}
        # the loops of sums of products, and of what adds them
        self.products: dict[UOp, ProductLoops] = {}
        # the nodes that read these through padding
        self.padded: set[UOp] = set()
        self.paths: dict[tuple[Any, ...], int] = {}
        # the kernel of each path, and the number of its loop iterations
        self.budgets: list[KernelBudget] = []
        self.points: list[float] = []
        # the materialised arrays that each expression reads, and its expensive ops
        self.leaves: dict[UOp, frozenset[UOp]] = {}
        # the same without what is repeated so often that reading it costs nothing, if it differs
        self.large_leaves: dict[UOp, frozenset[UOp]] = {}
        self.expensive: set[UOp] = set()

    def add_chains(self, chains: Sequence[SoftmaxChain]) -> None:
        """Give each reduction of the scores of a softmax a kernel that recomputes the scores."""
        for chain in chains:
            self.recomputed |= chain.inside()
            self.materialized |= chain.results

    def add_rows(self, rows: Sequence[RowChain]) -> None:
        """Fuse each chain of row reductions into the kernel of its root."""
        for chain in rows:
            self.recomputed |= chain.inside
            self.in_rows |= {*chain.inside, chain.root}
            if chain.root.op is not Ops.REDUCE_AXIS:
                # else what is computed from the reduction is fused with it
                self.materialized.add(chain.root)

    def materialize(self, node: UOp) -> None:
        """Materialise the value that `node` moves."""
        base = stored_base(node)
        if base.op not in {Ops.CONST, Ops.ARANGE, Ops.DEFINE_VAR, Ops.BIND}:
            self.materialized.add(base)

    # ---- forward: values that no kernel can compute in its loops ----

    def mark_barriers(self) -> None:
        """Materialise reductions that are broadcast or feed another reduction, and operands that
        are read from memory.
        """
        self.reduced.clear()
        self.products.clear()
        self.padded.clear()
        reduced = self.reduced.keys()
        for node in self.order:
            op = node.op
            if op in READS_MEMORY:
                # including movement: these ops read contiguous memory
                self.materialized.update(x for x in node.src if x.op is not Ops.DEFINE_VAR)
            elif op is Ops.REDUCE_AXIS or (op not in IS_READ and not reduced.isdisjoint(node.src)):
                self._mark(node)

    def _mark(self, node: UOp) -> None:
        sources = [x for x in node.src if x in self.reduced and not self.is_materialized(x)]
        if node.op is Ops.REDUCE_AXIS:
            for x in sources:
                base = movement_base(x)
                is_one = base.op is Ops.REDUCE_AXIS and base.arg.op is node.arg.op
                if not is_one and not self._can_nest(node, self.reduced[x]):
                    self.materialize(x)
            if node not in self.recomputed:
                self.reduced[node] = node
                loops = product_loops(node)
                if loops is not None:
                    self.products[node] = loops
            return
        if not sources:
            return
        if node in self.in_rows or repeats(node) or node.op in INDEXED:
            for x in sources:
                self.materialize(x)
            return
        if node.op in GroupOp.Elementwise:
            for x in sources:
                if x in self.padded:
                    self.materialize(x)
            self._separate_contractions(node, sources)
        carried = {self.reduced[x] for x in sources if not self.is_materialized(x)}
        if carried:
            self.reduced[node] = carried.pop() if len(carried) == 1 else node
            loops = self._added_products(node, sources)
            if loops is not None:
                self.products[node] = loops
            if node.op in {Ops.PAD, Ops.UNWINDOW} or (
                node.op in GroupOp.Movement and any(x in self.padded for x in sources)
            ):
                self.padded.add(node)

    def _can_nest(self, node: UOp, inner: UOp) -> bool:
        """Whether a kernel may compute a reduction inside of the loops of another one."""
        if inner.op is not Ops.REDUCE_AXIS or inner in self.in_rows or node in self.in_rows:
            return False
        if is_contraction(inner) or inner.src[0] in self.reduced:
            return False
        if is_small(max_elements(inner.src[0].shape), max_elements(node.shape)):
            return True
        # one core computes an element of the result
        if max_elements(node.shape) < MIN_NESTED_RESULTS or row_elements(inner) < MIN_NESTED_ROW:
            return False
        return self._runs_on_cpu(node)

    def _runs_on_cpu(self, node: UOp) -> bool:
        """Whether a core of a CPU computes each element, rather than threads of a GPU together."""
        target = find_target(node, self.default_device)
        return target is not None and not target.has_threads

    def is_materialized(self, node: UOp) -> bool:
        """Whether a node, or the value that it moves, is materialised."""
        found = self.materialized
        if node in found:
            return True
        base = movement_base(node)
        return base in found or (cast_growth(base) > 0 and stored_base(base) in found)

    def _added_products(self, node: UOp, sources: list[UOp]) -> ProductLoops | None:
        """The loops of a kernel that adds the sums of products of some sources, None if `node` does
        more than that, or if one tile does not suit them all.
        """
        if node.op in GroupOp.Movement and sources[0] in self.products:
            return self.products[sources[0]].moved(node)
        if node.op is not Ops.ADD:
            return None
        found: ProductLoops | None = None
        for x in sources:
            if self.is_materialized(x):
                continue
            loops = self.products.get(x)
            found = loops if found is None or loops is None else found.joined(loops)
            if found is None:
                return None
        return found

    def _separate_contractions(self, node: UOp, sources: list[UOp]) -> None:
        """Fuse no other reduction with a contraction: the loops of its kernel are tiled for it. A
        CPU adds several with equal loops in one tile.
        """
        carried = {x: self.reduced[x] for x in sources if not self.is_materialized(x)}
        if len(set(carried.values())) < 2:
            return
        kept = next(
            (x for x in carried.values() if x.op is Ops.REDUCE_AXIS and is_contraction(x)), None
        )
        if kept is None:
            return
        others = [x for x, found in carried.items() if found is not kept]
        reductions = {*carried.values()}
        if all(x.op is Ops.REDUCE_AXIS for x in reductions):
            work = sum(max_elements(x.src[0].shape) for x in reductions)
            if is_small(work, max_elements(kept.shape)):
                return
        if self._added_products(node, sources) is not None and self._runs_on_cpu(node):
            return
        for x in others:
            self.materialize(x)

    # ---- backward: the contexts in which each node is read ----

    def mark_shared(self) -> None:
        """Materialise reductions with two contexts, and arithmetic too expensive to recompute."""
        segments = Segments(self.order, self.materialized, self.recomputed)
        self.find_leaves()
        contexts: dict[UOp, Contexts] = {}
        for node in reversed(self.order):
            if not node.src:
                continue
            here = contexts.pop(node, NO_CONTEXTS)
            if node not in self.materialized and self._must_materialize(node, here):
                self.materialized.add(node)
            can_change = node not in self.materialized and node not in self.recomputed
            if can_change and here and segments.ends(node):
                self._recompute(node, segments[node], here)
            if node in self.materialized or not here:
                here = frozenset({self._root(node, segments[node])})
            if repeats(node):
                self._mark_broadcast(node, here)
            moves = node.op in CHANGES_CONTEXT
            for number, x in enumerate(node.src):
                if x.src and x not in self.materialized:
                    found = contexts.get(x, NO_CONTEXTS)
                    if len(found) < MAX_CONTEXTS:
                        read = self._through(node, number, here) if moves else here
                        contexts[x] = found | read if found else read

    def _root(self, node: UOp, segment: Segment) -> ReadContext:
        """The context of the root of a new kernel."""
        points = max_elements(node.shape)
        self.budgets.append(KernelBudget(segment, points))
        self.points.append(points)
        return ReadContext(len(self.budgets) - 1, False)

    def _path(self, key: tuple[Any, ...], budget: KernelBudget, points: float) -> int:
        """The number of a path, a new one for a new key."""
        found = self.paths.setdefault(key, len(self.budgets))
        if found == len(self.budgets):
            self.budgets.append(budget)
            self.points.append(points)
        return found

    def _recompute(self, node: UOp, segment: Segment, contexts: Contexts) -> None:
        """Compute a segment in each context, or materialise it if that is too much work or code."""
        counts: dict[KernelBudget, int] = {}
        points: dict[KernelBudget, float] = {}
        for c in contexts:
            budget = self.budgets[c.path]
            counts[budget] = counts.get(budget, 0) + 1
            points[budget] = points.get(budget, 0.0) + self.points[c.path]
        elements = max_elements(node.shape)
        costs: dict[KernelBudget, Cost] = {}
        for budget, count in counts.items():
            # one of the kernels would compute each element, the others load it
            computed = segment.work / len(counts)
            loaded = 1 if len(counts) > 1 else 0
            work_once = (
                computed if count > 1 else min(FREE_KERNELS * computed, segment.work) + loaded
            )
            once = min(points[budget], elements) * work_once
            costs[budget] = Cost(count * segment.size, points[budget] * segment.work, once)
        if can_be_stored(node) and not all(b.allows(cost) for b, cost in costs.items()):
            self.materialized.add(node)
            return
        for budget, cost in costs.items():
            budget.spend(cost)

    def _through(self, node: UOp, number: int, contexts: Contexts) -> Contexts:
        op = node.op
        if op in GroupOp.Movement:
            ratio = points_ratio(node)
            return frozenset(
                ReadContext(self._extend(c, ratio, op, node.arg), c.in_reduce) for c in contexts
            )
        if op is Ops.REDUCE_AXIS:
            ratio = points_ratio(node)
            return frozenset(ReadContext(self._extend(c, ratio, node), True) for c in contexts)
        ratio = max_elements(node.src[number].shape) / max(max_elements(node.shape), 1)
        ratio = min(ratio, 1.0)
        return frozenset(
            ReadContext(self._extend(c, ratio, node, number), c.in_reduce) for c in contexts
        )

    def _extend(self, context: ReadContext, ratio: float, *key: Any) -> int:
        path = context.path
        return self._path((path, *key), self.budgets[path], self.points[path] * ratio)

    def _must_materialize(self, node: UOp, contexts: Contexts) -> bool:
        if len(contexts) < 2 or node.op in GroupOp.Movement or node.device is None:
            return False
        # the source of a cast to a larger type is materialised, which takes less memory
        if node in self.recomputed or cast_growth(node) > 0:
            return False
        if node.op is Ops.REDUCE_AXIS or node in self.reduced:
            return True
        if node.op in GroupOp.ALU or cast_growth(node) < 0:
            return self.reads_more_than(MAX_RECOMPUTED_LEAVES, node, large=True)
        return False

    def _mark_broadcast(self, node: UOp, contexts: Contexts) -> None:
        """Materialise the source of an EXPAND unless it is cheap to recompute for each copy."""
        base = stored_base(node.src[0])
        if (
            base in self.materialized
            or base in self.recomputed
            or base.device is None
            or base.op not in GroupOp.Elementwise | {Ops.GATHER}
        ):
            return
        if not any(c.in_reduce for c in contexts):
            if self.reads_more_than(MAX_RECOMPUTED_LEAVES, base):
                self.materialized.add(base)
            return
        if not self.has_arithmetic(base):
            return
        if len(contexts) > 1 or self.reads_more_than(MAX_RECOMPUTED_LEAVES_IN_REDUCE, base):
            self.materialized.add(base)

    def has_arithmetic(self, node: UOp) -> bool:
        """Whether an expression is more than a cast of a materialised array."""
        while node.op in GroupOp.Movement or node.op in {Ops.CAST, Ops.BITCAST}:
            node = node.src[0]
        return node not in self.materialized

    def find_leaves(self) -> None:
        """Find the materialised arrays and expensive ops that each expression is computed from."""
        leaves, large = self.leaves, self.large_leaves
        for node in self.order:
            src = node.src
            if node in self.materialized:
                leaves[node] = frozenset({node})
            elif node.op in EXPENSIVE:
                self.expensive.add(node)
                leaves[node] = _joined([leaves[x] for x in src], node)
            elif not src:
                leaves[node] = NO_LEAVES
            else:
                leaves[node] = _joined([leaves[x] for x in src])
                if node.op is Ops.EXPAND and points_ratio(node) <= SMALL_RATIO:
                    large[node] = large.get(src[0], leaves[node]) - self.materialized
                elif large and not large.keys().isdisjoint(src):
                    large[node] = _joined([large.get(x, leaves[x]) for x in src])

    def reads_more_than(self, count: int, node: UOp, *, large: bool = False) -> bool:
        """Whether an expression reads more than `count` arrays; expensive ops count as several.
        With `large`, those that are repeated often do not count.
        """
        leaves = self.leaves[node]
        if large:
            leaves = self.large_leaves.get(node, leaves)
        expensive = len(leaves & self.expensive)
        return len(leaves) + (MAX_RECOMPUTED_LEAVES - 1) * expensive > count


NO_LEAVES: frozenset[UOp] = frozenset()


def _joined(parts: list[frozenset[UOp]], *more: UOp) -> frozenset[UOp]:
    """The leaves of several expressions together, as many as make a difference."""
    if len(parts) == 1 and not more:
        return parts[0]
    found = parts[0].union(more) if more else parts[0]
    for x in parts:
        if not x <= found:
            found = x if found <= x else found | x
    if len(found) <= MAX_RECOMPUTED_LEAVES + 1:
        return found
    return frozenset(islice(found, MAX_RECOMPUTED_LEAVES + 1))


def is_small(work: float, elements: float) -> bool:
    """Whether a kernel with this work and this many results takes less time than a launch."""
    return work <= min(MAX_NESTED_WORK, MAX_NESTED_STEPS * elements)


def row_elements(node: UOp) -> int:
    """The contiguous elements that a reduction takes, 1 if it is not over the last axes."""
    shape = node.src[0].shape
    kept = (i for i, size in enumerate(shape) if i not in node.arg.axes and not is_one(size))
    return max_elements(shape[max(kept, default=-1) + 1 :])


def cast_growth(node: UOp) -> int:
    """The bytes by which an element of a CAST is larger than one of its source; 0 for other ops."""
    return node.dtype.itemsize - node.src[0].dtype.itemsize if node.op is Ops.CAST else 0


def stored_base(node: UOp) -> UOp:
    """The node to materialise for `node`: the value below its movement and its widening casts."""
    base = movement_base(node)
    while cast_growth(base) > 0:
        base = movement_base(base.src[0])
    return base


def choose_materialized(
    order: list[UOp],
    outputs: list[UOp],
    chains: Sequence[SoftmaxChain] = (),
    rows: Sequence[RowChain] = (),
    default_device: str | None = None,
) -> set[UOp]:
    """The nodes of a per-device graph that are materialised. `order` is topological."""
    assert not any(isinstance(n.device, Sharding) for n in outputs), "layouts are lowered first"
    fusion = _Fusion(order, default_device)
    fusion.materialized.update(outputs)
    fusion.add_chains(chains)
    fusion.add_rows(rows)
    fusion.mark_barriers()
    # reductions that the first pass materialised are no longer fused in the second
    fusion.mark_barriers()
    fusion.mark_shared()
    return fusion.materialized
