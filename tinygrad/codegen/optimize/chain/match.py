"""Match chains: reductions of an expression that contains products, such as attention.

A chain is `out[row, column] = sum over key of weight[row, key] * value[key, column]`, or a sum or
maximum of `weight[row, key]`. The weights are elementwise in products
`sum over depth of a[row, depth] * b[key, depth]`. They may be a softmax over keys.

Example: attention `softmax(q @ k.T) @ v`. `products` is the one reduction `q @ k.T`, its axis is
the depth, `weight` is the softmax and `value` is v. In the gradient of v, the roles of rows and
keys are exchanged, and the weights are loaded statistics and one product.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tinygrad.codegen.analysis.alpha_equivalence import is_alpha_equivalent
from tinygrad.codegen.analysis.ranges import FreeRanges, extent, is_static, loops_of, substitute
from tinygrad.codegen.optimize.chain.softmax import Softmax, find_softmax
from tinygrad.codegen.optimize.contraction import below_casts, summed_product
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp


@dataclass(frozen=True)
class Chain:
    """The parts of a chain."""

    store: UOp
    """The store of the result."""
    reduce: UOp
    """The outer reduction, over keys."""
    weight: UOp
    value: UOp | None
    """What the weights are multiplied by; None if the weights themselves are reduced."""
    products: tuple[UOp, ...]
    """The inner reductions: products of rows and keys, in `weight`."""
    row: UOp
    """The output loop over rows, which is blocked. Further loops of the weights are batch loops."""
    columns: tuple[UOp, ...]
    """The output loops that `value` has and `weight` has not."""
    softmax: Softmax | None

    @property
    def key(self) -> UOp:
        """The loop of the outer reduction that is blocked."""
        return self.reduce.src[-1]


def find_chain(nest: Nest) -> Chain | None:
    """The chain of a nest; None if it is none. Further stores of the nest are the maximum and the
    sum of its softmax.
    """
    return chain_of_stores(nest.stores)


def chain_of_stores(stores: Sequence[UOp]) -> Chain | None:
    """The chain whose result the first of `stores` writes; the others write its statistics."""
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
        softmax = chain.softmax if chain.softmax.divisor is not None else _with_total(chain, others)
        if not others <= {softmax.total}:
            return None
        chain = replace(chain, softmax=softmax)
    return chain


def has_blocks(chain: Chain) -> bool:
    """Whether all loops have known sizes, except those that are blocked."""
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
        if is_sum and is_alpha_equivalent(softmax.exponential, x.src[0], {chain.key: x.src[1]}):
            return replace(softmax, total=x)
    return softmax


def outermost_reduces(root: UOp) -> list[UOp]:
    """The reductions of an expression that are in no other reduction."""
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
    softmax = find_softmax(weight, key, statistics) if statistics else None
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
    product = below_casts(term)
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
    product = summed_product(reduce)
    if product is None or outermost_reduces(product):
        return False
    return sum(key in free[x] for x in product.src) == 1


# ---- statistics that other kernels need too ----


def join_statistics(groups: list[list[UOp]]) -> list[list[UOp]]:
    """Join groups of stores: a store of the maximum or the sum of a softmax goes to the group of
    the chain that computes it anyway.
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
    """`store` in the loops of the chain, if it stores the maximum or the sum of its softmax; None
    otherwise.
    """
    total = softmax.total
    if total is None:
        total = softmax.exponential.reduce(chain.key, arg=Ops.ADD)
    for statistic in (softmax.maximum, total):
        renamed: dict[UOp, UOp] = {}
        if not is_alpha_equivalent(store.src[1], statistic, renamed, loops_of(store)):
            continue
        loops = tuple(renamed.get(r, r) for r in loops_of(store))
        if set(loops) == set(loops_of(chain.store)).difference(chain.columns):
            return substitute(store.src[0], renamed).store(statistic, *loops)
    return None
