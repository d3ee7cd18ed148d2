"""Chains: reductions of an expression that contains products, as in attention and its gradients.

A chain is `out[row, column] = sum over k of weight[row, k] * value[k, column]`, or a sum or maximum
of `weight[row, k]`, where `weight` is elementwise in products `sum over e of a[row, e] * b[k, e]`.
The weights may be the exponentials of a softmax, divided by their sum over k.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tinygrad.codegen.analysis.ranges import FreeRanges, extent, is_static, loops_of, substitute
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.dtype import dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp
from tinygrad.uop.reduction import lowest


@dataclass(frozen=True)
class Softmax:
    """A softmax in the weights of a chain: `exponential` of `scores` minus their `maximum`."""

    scores: UOp
    exponential: UOp
    maximum: UOp
    total: UOp | None
    """The sum of the exponentials, if it is needed."""
    divides: bool
    """Whether the weights are divided by that sum."""


@dataclass(frozen=True)
class Chain:
    """The parts of a chain. `value` is None where the weights themselves are reduced."""

    store: UOp
    reduce: UOp
    weight: UOp
    value: UOp | None
    products: tuple[UOp, ...]
    row: UOp
    columns: tuple[UOp, ...]
    softmax: Softmax | None

    @property
    def key(self) -> UOp:
        """The loop of the outer reduction that is blocked."""
        return self.reduce.src[-1]


def find_chain(nest: Nest) -> Chain | None:
    """The chain of a nest, or None. Other stores of the nest hold statistics of its softmax."""
    return chain_of_stores(nest.stores)


def chain_of_stores(stores: Sequence[UOp]) -> Chain | None:
    """The chain of some stores, of which the first is that of the chain."""
    store = stores[0]
    loops = loops_of(store)
    if not loops or any(r.arg.kind is not AxisType.LOOP for r in loops):
        return None
    outer = outermost_reduces(store.src[1])
    if len(outer) != 1:
        return None
    chain = _chain_of(store, outer[0])
    if chain is None or not has_blocks(chain):
        return None
    if len(stores) > 1:
        if chain.softmax is None:
            return None
        others = {x.src[1] for x in stores[1:]}.difference({chain.softmax.maximum})
        softmax = chain.softmax if chain.softmax.divides else _with_total(chain, others)
        if not others <= {softmax.total}:
            return None
        chain = replace(chain, softmax=softmax)
    return chain


def has_blocks(chain: Chain) -> bool:
    """Whether loops have known sizes, but for those over which there are blocks."""
    free = FreeRanges()
    others = (*chain.columns, *chain.reduce.src[1:-1])
    symbolic = [r for r in (*loops_of(chain.store), chain.key) if not is_static(r)]
    return all(map(is_static, others)) and all(
        not free[r.src[0]] and r.src[0].vmin > 0 for r in symbolic
    )


def _with_total(chain: Chain, others: Collection[UOp]) -> Softmax:
    """The softmax of a chain with the one of `others` that is the sum of its exponentials."""
    softmax = chain.softmax
    assert softmax is not None, "the chain has a softmax"
    for x in others:
        is_sum = x.op is Ops.REDUCE and x.arg is Ops.ADD and len(x.src) == 2
        if is_sum and is_same(softmax.exponential, x.src[0], {chain.key: x.src[1]}):
            return replace(softmax, total=x)
    return softmax


def outermost_reduces(root: UOp) -> list[UOp]:
    """The reductions of an expression that are not part of another one."""
    found = root.toposort(gate=lambda u: u.op is not Ops.REDUCE)
    return [u for u in found if u.op is Ops.REDUCE]


def _chain_of(store: UOp, reduce: UOp) -> Chain | None:
    weight, value = _operands(reduce)
    if weight is None:
        return None
    free = FreeRanges()
    key = reduce.src[-1]
    inner = outermost_reduces(weight)
    products = [u for u in inner if key in free[u]]
    statistics = [u for u in inner if key not in free[u]]
    if not products or not all(_is_product(u, key, free) for u in products):
        return None
    softmax = _find_softmax(weight, key, statistics) if statistics else None
    if statistics and softmax is None:
        return None
    loops = loops_of(store)
    beside = free[value] if value is not None else frozenset[UOp]()
    rows = [r for r in loops if all(r in free[p] for p in products) and r not in beside]
    columns = tuple(r for r in loops if r in beside and r not in free[weight])
    if not rows or (value is not None and not columns):
        return None
    row = max(rows, key=extent)
    return Chain(store, reduce, weight, value, tuple(products), row, columns, softmax)


def _operands(reduce: UOp) -> tuple[UOp | None, UOp | None]:
    """The weights of a reduction, and the values that they are multiplied with."""
    term = reduce.src[0]
    if not dtypes.is_float(term.dtype):
        return None, None
    product = term
    while product.op is Ops.CAST:
        product = product.src[0]
    if reduce.arg is Ops.ADD and product.op is Ops.MUL:
        nested = [bool(outermost_reduces(x)) for x in product.src]
        if nested == [True, False] or nested == [False, True]:
            weight, value = product.src if nested[0] else product.src[::-1]
            if not FreeRanges()[value].isdisjoint(loops_of(reduce)) and _has_column(value, weight):
                return weight, value
    return (term, None) if outermost_reduces(term) else (None, None)


def _has_column(value: UOp, weight: UOp) -> bool:
    free = FreeRanges()
    return any(r not in free[weight] and r.arg.kind is AxisType.LOOP for r in free[value])


def _is_product(reduce: UOp, key: UOp, free: FreeRanges) -> bool:
    """Whether a reduction is a sum of products of which one operand alone depends on `key`."""
    product = reduce.src[0]
    while product.op is Ops.CAST:
        product = product.src[0]
    if reduce.arg is not Ops.ADD or product.op is not Ops.MUL:
        return False
    if outermost_reduces(product) or not dtypes.is_float(product.dtype):
        return False
    return sum(key in free[x] for x in product.src) == 1


# ---- softmax ----


def _find_softmax(weight: UOp, key: UOp, statistics: list[UOp]) -> Softmax | None:
    """The softmax in an expression with these reductions of whole rows."""
    maxima = [u for u in statistics if u.arg is Ops.MAX]
    totals = [u for u in statistics if u.arg is Ops.ADD]
    if len(maxima) != 1 or len(totals) > 1 or len(maxima) + len(totals) < len(statistics):
        return None
    maximum = maxima[0]
    if len(maximum.src) != 2:
        return None
    found = [u for u in weight.toposort() if u.op in GroupOp.Exponential and key in FreeRanges()[u]]
    for exponential in found:
        scores = _scores_of(exponential, maximum)
        if scores is None or not is_same(scores, maximum.src[0], {key: maximum.src[1]}):
            continue
        total = totals[0] if totals else None
        if total is not None:
            renamed = {key: total.src[1]}
            if len(total.src) != 2 or not is_same(exponential, total.src[0], renamed):
                return None
        steps = linear_steps(weight, exponential, total)
        if steps is None or sum(_divides_by(u, total) for u in steps) != len(totals):
            return None
        return Softmax(scores, exponential, maximum, total, total is not None)
    return None


def _scores_of(exponential: UOp, maximum: UOp) -> UOp | None:
    """`x` of the exponential of `(x - maximum) * c` with a positive constant c."""
    node = exponential.src[0]
    if node.op is Ops.MUL and node.src[1].op is Ops.CONST and node.src[1].arg > 0:
        node = node.src[0]
    if node.op is Ops.SUB and _is_maximum(node.src[1], maximum):
        return node.src[0]
    if node.op is not Ops.ADD:
        return None
    for x, y in (node.src, node.src[::-1]):
        if y.op is Ops.NEG and _is_maximum(y.src[0], maximum):
            return x
        if y.op is Ops.MUL and _is_maximum(y.src[0], maximum) and y.src[1].op is Ops.CONST:
            return x if y.src[1].arg == -1 else None
    return None


def _is_maximum(node: UOp, maximum: UOp) -> bool:
    """Whether a node is `maximum`, or that with the lowest number as its lower bound."""
    if node.op is Ops.MAX and node.src[1].op is Ops.CONST:
        return node.src[0] is maximum and node.src[1].arg == lowest(node.dtype)
    return node is maximum


def linear_steps(weight: UOp, exponential: UOp, total: UOp | None) -> list[UOp] | None:
    """The ops from `weight` down to `exponential`, in which it is linear; None if it is not."""
    steps: list[UOp] = []
    node = weight
    while node is not exponential:
        inside = [i for i, x in enumerate(node.src) if exponential in x.toposort()]
        if len(inside) != 1:
            return None
        side = inside[0]
        if node.op is Ops.CAST:
            is_linear = dtypes.is_float(node.dtype)
        elif node.op is Ops.MUL:
            other = node.src[1 - side]
            is_linear = total not in other.toposort() or is_reciprocal(other, total)
        elif node.op is Ops.FDIV:
            is_linear = side == 0 and (node.src[1] is total or total not in node.src[1].toposort())
        elif node.op is Ops.WHERE:
            other = node.src[3 - side] if side else node
            is_linear = side > 0 and other.op is Ops.CONST and other.arg == 0
            is_linear = is_linear and total not in node.src[0].toposort()
        else:
            is_linear = False
        if not is_linear:
            return None
        steps.append(node)
        node = node.src[side]
    return steps


def is_reciprocal(node: UOp, total: UOp | None) -> bool:
    """Whether a node is `1 / total`."""
    while node.op is Ops.CAST:
        node = node.src[0]
    return node.op is Ops.RECIPROCAL and total is not None and node.src[0] is total


def _divides_by(node: UOp, total: UOp | None) -> bool:
    if node.op is Ops.FDIV:
        return node.src[1] is total
    return node.op is Ops.MUL and any(is_reciprocal(x, total) for x in node.src)


def without_division(weight: UOp, softmax: Softmax) -> UOp:
    """The weights before they are divided by the sum of the exponentials."""
    if softmax.total is None or not softmax.divides:
        return weight
    steps = linear_steps(weight, softmax.exponential, softmax.total)
    assert steps is not None, "the weights are linear in the exponential"
    node = softmax.exponential
    below = softmax.exponential
    for step in reversed(steps):
        if not _divides_by(step, softmax.total):
            node = step.replace(src=tuple(node if x is below else x for x in step.src))
        below = step
    return node


def is_same(a: UOp, b: UOp, renamed: dict[UOp, UOp], loops: Collection[UOp] = ()) -> bool:
    """Whether two expressions are equal when ranges in `a` are `renamed`. Those among `loops` get
    the name that makes it so.
    """
    seen: set[tuple[UOp, UOp]] = set()
    stack = [(a, b)]
    while stack:
        pair = stack.pop()
        x, y = pair
        if pair in seen:
            continue
        seen.add(pair)
        if x.op is not y.op or x.dtype is not y.dtype or len(x.src) != len(y.src):
            return False
        if x.op is Ops.RANGE:
            if x in loops and x not in renamed and x.src == y.src and y not in renamed.values():
                renamed[x] = y
            if renamed.get(x, x) is not y:
                return False
            continue
        if x.arg != y.arg:
            return False
        if x.op is Ops.REDUCE:
            pairs = list(zip(loops_of(x), loops_of(y), strict=True))
            if any(r.src[0] is not s.src[0] for r, s in pairs):
                return False
            renamed.update(pairs)
        stack += zip(x.src, y.src, strict=True)
    return True


# ---- statistics that other kernels need too


def join_statistics(groups: list[list[UOp]]) -> list[list[UOp]]:
    """Groups of stores, in which stores of the maximum and the sum of a softmax are in the group of
    the chain that computes them anyway.
    """
    for group in groups if len(groups) > 1 else ():
        chain = chain_of_stores(group) if len(group) == 1 else None
        if chain is None or chain.softmax is None:
            continue
        joined = [group[0]]
        others: list[list[UOp]] = []
        for other in groups:
            if other is group:
                continue
            found = [_as_statistic(store, chain, chain.softmax) for store in other]
            stores = [store for store in found if store is not None]
            if len(stores) == len(found):
                joined += stores
            else:
                others.append(other)
        if len(joined) > 1:
            return [joined, *others]
    return groups


def _as_statistic(store: UOp, chain: Chain, softmax: Softmax) -> UOp | None:
    """A store of a statistic of the softmax of a chain, over the loops of the chain."""
    total = softmax.total
    if total is None:
        total = softmax.exponential.reduce(chain.key, arg=Ops.ADD)
    for statistic in (softmax.maximum, total):
        renamed: dict[UOp, UOp] = {}
        if not is_same(store.src[1], statistic, renamed, loops_of(store)):
            continue
        loops = tuple(renamed.get(r, r) for r in loops_of(store))
        if set(loops) == set(loops_of(chain.store)).difference(chain.columns):
            return substitute(store.src[0], renamed).store(statistic, *loops)
    return None


__all__ = [
    "Chain",
    "Softmax",
    "find_chain",
    "join_statistics",
    "outermost_reduces",
    "without_division",
]
