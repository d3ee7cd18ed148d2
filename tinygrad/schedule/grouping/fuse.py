"""Which values of the per-device graph are stored; everything else is computed inside the kernels
that use it.

In: the nodes of a per-device graph, sources first. Out: the set of nodes that get a buffer. Always
true: a reduction is never computed twice, and no kernel needs a value that is neither stored nor
computable at one point of its loops.

A *context* is one way in which a kernel reads a node: the kernel's root and the movement between. A
node read in one context only is computed where it is read. In two: a reduction is stored, cheap
arithmetic is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tinygrad.schedule.storage_views import NAMES_MEMORY, is_storage, movement_base
from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

# storage whose kernel computes its sources
COMPUTED_STORAGE = frozenset({Ops.ASSIGN, Ops.CONTIGUOUS, *GroupOp.Scatter})
# nodes that read their sources from memory
READS_MEMORY = NAMES_MEMORY | {Ops.CUSTOM_KERNEL, Ops.TRANSFER}
# an expression of more stored arrays than this is stored rather than repeated
MAX_LEAVES_REPEATED = 4
MAX_LEAVES_IN_REDUCE = 3
MAX_CONTEXTS = 8

EXPENSIVE = frozenset({Ops.GATHER, Ops.THREEFRY})
# nodes whose second source says which rows
BY_INDEX = frozenset({Ops.GATHER, *GroupOp.Scatter})


class Context(NamedTuple):
    """One way in which a kernel reads a node."""

    path: int  # numbers the kernel and the movement from its root
    in_reduce: bool  # read inside a reduction of the kernel


def grows(node: UOp) -> bool:
    """Whether this EXPAND repeats anything."""
    return node.op is Ops.EXPAND and node.shape != node.src[0].shape


def is_contraction(node: UOp) -> bool:
    """Whether this reduction is a sum of products of broadcast operands, as of matrices."""
    while node.op is Ops.REDUCE_AXIS and node.arg.op is Ops.ADD:
        # a sum over the windows of a sum over channels is one sum
        node = node.src[0]
        while node.op in GroupOp.Movement or node.op is Ops.CAST:
            node = node.src[0]
    return node.op is Ops.MUL and all(any(map(grows, _movements(x))) for x in node.src)


def _movements(node: UOp) -> Iterator[UOp]:
    while node.op in GroupOp.Movement or node.op is Ops.CAST:
        yield node
        node = node.src[0]


class _Chooser:
    def __init__(self, order: list[UOp]) -> None:
        self.order = order
        self.stored: set[UOp] = {n for n in order if is_storage(n)}
        # the reductions, not stored, that a node is computed from; and those seen through padding
        self.reduced: dict[UOp, frozenset[UOp]] = {}
        self.padded: set[UOp] = set()
        self.paths: dict[tuple[Any, ...], int] = {}
        self.leaf_counts: dict[UOp, int] = {}

    def store(self, node: UOp) -> None:
        base = movement_base(node)
        if base.op not in {Ops.CONST, Ops.ARANGE, Ops.DEFINE_VAR, Ops.BIND}:
            self.stored.add(base)

    # ---- forward: barriers that a reduction cannot cross ----

    def mark_barriers(self) -> None:
        """Store what a kernel cannot hold: a reduction that is broadcast, or feeds another one."""
        self.reduced.clear()
        self.padded.clear()
        for node in self.order:
            if node.op in READS_MEMORY:
                # movement included: whoever reads memory wants it contiguous
                self.stored.update(x for x in node.src if x.op is not Ops.DEFINE_VAR)
            elif not is_storage(node) or node.op in COMPUTED_STORAGE:
                self._mark(node)

    def _mark(self, node: UOp) -> None:
        sources = [x for x in node.src if x in self.reduced and not self.is_stored(x)]
        if node.op is Ops.REDUCE_AXIS:
            for x in sources:
                base = movement_base(x)
                if base.op is not Ops.REDUCE_AXIS or base.arg.op is not node.arg.op:
                    self.store(x)
            self.reduced[node] = frozenset({node})
            return
        if not sources:
            return
        if grows(node) or node.op in BY_INDEX:
            for x in sources:
                self.store(x)
            return
        if node.op in GroupOp.Elementwise:
            for x in sources:
                if x in self.padded:
                    self.store(x)
            self._keep_contractions_alone(sources)
        carried = [self.reduced[x] for x in sources if not self.is_stored(x)]
        if carried:
            self.reduced[node] = frozenset[UOp]().union(*carried)
            if node.op in {Ops.PAD, Ops.UNWINDOW} or (
                node.op in GroupOp.Movement and any(x in self.padded for x in sources)
            ):
                self.padded.add(node)

    def is_stored(self, node: UOp) -> bool:
        """Whether the node, or what it only moves, gets a buffer."""
        return node in self.stored or movement_base(node) in self.stored

    def _keep_contractions_alone(self, sources: list[UOp]) -> None:
        """A kernel with a contraction has no other reduction: its loops are tiled for that one."""
        carried = {x: self.reduced[x] for x in sources if not self.is_stored(x)}
        everything = frozenset[UOp]().union(*carried.values())
        if len(everything) < 2:
            return
        kept = next((x for x, found in carried.items() if any(map(is_contraction, found))), None)
        if kept is None:
            return
        for x, found in carried.items():
            if found != carried[kept]:
                self.store(x)

    # ---- backward: who reads what, and how ----

    def path(self, *key: Any) -> int:
        return self.paths.setdefault(key, len(self.paths))

    def mark_shared(self) -> None:
        """Store reductions that are read in two ways, and arithmetic too dear to repeat."""
        contexts: dict[UOp, set[Context]] = {n: set() for n in self.order}
        for node in reversed(self.order):
            here = contexts[node]
            if node not in self.stored and self._must_store(node, here):
                self.stored.add(node)
            if node in self.stored or not here:
                here = {Context(self.path(node), False)}
            if grows(node):
                self._consider_repeating(node, here)
            for number, x in enumerate(node.src):
                found = contexts[x]
                if len(found) < MAX_CONTEXTS:
                    found |= self._through(node, number, here)

    def _through(self, node: UOp, number: int, contexts: set[Context]) -> set[Context]:
        op = node.op
        if op in GroupOp.Movement:
            return {Context(self.path(c.path, op, node.arg), c.in_reduce) for c in contexts}
        if op is Ops.REDUCE_AXIS:
            return {Context(self.path(c.path, node), True) for c in contexts}
        if op in BY_INDEX:
            return {Context(self.path(c.path, node, number), c.in_reduce) for c in contexts}
        return contexts

    def _must_store(self, node: UOp, contexts: set[Context]) -> bool:
        if len(contexts) < 2 or node.op in GroupOp.Movement or node.device is None:
            return False
        if node.op is Ops.REDUCE_AXIS or node in self.reduced:
            return True
        if node.op in GroupOp.ALU:
            return self.leaves(node) > MAX_LEAVES_REPEATED
        return False

    def _consider_repeating(self, node: UOp, contexts: set[Context]) -> None:
        """An expression under a broadcast is computed again for each copy, or stored."""
        base = movement_base(node.src[0])
        if (
            base in self.stored
            or base.device is None
            or base.op not in GroupOp.Elementwise | {Ops.GATHER}
        ):
            return
        if not any(c.in_reduce for c in contexts):
            if self.leaves(base) > MAX_LEAVES_REPEATED:
                self.stored.add(base)
            return
        if not self.has_arithmetic(base):
            return
        if len(contexts) > 1 or self.leaves(base) > MAX_LEAVES_IN_REDUCE:
            self.stored.add(base)

    def has_arithmetic(self, node: UOp) -> bool:
        """Whether this expression is more than a conversion of a stored array."""
        while node.op in GroupOp.Movement or node.op in {Ops.CAST, Ops.BITCAST}:
            node = node.src[0]
        return node not in self.stored

    def leaves(self, root: UOp) -> int:
        """How many stored arrays an expression reads; what is dear counts as many."""
        known = self.leaf_counts.get(root)
        if known is not None:
            return known
        found: set[UOp] = set()
        weight = 0
        for node in root.toposort(gate=lambda u: u not in self.stored):
            if node in self.stored:
                found.add(node)
            elif node.op in EXPENSIVE:
                weight += MAX_LEAVES_REPEATED
        self.leaf_counts[root] = len(found) + weight
        return self.leaf_counts[root]


def choose_stored(order: list[UOp], outputs: list[UOp]) -> set[UOp]:
    """The nodes of a per-device graph that get a buffer. `order` is topological, sources first."""
    assert not any(isinstance(n.device, Sharding) for n in outputs), "layouts are lowered first"
    chooser = _Chooser(order)
    chooser.stored.update(outputs)
    chooser.mark_barriers()
    # what was stored by the first pass stops counting as a reduction in the second
    chooser.mark_barriers()
    chooser.mark_shared()
    return chooser.stored
