"""Analyses of the loops of a kernel graph: free ranges, affine indices, substitution of ranges.

In: nodes of a kernel graph. Out: their properties, or equal expressions over other ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, RangeArg, UOp

NO_RANGES: frozenset[UOp] = frozenset()


def own_ranges(node: UOp) -> tuple[UOp, ...]:
    """The loops that a REDUCE or STORE runs itself; () for any other node."""
    if node.op is Ops.REDUCE:
        return node.src[1:]
    if node.op is Ops.STORE:
        return node.src[2:]
    return ()


class FreeRanges:
    """Memoised: the free ranges of nodes, loops that must enclose them, and strides of indices."""

    def __init__(self) -> None:
        self.known: dict[UOp, frozenset[UOp]] = {}
        self.forms: dict[UOp, Affine] = {}
        self.lane_strides: dict[tuple[UOp, UOp, int], int | None] = {}

    def __getitem__(self, node: UOp) -> frozenset[UOp]:
        found = self.known.get(node)
        if found is None and all(x in self.known for x in node.src):
            found = self.known[node] = self._of(node)
        elif found is None:
            for x in node.toposort(gate=lambda u: u not in self.known):
                if x not in self.known:
                    self.known[x] = self._of(x)
            found = self.known[node]
        return found

    def stride(self, index: UOp, axis: UOp) -> int | None:
        """The stride of `index` along `axis`; None if it is not constant."""
        form = self.forms.get(index)
        if form is None:
            form = self.forms[index] = affine(index)
        return form.stride(axis, self)

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
        if node.op in {Ops.REDUCE, Ops.STORE}:
            own = own_ranges(node)
            return union.difference(own) if own else union
        return union


@dataclass
class Affine:
    """An integer expression as `constant + sum(coefficient * factor)`."""

    constant: int = 0
    terms: dict[UOp, int] = field(default_factory=dict)

    def add(self, factor: UOp, coefficient: int) -> None:
        """Add `coefficient * factor`."""
        total = self.terms.get(factor, 0) + coefficient
        if total:
            self.terms[factor] = total
        else:
            self.terms.pop(factor, None)

    def stride(self, axis: UOp, free: FreeRanges) -> int | None:
        """The coefficient of `axis`; None if a factor other than `axis` depends on it."""
        if any(f is not axis and axis in free[f] for f in self.terms):
            return None
        return self.terms.get(axis, 0)


def affine(index: UOp) -> Affine:
    """The affine form of `index`. Any op but +, - and * by a constant is a factor of its own."""
    result = Affine()
    stack = [(index, 1)]
    while stack:
        node, scale = stack.pop()
        if node.op is Ops.CONST:
            result.constant += scale * int(node.arg)
        elif node.op is Ops.ADD:
            stack += [(x, scale) for x in node.src]
        elif node.op is Ops.SUB:
            stack += [(node.src[0], scale), (node.src[1], -scale)]
        elif node.op is Ops.NEG:
            stack.append((node.src[0], -scale))
        elif node.op is Ops.MUL and node.src[1].op is Ops.CONST:
            stack.append((node.src[0], scale * int(node.src[1].arg)))
        elif node.op is Ops.MUL and node.src[0].op is Ops.CONST:
            stack.append((node.src[1], scale * int(node.src[0].arg)))
        else:
            result.add(node, scale)
    return result


_KIND_ORDER = {kind: i for i, kind in enumerate(AxisType)}


def _term_key(factor: UOp) -> tuple[int, int]:
    # inner loops last, so that the sum of the others is loop-invariant
    if factor.op is Ops.RANGE:
        return (1 + _KIND_ORDER[factor.arg.kind], factor.arg.index)
    return (0, 0)


def build_affine(value: Affine) -> UOp:
    """The expression of an affine form; innermost loops are added last."""
    total: UOp | None = None
    for factor in sorted(value.terms, key=_term_key):
        coefficient = value.terms[factor]
        term = factor
        if coefficient != 1:
            term = UOp(Ops.MUL, dtypes.index, (factor, index_const(coefficient)))
        total = term if total is None else UOp(Ops.ADD, dtypes.index, (total, term))
    if total is None:
        return index_const(value.constant)
    if not value.constant:
        return total
    return UOp(Ops.ADD, dtypes.index, (total, index_const(value.constant)))


def index_const(value: int) -> UOp:
    """A constant of index arithmetic."""
    return UOp(Ops.CONST, dtypes.index, (), value)


def collect(index: UOp) -> UOp:
    """The index in affine form: products distributed, equal factors collected."""
    return build_affine(affine(index))


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
        return UOp.const(dtypes.bool, bool(new.vmin))
    if node.op is Ops.AND and node.dtype is dtypes.bool:
        return and_conditions(*src)
    if node.op is Ops.INDEX and len(src) == 3 and src[2].op is Ops.CONST and src[2].arg:
        return UOp(Ops.INDEX, node.dtype, src[:2], node.arg)
    return new


def simplify_division(node: UOp) -> UOp:
    """Simplify an IDIV or MOD of a non-negative dividend by taking multiples of the divisor out."""
    dividend, divisor = node.src
    if divisor.op is not Ops.CONST or divisor.arg <= 0:
        return node
    by = int(divisor.arg)
    if dividend.vmin < 0:
        return node
    if dividend.vmax < by:
        return UOp.const(dtypes.index, 0) if node.op is Ops.IDIV else dividend
    whole, rest = Affine(), Affine()
    for factor, coefficient in affine(dividend).terms.items():
        multiple = coefficient // by if coefficient >= 0 else 0
        if multiple:
            whole.add(factor, multiple)
        if coefficient - multiple * by:
            rest.add(factor, coefficient - multiple * by)
    constant = affine(dividend).constant
    whole.constant, rest.constant = constant // by, constant % by
    remainder = build_affine(rest)
    if remainder.vmin < 0:
        return node
    if node.op is Ops.MOD:
        if remainder.vmax < by:
            return remainder
        if not whole.terms and not whole.constant:
            return _reduce_fraction(node)
        return simplify_division(UOp(Ops.MOD, dtypes.index, (remainder, divisor)))
    quotient = build_affine(whole)
    if remainder.vmax < by:
        return quotient
    if not whole.terms and not whole.constant:
        return _reduce_fraction(node)
    return collect(quotient + simplify_division(UOp(Ops.IDIV, dtypes.index, (remainder, divisor))))


def _reduce_fraction(node: UOp) -> UOp:
    """`(g*x + r) // (g*n)` is `x // n`, and `% (g*n)` is `(x % n) * g + r`, where `0 <= r < g`."""
    dividend, divisor = node.src
    by = int(divisor.arg)
    parts = affine(dividend)
    for common in sorted({abs(c) for c in parts.terms.values()}, reverse=True):
        if common <= 1 or by % common:
            continue
        high, low = Affine(parts.constant // common), Affine(parts.constant % common)
        for factor, coefficient in parts.terms.items():
            if coefficient % common:
                low.add(factor, coefficient)
            else:
                high.add(factor, coefficient // common)
        rest = build_affine(low)
        whole = build_affine(high)
        if rest.vmin < 0 or rest.vmax >= common or whole.vmin < 0:
            continue
        divided = UOp(node.op, dtypes.index, (whole, UOp.const(dtypes.index, by // common)))
        smaller = simplify_division(divided)
        return smaller if node.op is Ops.IDIV else collect(smaller * common + rest)
    return node


def and_conditions(*conditions: UOp | None) -> UOp:
    """The AND of conditions, where None is true."""
    result: UOp | None = None
    for x in conditions:
        if x is None or (x.op is Ops.CONST and x.arg):
            continue
        if x.op is Ops.CONST:
            return x
        result = x if result is None or result is x else UOp(Ops.AND, dtypes.bool, (result, x))
    return UOp.const(dtypes.bool, True) if result is None else result


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
        axis = UOp(Ops.RANGE, dtypes.index, (bound,), RangeArg(self.next, kind))
        self.next += 1
        return axis

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
