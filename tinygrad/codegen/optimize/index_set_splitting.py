"""Split loops where a condition changes, so that each part has none (index set splitting).

Before: `for r in 262: out[r] = (r < 3 ? a[r + 9] : 0) + (r < 3 ? 0 : b[r - 3])`. After:
`for r in 3: out[r] = a[r + 9]` and `for r in 259: out[r + 3] = b[r]`. A concatenation, a roll or a
padded array becomes plain copies. Invariant: every element is stored once, with the same value; but
where one of two padded arrays is zero, as in a concatenation, it is not added, so that negative
zeros of the other keep their sign.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import cast

from tinygrad.codegen.analysis.accesses import condition_of
from tinygrad.codegen.analysis.ranges import (
    RangeFactory,
    extent,
    is_static,
    loops_of,
    rebuild,
    with_loops,
)
from tinygrad.renderer import Renderer
from tinygrad.settings import NOOPT
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, KernelInfo, UOp
from tinygrad.uop.simplify.logic import negated_operand

MIN_POINTS = 1 << 12
"""The minimum iterations of a nest that is split: fewer are not worth the code of several."""
MAX_PIECES = 32
"""The maximum number of nests that one becomes."""
MIN_INNERMOST = 16
"""The minimum iterations of the innermost loop's longest piece, for vector lanes."""
MIN_RUN_BYTES = 1 << 10
"""The minimum contiguous bytes of a piece that is a nest of its own. Shorter pieces share the loops
around them, so that a cache line is written at one time.
"""


def split_index_sets(sink: UOp, renderer: Renderer) -> UOp:
    """Split the loops of a CPU kernel, where that leaves fewer conditions."""
    info = sink.arg if isinstance(sink.arg, KernelInfo) else KernelInfo()
    if NOOPT or renderer.target.has_threads or info.opts_to_apply is not None:
        return sink
    groups: dict[tuple[UOp, ...], list[UOp]] = {}
    for store in sink.src:
        groups.setdefault(loops_of(store), []).append(store)
    seen = [r for loops in groups for r in loops]
    nodes = sink.toposort()
    if len(set(seen)) < len(seen) or any(u.op in {Ops.REDUCE, Ops.AFTER} for u in nodes):
        return sink
    clauses = [u for u in nodes if _is_bound(u)]
    factory = RangeFactory(nodes)
    stores: list[UOp] = []
    for loops, group in groups.items():
        stores += _split_group(loops, group, clauses, factory)
    return sink.replace(src=tuple(stores)) if stores else sink


def _is_bound(node: UOp) -> bool:
    """Whether a node compares a loop counter with a constant."""
    return node.op is Ops.CMPLT and node.src[0].op is Ops.RANGE and node.src[1].op is Ops.CONST


def _split_group(
    loops: tuple[UOp, ...], stores: list[UOp], clauses: Iterable[UOp], factory: RangeFactory
) -> Iterator[UOp]:
    """The stores of every piece of a nest."""
    cuts = _cuts(loops, clauses)
    if not cuts:
        yield from stores
        return
    nbytes = stores[0].src[1].dtype.itemsize
    starts = [[0]] * len(loops)
    alone = [False] * len(loops)
    for number, r in reversed(list(enumerate(loops))):
        points = cuts.get(r, [])
        starts[number] = [0, *points]
        sizes = [b - a for a, b in itertools.pairwise((0, *points, extent(r)))]
        alone[number] = bool(points) and min(sizes) * nbytes >= MIN_RUN_BYTES
        nbytes *= extent(r)
    # the loops down to this one are those of a single piece
    own = max((i for i, x in enumerate(alone) if x), default=-1) + 1
    taken: dict[tuple[int, ...], UOp] = {}
    for piece in itertools.product(*starts):
        table: dict[UOp, UOp] = {}
        ranges: list[UOp] = []
        for number, (r, start) in enumerate(zip(loops, piece, strict=True)):
            key = (number, *piece[: max(own, number + 1)])
            if key not in taken:
                end = next((x for x in starts[number] if x > start), extent(r))
                taken[key] = factory.new(end - start, r.arg.kind)
            ranges.append(taken[key])
            table[r] = taken[key] + start if start else taken[key]
        specialized = [_specialize(store, table) for store in stores]
        yield from (with_loops(x, ranges) for x in specialized if not _is_never(condition_of(x)))


def _cuts(loops: tuple[UOp, ...], clauses: Iterable[UOp]) -> dict[UOp, list[int]]:
    """Where each loop is split: its counters at which a condition changes."""
    if not all(is_static(r) and r.arg.kind is AxisType.LOOP for r in loops):
        return {}
    if math.prod(map(extent, loops)) < MIN_POINTS:
        return {}
    cuts: dict[UOp, list[int]] = {}
    pieces = 1
    for r in reversed(loops):
        found = {int(c.src[1].arg) for c in clauses if c.src[0] is r}
        points = sorted(x for x in found if 0 < x < extent(r))
        lengths = [b - a for a, b in itertools.pairwise((0, *points, extent(r)))]
        is_short = r is loops[-1] and max(lengths) < MIN_INNERMOST
        if points and not is_short and pieces * len(lengths) <= MAX_PIECES:
            cuts[r] = points
            pieces *= len(lengths)
    return cuts


def _specialize(store: UOp, table: dict[UOp, UOp]) -> UOp:
    """A store with other expressions for its loops, without the branches that it never takes."""
    piece = _Piece(table)
    address, value = (piece.image(x) for x in store.src[:2])
    return UOp(Ops.STORE, store.dtype, (address, value, *loops_of(store)), store.arg)


class _Piece:
    """The values of nodes in one piece of a nest; what it does not need is not visited."""

    def __init__(self, table: dict[UOp, UOp]) -> None:
        self.table = table
        self.done: dict[UOp, UOp] = dict(table)
        self.truths: dict[UOp, bool | None] = {}
        # values that are 0 where a condition fails, and sums of these
        self.masked: set[UOp] = set()

    def image(self, root: UOp) -> UOp:
        """The node in place of `root`; iterative, as a graph may be deeper than Python's stack."""
        stack = [root]
        while stack:
            node = stack[-1]
            needed = () if node in self.done else self._needed(node)
            missing = [x for x in needed if x not in self.done]
            stack += missing
            if not missing:
                stack.pop()
                if node not in self.done:
                    self.done[node] = self._build(node, [self.done[x] for x in needed])
        return self.done[root]

    def _needed(self, node: UOp) -> tuple[UOp, ...]:
        """The nodes that the value of a node follows from."""
        if node.op is Ops.WHERE and (truth := self.truth(node.src[0])) is not None:
            return (node.src[1 if truth else 2],)
        if self._is_masked_out(node):
            return (node.src[1],)
        return node.src

    def _build(self, node: UOp, found: list[UOp]) -> UOp:
        is_sum = node.op in {Ops.ADD, Ops.OR} and self.masked.issuperset(node.src)
        if is_sum or _is_masked(node):
            self.masked.add(node)
        if len(found) < len(node.src):
            return found[0]
        if is_sum and (zeros := [_is_zero(x) for x in found]) != [False, False]:
            return found[zeros[0]]
        src = tuple(found)
        new = node if src == node.src else rebuild(node, src)
        if new.op is Ops.LOAD and len(new.src) == 2 and condition_of(new) is None:
            return new.replace(src=new.src[:1])
        return new

    def _is_masked_out(self, node: UOp) -> bool:
        """Whether a node is a load of nothing."""
        condition = condition_of(node) if node.op is Ops.LOAD else None
        return condition is not None and self.truth(condition) is False

    def truth(self, condition: UOp) -> bool | None:
        """Whether a condition holds in this piece; None where that is not known."""
        if condition not in self.truths:
            self.truths[condition] = self._find_truth(condition)
        return self.truths[condition]

    def _find_truth(self, condition: UOp) -> bool | None:
        if condition.op is Ops.AND:
            found = [self.truth(x) for x in condition.split_uop(Ops.AND)]
            return False if False in found else None if None in found else True
        if condition.op is Ops.CONST:
            return bool(condition.arg)
        inner = negated_operand(condition)
        if inner is not None:
            found_inner = self.truth(cast(UOp, inner))
            return None if found_inner is None else not found_inner
        if not _is_bound(condition):
            return None
        counter, limit = condition.src
        position = self.table.get(counter, counter)
        if position.vmax < limit.arg:
            return True
        return False if position.vmin >= limit.arg else None


def _is_never(condition: UOp | None) -> bool:
    return condition is not None and condition.op is Ops.CONST and not condition.arg


def _is_zero(value: UOp) -> bool:
    return value.op is Ops.CONST and not value.arg


def _is_masked(value: UOp) -> bool:
    """Whether a value is 0 where a condition fails, as each part of a concatenation is."""
    if value.op is Ops.WHERE:
        return any(map(_is_zero, value.src[1:]))
    return value.op is Ops.LOAD and condition_of(value) is not None
