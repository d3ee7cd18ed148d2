"""Values that are used several times: choose which are materialised and which recomputed.

Input: the `Choice` for a graph, with all barriers. Output: the same `Choice`, in which further
values are materialised: reductions with several contexts, and arithmetic that is too expensive to
recompute. Invariant: no reduction is computed twice.

A *context* is one way in which a kernel reads a node: the kernel's root, and the movement from the
root to the node. A node with one context is fused. Of nodes with several, reductions are
materialised and cheap arithmetic is recomputed.

Example: in `y = exp(x); out = y + y.flip(0)`, y has two contexts in one kernel: itself and flipped.
The kernel computes exp twice for each element, unless that exceeds its budget.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from tinygrad.schedule.grouping.fusion.barriers import INDEXED
from tinygrad.schedule.grouping.fusion.choice import Choice, cast_growth, stored_base
from tinygrad.schedule.grouping.fusion.kernel_budget import Cost, KernelBudget
from tinygrad.schedule.grouping.fusion.leaves import MAX_RECOMPUTED_LEAVES, Leaves
from tinygrad.schedule.grouping.fusion.segments import (
    Segment,
    Segments,
    can_be_stored,
    points_ratio,
)
from tinygrad.schedule.grouping.values import max_elements, repeats
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

MAX_RECOMPUTED_LEAVES_IN_REDUCE = 3
"""The maximum arrays that an expression reads if it is recomputed in the loops of a reduction."""
MAX_CONTEXTS = 256
"""The maximum contexts that are tracked for each node; work is limited before this is reached."""
FREE_KERNELS = 4
"""So many kernels may compute a value once each, since storing it takes a kernel too."""

# nodes that read their sources at other elements than the one they compute
CHANGES_CONTEXT = INDEXED | GroupOp.Movement | {Ops.REDUCE_AXIS}


class ReadContext(NamedTuple):
    """One way in which a kernel reads a node. `path` identifies the kernel and the movement from
    its root to the node; `in_reduce` says that the read is inside a reduction.
    """

    path: int
    in_reduce: bool


Contexts: TypeAlias = frozenset[ReadContext]
NO_CONTEXTS: Contexts = frozenset()


def mark_shared(choice: Choice) -> None:
    """Materialise reductions with two contexts, and arithmetic too expensive to recompute."""
    _SharedValues(choice).mark_all()


class _SharedValues:
    """One pass over a graph, users first: the contexts in which each node is read."""

    def __init__(self, choice: Choice) -> None:
        self.order, self.reduced = choice.order, choice.reduced
        self.materialized, self.recomputed = choice.materialized, choice.recomputed
        self.segments = Segments(self.order, self.materialized, self.recomputed)
        self.leaves = Leaves(self.materialized)
        # the contexts of nodes, complete once all users of a node are done
        self.contexts: dict[UOp, Contexts] = {}
        self.paths: dict[tuple[Any, ...], int] = {}
        # the kernel of each path, and the number of its loop iterations
        self.budgets: list[KernelBudget] = []
        self.points: list[float] = []

    def mark_all(self) -> None:
        """Choose for each node, once all of its users are done."""
        for node in reversed(self.order):
            if node.src:
                here = self._choose(node, self.contexts.pop(node, NO_CONTEXTS))
                if repeats(node):
                    self._mark_broadcast(node, here)
                self._read_sources(node, here)

    def _choose(self, node: UOp, contexts: Contexts) -> Contexts:
        """Choose whether a node is materialised. Returns the contexts in which its kernels compute
        it: if it is, that of a kernel of its own.
        """
        materialized, segments = self.materialized, self.segments
        if node not in materialized and self._must_materialize(node, contexts):
            materialized.add(node)
        can_change = node not in materialized and node not in self.recomputed
        if can_change and contexts and segments.ends(node):
            self._recompute(node, segments[node], contexts)
        if node in materialized or not contexts:
            return frozenset({self._root(node, segments[node])})
        return contexts

    def _read_sources(self, node: UOp, contexts: Contexts) -> None:
        """Add the contexts in which a node reads its sources."""
        moves = node.op in CHANGES_CONTEXT
        for number, x in enumerate(node.src):
            if not x.src or x in self.materialized:
                continue
            found = self.contexts.get(x, NO_CONTEXTS)
            if len(found) < MAX_CONTEXTS:
                read = self._through(node, number, contexts) if moves else contexts
                self.contexts[x] = found | read if found else read

    def _root(self, node: UOp, segment: Segment) -> ReadContext:
        """The context of the root of a new kernel."""
        points = max_elements(node.shape)
        self.budgets.append(KernelBudget(segment, points))
        self.points.append(points)
        return ReadContext(len(self.budgets) - 1, False)

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
        key: tuple[Any, ...]
        if op in GroupOp.Movement:
            ratio, key = points_ratio(node), (op, node.arg)
        elif op is Ops.REDUCE_AXIS:
            ratio, key = points_ratio(node), (node,)
        else:
            ratio = max_elements(node.src[number].shape) / max(max_elements(node.shape), 1)
            ratio, key = min(ratio, 1.0), (node, number)
        reduces = op is Ops.REDUCE_AXIS
        return frozenset(
            [
                ReadContext(self._extend(path, ratio, key), reduces or in_reduce)
                for path, in_reduce in contexts
            ]
        )

    def _extend(self, path: int, ratio: float, key: tuple[Any, ...]) -> int:
        """The number of the path that extends `path` by `key`; a new one for a new key."""
        found = self.paths.setdefault((path, *key), len(self.budgets))
        if found == len(self.budgets):
            self.budgets.append(self.budgets[path])
            self.points.append(self.points[path] * ratio)
        return found

    def _must_materialize(self, node: UOp, contexts: Contexts) -> bool:
        if len(contexts) < 2 or node.op in GroupOp.Movement or node.device is None:
            return False
        # the source of a cast to a larger type is materialised, which takes less memory
        if node in self.recomputed or cast_growth(node) > 0:
            return False
        if node.op is Ops.REDUCE_AXIS or node in self.reduced:
            return True
        if node.op in GroupOp.ALU or cast_growth(node) < 0:
            return self.leaves.exceed(MAX_RECOMPUTED_LEAVES, node, large=True)
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
            if self.leaves.exceed(MAX_RECOMPUTED_LEAVES, base):
                self.materialized.add(base)
            return
        if not self._has_arithmetic(base):
            return
        if len(contexts) > 1 or self.leaves.exceed(MAX_RECOMPUTED_LEAVES_IN_REDUCE, base):
            self.materialized.add(base)

    def _has_arithmetic(self, node: UOp) -> bool:
        """Whether an expression is more than a cast of a materialised array."""
        while node.op in GroupOp.Movement or node.op in {Ops.CAST, Ops.BITCAST}:
            node = node.src[0]
        return node not in self.materialized
