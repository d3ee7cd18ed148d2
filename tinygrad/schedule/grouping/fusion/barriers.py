"""Barriers to fusion: values that a kernel cannot compute in the loops of their users.

Input: the `Choice` for a graph. Output: the same `Choice`, in which further values are
materialised: reductions that are broadcast or feed another reduction, and operands of ops that read
memory. Invariant: the reductions of one kernel can share its loops.

Example: in `x / x.sum(1, keepdim=True)`, the sum is broadcast along axis 1. Fused, it would be
computed for each element, so it is materialised (unless `row_chains.py` shares rows).
"""

from __future__ import annotations

from functools import cached_property

from tinygrad.schedule.grouping.fusion.choice import Choice
from tinygrad.schedule.grouping.fusion.product_loops import ProductLoops, product_loops
from tinygrad.schedule.grouping.targets import find_target
from tinygrad.schedule.grouping.values import is_contraction, max_elements, repeats
from tinygrad.schedule.storage_views import NAMES_MEMORY, STORAGE, movement_base
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.known_orders import kept_table
from tinygrad.uop.ops import UOp
from tinygrad.uop.sint import is_one

# materialised nodes into whose kernels their sources are fused
FUSES_SOURCES = frozenset({Ops.ASSIGN, Ops.CONTIGUOUS, *GroupOp.Scatter})
# values that are in memory before a kernel reads them
IS_READ = STORAGE - FUSES_SOURCES
# nodes that read their sources from memory
READS_MEMORY = NAMES_MEMORY | {Ops.CUSTOM_KERNEL, Ops.TRANSFER}
# nodes whose second source is an index tensor
INDEXED = frozenset({Ops.GATHER, *GroupOp.Scatter})

MAX_NESTED_WORK = 1 << 14
"""The maximum elements reduced by nested reductions, or by reductions beside a contraction, in one
kernel: recomputing them takes less time than launching another kernel."""
MAX_NESTED_STEPS = 1 << 7
"""The same for each element of the result, which one thread computes."""
MIN_NESTED_RESULTS = 1 << 5
"""The minimum elements of the result for a CPU to nest reductions of any length."""
MIN_NESTED_ROW = 8
"""The minimum contiguous elements of the inner of these reductions, which is vectorized."""


def mark_barriers(choice: Choice) -> None:
    """Materialise reductions that are broadcast or feed another reduction, and operands that are
    read from memory.
    """
    _Barriers(choice).mark_all()


class _Barriers:
    """One pass over a graph, sources first."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.reduced = choice.reduced
        self.reduced.clear()
        # the loops of fused sums of products, and of the nodes that add them
        self.products: dict[UOp, ProductLoops] = {}
        # the loops of all reductions, kept between passes
        self.loops: dict[UOp, ProductLoops | None] = kept_table("product loops")
        # nodes that read a fused reduction through padding
        self.padded: set[UOp] = set()

    def mark_all(self) -> None:
        """Choose for the sources of each node whether they are materialised."""
        reduced = self.reduced.keys()
        for node in self.choice.order:
            op = node.op
            if op in READS_MEMORY:
                # including movement: these ops read contiguous memory
                self.choice.materialized.update(x for x in node.src if x.op is not Ops.DEFINE_VAR)
            elif op is Ops.REDUCE_AXIS or (
                reduced and op not in IS_READ and not reduced.isdisjoint(node.src)
            ):
                self._mark(node)

    @cached_property
    def users(self) -> dict[UOp, list[UOp]]:
        """The users of each node."""
        found: dict[UOp, list[UOp]] = {}
        for node in self.choice.order:
            for x in dict.fromkeys(node.src):
                found.setdefault(x, []).append(node)
        return found

    def _needed_below(self, node: UOp) -> UOp:
        """What `node` is computed from, down to the reduction that it carries, if other kernels
        need that too: it is materialised in any case, and `node` then carries no reduction. Else
        `node`.
        """
        inside = self.reduced[node]
        found = inside
        while found is not node and len(self.users[found]) == 1:
            (found,) = self.users[found]
        if inside.op is not Ops.REDUCE_AXIS or found is node:
            return node
        below = node.toposort(gate=lambda x: x in self.reduced and x is not found)
        carrying = [x for x in below if x in self.reduced and x is not node]
        is_needed = any(user not in below for x in carrying for user in self.users[x])
        return found if is_needed else node

    def _carries(self, node: UOp) -> bool:
        """Whether a node is computed in one kernel with a reduction."""
        inside = self.reduced.get(node)
        return not (inside is None or self.choice.is_materialized(node)) and (
            inside is node or not self.choice.is_materialized(inside)
        )

    def _mark(self, node: UOp) -> None:
        """Choose which of the sources with reductions are fused into the kernel of a node."""
        sources = [x for x in node.src if self._carries(x)]
        if node.op is Ops.REDUCE_AXIS:
            self._mark_reduction(node, sources)
        elif sources:
            self._mark_user(node, sources)

    def _mark_reduction(self, node: UOp, sources: list[UOp]) -> None:
        for x in sources:
            base = movement_base(x)
            is_same = base.op is Ops.REDUCE_AXIS and base.arg.op is node.arg.op
            if not is_same and not self._can_nest(node, self.reduced[x]):
                self.choice.materialize(self._needed_below(x))
        if node not in self.choice.recomputed:
            self.reduced[node] = node
            if node not in self.loops:
                self.loops[node] = product_loops(node)
            self._note_products(node, self.loops[node])

    def _mark_user(self, node: UOp, sources: list[UOp]) -> None:
        if node in self.choice.in_rows or repeats(node) or node.op in INDEXED:
            for x in sources:
                self.choice.materialize(self._needed_below(x))
                self.choice.materialize(x)
            return
        if node.op in GroupOp.Elementwise:
            for x in self.padded.intersection(sources):
                self.choice.materialize(x)
            self._separate_contractions(node, sources)
        carried = {self.reduced[x] for x in sources if not self.choice.is_materialized(x)}
        if not carried:
            return
        self.reduced[node] = carried.pop() if len(carried) == 1 else node
        self._note_products(node, self._added_products(node, sources))
        pads = node.op in {Ops.PAD, Ops.UNWINDOW}
        if pads or (node.op in GroupOp.Movement and not self.padded.isdisjoint(sources)):
            self.padded.add(node)

    def _note_products(self, node: UOp, loops: ProductLoops | None) -> None:
        if loops is not None:
            self.products[node] = loops

    def _can_nest(self, node: UOp, inner: UOp) -> bool:
        """Whether one kernel may compute the reduction `inner` inside the loops of reduction
        `node`.
        """
        if inner.op is not Ops.REDUCE_AXIS or not self.choice.in_rows.isdisjoint({inner, node}):
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
        target = find_target(node, self.choice.default_device)
        return target is not None and not target.has_threads

    def _added_products(self, node: UOp, sources: list[UOp]) -> ProductLoops | None:
        """The loops of a kernel that adds the sums of products in `sources`. None if `node` is not
        such a sum, or if one register tile does not suit all of them.
        """
        if node.op in GroupOp.Movement and sources[0] in self.products:
            return self.products[sources[0]].moved(node)
        if node.op is not Ops.ADD:
            return None
        found: ProductLoops | None = None
        for x in sources:
            if self.choice.is_materialized(x):
                continue
            loops = self.products.get(x)
            found = loops if found is None or loops is None else found.joined(loops)
            if found is None:
                return None
        return found

    def _separate_contractions(self, node: UOp, sources: list[UOp]) -> None:
        """Materialise the other reductions beside a contraction, whose kernel is tiled for it.
        Exceptions: small reductions, and on a CPU contractions with equal loops, which share a
        register tile.
        """
        carried = {x: self.reduced[x] for x in sources if not self.choice.is_materialized(x)}
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
            self.choice.materialize(x)


def is_small(work: float, elements: float) -> bool:
    """Whether a kernel that reduces `work` elements to `elements` takes less time than a launch."""
    return work <= min(MAX_NESTED_WORK, MAX_NESTED_STEPS * elements)


def row_elements(node: UOp) -> int:
    """The contiguous elements that a reduction reads, 1 if it is not over the last axes."""
    shape = node.src[0].shape
    kept = (i for i, size in enumerate(shape) if i not in node.arg.axes and not is_one(size))
    return max_elements(shape[max(kept, default=-1) + 1 :])
