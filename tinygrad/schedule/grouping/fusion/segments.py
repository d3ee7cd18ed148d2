"""Segments: the parts of a graph that are fused as a whole, and their size.

A *segment* is a node that is used more than once or is stored, with the single-use nodes that it is
computed from. Input: the nodes of a per-device graph, sources first, and those that are
materialised. Output: the size and work of the segment of each node. Invariant: no segment is larger
than `MAX_SEGMENT_SIZE`, since single-use values in it are materialised until it fits.

Example: in `y = exp(x) + 1; out = y * y.flip(0)`, y is used twice. Its segment is ADD and EXP; that
of `out` is MUL and FLIP.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tinygrad.caches import cached_function
from tinygrad.schedule.grouping.values import max_elements
from tinygrad.schedule.storage_views import STORAGE, movement_base
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

MAX_KERNEL_SIZE = 512
"""The estimated instructions of a kernel; the time to compile one grows with their square."""
MAX_SEGMENT_SIZE = MAX_KERNEL_SIZE // 2
MIN_PART = MAX_SEGMENT_SIZE // 4
"""The size of a part that is worth a kernel of its own, where a segment is too large."""

# values that need no memory
NEVER_STORED = frozenset({Ops.CONST, Ops.ARANGE, Ops.DEFINE_VAR, Ops.BIND})

WORK = {
    **dict.fromkeys(Ops, 1),
    **dict.fromkeys((*GroupOp.Elementary, Ops.THREEFRY), 16),
    **dict.fromkeys((Ops.SIN, Ops.COS, Ops.TAN, Ops.POW), 32),
    **dict.fromkeys((Ops.IDIV, Ops.MOD), 4),
    Ops.REDUCE_AXIS: 8,
    **dict.fromkeys((*GroupOp.Movement, *NEVER_STORED, *STORAGE), 0),
}
"""The estimated instructions of one element of each op."""
LOAD_SIZE = 2
# movement that adds a condition to the loads below
CONDITIONAL = frozenset({Ops.PAD, Ops.UNWINDOW})
CONDITION_SIZE = 2
# nodes whose source has more or fewer elements to compute than they have
CHANGES_POINTS = frozenset({Ops.REDUCE_AXIS, Ops.EXPAND})
# movement with more elements than its source, of which each is computed
MORE_POINTS = frozenset({Ops.PAD, Ops.WINDOW, Ops.UNWINDOW})


def size_of(node: UOp) -> int:
    """The estimated size of a node in a kernel: its instructions, and the conditions of loads."""
    return CONDITION_SIZE if node.op in CONDITIONAL else WORK[node.op]


@cached_function(4096)
def expression_size(value: UOp) -> int:
    """The estimated instructions of the tensor form of an expression, each node computed once."""
    return sum(LOAD_SIZE if node.op is Ops.PARAM else size_of(node) for node in value.toposort())


def points_ratio(node: UOp) -> float:
    """Elements of the source to compute for each element of a node. It is above 1 for a reduction,
    and below 1 for an EXPAND, whose source is hoisted out of the loop that repeats it.
    """
    if node.op in CHANGES_POINTS:
        return max_elements(node.src[0].shape) / max(max_elements(node.shape), 1)
    return 1.0


@dataclass(slots=True)
class Segment:
    """The cost of one element of a node: operations executed (`work`), and instructions of the
    kernel (`size`), of which those in loops count once.
    """

    work: float
    size: int


class Segments:
    """The segments of a graph, of which `recomputed` are values that are never materialised;
    `shared` are those with more than one use.
    """

    def __init__(
        self, order: list[UOp], materialized: set[UOp], recomputed: Collection[UOp] = ()
    ) -> None:
        self.materialized = materialized
        self.recomputed = recomputed
        self.shared = _shared(order)
        self.known: dict[UOp, Segment] = {}
        for node in order:
            self.known[node] = self._measure(node)

    def __getitem__(self, node: UOp) -> Segment:
        return self.known[node]

    def ends(self, node: UOp) -> bool:
        """Whether a node is the root of a segment."""
        return node in self.shared or node in self.materialized

    def _measure(self, node: UOp) -> Segment:
        sources = node.src if len(node.src) < 2 else tuple(dict.fromkeys(node.src))
        found = self._sum(node, sources)
        while found.size > MAX_SEGMENT_SIZE:
            part = self._part(sources)
            if part is None:
                break
            self.materialized.add(part)
            self._forget(sources, part)
            found = self._sum(node, sources)
        return found

    def _sum(self, node: UOp, sources: Iterable[UOp]) -> Segment:
        op = node.op
        ratio = points_ratio(node) if op in CHANGES_POINTS else 1.0
        work, size = ratio if op is Ops.REDUCE_AXIS else float(WORK[op]), size_of(node)
        for x in sources:
            if x in self.materialized:
                size += LOAD_SIZE
            elif x not in self.shared:
                part = self.known[x]
                work += part.work * ratio
                size += part.size
        return Segment(work, size)

    def _part(self, sources: Sequence[UOp]) -> UOp | None:
        """The part of a segment to materialise: the one that takes the least memory."""
        parts: list[tuple[int, int, int, UOp]] = []
        for x in sources:
            if x in self.shared or self.known[x].size < MIN_PART:
                continue
            base = movement_base(x)
            known = base in self.materialized or base in self.recomputed
            if not known and can_be_stored(base):
                parts.append((max_elements(base.shape), -self.known[x].size, len(parts), base))
        return min(parts)[3] if parts else None

    def _forget(self, sources: Sequence[UOp], part: UOp) -> None:
        """Measure the movement between `sources` and `part` again: `part` is a load now."""
        for x in sources:
            chain = []
            below = x
            while below is not part and len(below.src) == 1:
                chain.append(below)
                below = below.src[0]
            if below is part:
                for node in reversed(chain):
                    self.known[node] = self._sum(node, node.src)


def can_be_stored(node: UOp) -> bool:
    """Whether a value can be materialised."""
    return (
        node.op in GroupOp.Elementwise or node.op in {Ops.REDUCE_AXIS, Ops.GATHER}
    ) and node.device is not None


def _shared(order: list[UOp]) -> set[UOp]:
    """The values that are used more than once, or padded or windowed to more elements, and the
    values below their movement.
    """
    seen: set[UOp] = set()
    shared: set[UOp] = set()
    for node in order:
        sources = node.src if len(node.src) < 2 else dict.fromkeys(node.src)
        for x in sources:
            if x in seen or (node.op in MORE_POINTS and node.shape != x.shape):
                shared.add(x)
            seen.add(x)
    for node in reversed(order):
        if node.op in GroupOp.Movement and node in shared:
            shared.add(node.src[0])
    return shared
