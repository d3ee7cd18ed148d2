"""The loops of a kernel graph: free ranges, strides, substitution and creation of ranges.

In: nodes of a kernel graph. Out: their properties, or equal expressions over other ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tinygrad.codegen.analysis.affine_index import (
    Affine,
    affine,
    and_conditions,
    collect,
    simplify_division,
)
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.known_orders import kept_table
from tinygrad.uop.ops import AxisType, RangeArg, UOp
from tinygrad.uop.simplify.valid import is_always

NO_RANGES: frozenset[UOp] = frozenset()
_FIRST_LOOP = {
    Ops.REDUCE: 1,
    Ops.MMA_WAIT: 1,
    Ops.MBARRIER_INIT: 1,
    Ops.MBARRIER_ARRIVE: 2,
    Ops.STORE: 2,
    Ops.COPY_ASYNC: 2,
    Ops.MMA_ASYNC: 3,
    Ops.COPY_BULK: 3,
}
"""The number of the first source that is a loop: `REDUCE(value, *loops)`."""


def loops_of(node: UOp) -> tuple[UOp, ...]:
    """The loops that a node runs itself, outermost first: those of a reduction, a store, a copy or
    an asynchronous product.
    """
    first = _FIRST_LOOP.get(node.op)
    return () if first is None else node.src[first:]


def with_loops(node: UOp, loops: Iterable[UOp]) -> UOp:
    """A node that runs loops, with other ones."""
    return node.replace(src=(*node.src[: _FIRST_LOOP[node.op]], *loops))


class FreeRanges:
    """The free ranges of nodes, which are the loops that must enclose them; strides along these."""

    def __init__(self) -> None:
        self.known: dict[UOp, frozenset[UOp]] = kept_table("free ranges")
        self.forms: dict[UOp, Affine] = {}
        self.lane_strides: dict[tuple[UOp, UOp, int], int | None] = {}

    def __getitem__(self, node: UOp) -> frozenset[UOp]:
        known = self.known
        found = known.get(node)
        if found is not None:
            return found
        for source in node.src:
            if source not in known:
                self._add_all(node)
                return known[node]
        found = known[node] = self._of(node)
        return found

    def _add_all(self, root: UOp) -> None:
        known = self.known
        for x in root.toposort(gate=lambda u: u not in known):
            if x not in known:
                known[x] = self._of(x)

    def stride(self, index: UOp, axis: UOp) -> int | None:
        """The stride of `index` along `axis`; None if it is not constant."""
        form = self.forms.get(index)
        if form is None:
            form = self.forms[index] = affine(index)
        return self.coefficient(form, axis)

    def coefficient(self, form: Affine, axis: UOp) -> int | None:
        """The coefficient of `axis`; None if a factor other than `axis` depends on it."""
        if any(factor is not axis and axis in self[factor] for factor in form.terms):
            return None
        return form.terms.get(axis, 0)

    def lane_stride(self, index: UOp, axis: UOp, lanes: int) -> int | None:
        """The stride between lanes of an aligned vector along `axis`; None if not constant.

        An index into blocks of quantized numbers divides a loop counter, so it has no constant
        stride along the loop. A vector that starts at a multiple of its width lies in one block,
        so it does have one between lanes.
        """
        stride = self.stride(index, axis)
        if stride is not None or not is_static(axis) or extent(axis) % lanes:
            return stride
        key = (index, axis, lanes)
        if key not in self.lane_strides:
            factory = RangeFactory(index.toposort())
            vector = factory.new(extent(axis) // lanes, axis.arg.kind)
            lane = factory.new(lanes, AxisType.VECTOR)
            cut = substitute(index, {axis: vector * lanes + lane})
            self.lane_strides[key] = self.stride(cut, lane)
        return self.lane_strides[key]

    def _of(self, node: UOp) -> frozenset[UOp]:
        union = NO_RANGES
        for x in node.src:
            free = self.known[x]
            if free and free is not union:
                union = union | free if union else free
        if node.op is Ops.RANGE:
            return union | {node}
        if node.op in _FIRST_LOOP:
            loops = loops_of(node)
            return union.difference(loops) if loops else union
        return union


def substitute(node: UOp, table: Mapping[UOp, UOp], free: FreeRanges | None = None) -> UOp:
    """`node` with ranges replaced everywhere, in the loops of STOREs and REDUCEs too.

    A replacement may be any expression; changed index arithmetic is collected again. With `free`, a
    range is replaced only where it is free: an inner nest that runs the same range keeps it.
    """
    if not table:
        return node
    done: dict[UOp, UOp] = {}
    closed = set() if free is None else {u for u in node.toposort() if free[u].isdisjoint(table)}
    for x in node.toposort(gate=lambda u: u not in table and u not in closed):
        found = x if x in closed else table.get(x)
        if found is None:
            src = tuple([done[s] for s in x.src])
            found = x if src == x.src else rebuild(x, src)
        done[x] = found
    return done[node]


def map_nodes(sink: UOp, function: Callable[[UOp], UOp]) -> UOp:
    """A graph with every node, over sources that are replaced already, replaced by its image."""
    done: dict[UOp, UOp] = {}
    for u in sink.toposort():
        done[u] = function(u.with_sources(tuple([done[x] for x in u.src])))
    return done[sink]


_SUMS = frozenset({Ops.ADD, Ops.MUL, Ops.SUB})


def _is_index_sum(node: UOp) -> bool:
    return node.op in _SUMS and node.dtype is dtypes.index


def rebuild(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """`node` over new sources, with constants folded and index arithmetic collected."""
    if _is_index_sum(node):
        # collected once, at the use of the whole sum
        return UOp(node.op, node.dtype, src, node.arg)
    changed = [
        collect(new) if new is not old and _is_index_sum(new) else new
        for old, new in zip(node.src, src, strict=False)
    ]
    src = (*changed, *src[len(node.src) :])
    new = UOp(node.op, node.dtype, src, node.arg)
    if node.dtype is dtypes.index and node.op in {Ops.IDIV, Ops.MOD}:
        return simplify_division(new)
    if node.op in {Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ} and new.vmin == new.vmax:
        return UOp.const(node.dtype, bool(new.vmin))
    if node.op is Ops.AND and node.dtype is dtypes.bool:
        return and_conditions(*src)
    if node.op is Ops.INDEX and len(src) == 3 and is_always(src[2]):
        return UOp(Ops.INDEX, node.dtype, src[:2], node.arg)
    return new


def extent(axis: UOp) -> int:
    """The number of steps of a range; the upper bound of a symbolic one."""
    return int(axis.src[0].vmax)


def is_static(axis: UOp) -> bool:
    """Whether the number of steps of a range is a constant."""
    return axis.src[0].op is Ops.CONST


class RangeFactory:
    """Creates ranges with numbers that no range of a graph has."""

    def __init__(self, nodes: Iterable[UOp]) -> None:
        self.next = 1 + max((x.arg.index for x in nodes if x.op is Ops.RANGE), default=-1)

    def new(self, size: UOp | int, kind: AxisType) -> UOp:
        """A new range of `size` steps."""
        bound = UOp.const(dtypes.index, size)
        return UOp(Ops.RANGE, dtypes.index, (bound,), RangeArg(self.number(), kind))

    def role(self, thread: UOp, threads: range, registers: int = 0) -> UOp:
        """A new ROLE range for some `threads` of a block; `thread` is the range of all of them. A
        thread of the role has `registers` registers from then on; 0 leaves the number unchanged.
        """
        numbers = (UOp.const(dtypes.index, x) for x in (len(threads), threads.start))
        src = (*numbers, thread, UOp.const(dtypes.index, registers))
        return UOp(Ops.RANGE, dtypes.index, src, RangeArg(self.number(), AxisType.ROLE))

    def number(self) -> int:
        """A number for a range or an array, which no other of the graph has."""
        self.next += 1
        return self.next - 1

    def like(self, axis: UOp, kind: AxisType | None = None) -> UOp:
        """A new range of the size of `axis`."""
        return self.new(axis.src[0], kind or axis.arg.kind)


def clone_ranges(axes: list[UOp], factory: RangeFactory, kind: AxisType | None = None) -> list[UOp]:
    """New ranges of the sizes of `axes`, of which one may depend on another."""
    clones: list[UOp] = []
    for axis in axes:
        size = substitute(axis.src[0], dict(zip(axes, clones, strict=False)))
        clones.append(factory.new(size, kind or axis.arg.kind))
    return clones
