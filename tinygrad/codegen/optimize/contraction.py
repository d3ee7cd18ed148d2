"""Contractions: sums of products, as in matrix products, convolutions and their gradients.

A contraction is `out[...] = f(sum over k of a * b)` where some output axes index `a` alone and some
index `b` alone. Several such sums may be added, as in `a @ b + c @ d`: one register tile computes
them, one after the other.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from dataclasses import dataclass

from tinygrad.codegen.analysis.ranges import FreeRanges, loops_of
from tinygrad.codegen.optimize.nest import Nest, points
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

# products, below which a nest is not worth a register tile
MIN_PRODUCTS = 1 << 12


@dataclass
class SumOfProducts:
    """A reduction of a contraction; `operands[i]` have the contraction's `axes[i]`, whichever way
    round they are multiplied.
    """

    reduce: UOp
    operands: tuple[UOp, UOp]

    def reduction_size(self) -> int:
        """The size of the reduction axes together."""
        return points(loops_of(self.reduce))


@dataclass
class Contraction:
    """A store of a function of sums of products; `axes[i]` are the output axes of `operands[i]`
    alone of every sum.
    """

    store: UOp
    total: UOp
    sums: list[SumOfProducts]
    axes: tuple[list[UOp], list[UOp]]
    shared: list[UOp]
    free: FreeRanges
    untiled: frozenset[UOp] = frozenset()
    """Output axes that stay plain loops."""
    outer: tuple[UOp, ...] = ()
    """Reduction axes outside of the blocks of a reduction, of which there is one."""
    is_inner: bool = False
    """Whether the nest is inside of other loops."""

    def multiply_adds(self) -> int:
        """The number of multiply-adds of all outputs."""
        outside = self.free[self.store]
        return sum(
            points(self.free[x.reduce].difference(outside).union(loops_of(x.reduce)))
            for x in self.sums
        )


def below_casts(node: UOp) -> UOp:
    """The value of which a node is a conversion, or the node."""
    while node.op is Ops.CAST:
        node = node.src[0]
    return node


def summed_product(reduce: UOp, integers: bool = False) -> UOp | None:
    """The product of floats, possibly converted, that a REDUCE sums, or of `integers`; None for any
    other REDUCE.
    """
    product = below_casts(reduce.src[0])
    if reduce.arg is not Ops.ADD or product.op is not Ops.MUL:
        return None
    return product if integers or dtypes.is_float(product.dtype) else None


def find_contraction(nest: Nest, integers: bool = False) -> Contraction | None:
    """The contraction of a nest with one store, of floats or also of `integers`, or None."""
    if len(nest.stores) != 1:
        return None
    store = nest.stores[0]
    loops = loops_of(store)
    reduces = reductions_of(store)
    total = total_of(reduces, store)
    if total is None or any(r.arg.kind is not AxisType.LOOP for r in loops):
        return None
    free = FreeRanges()
    outside = free[store]
    axes: tuple[list[UOp], list[UOp]] = ([], [])
    sums: list[SumOfProducts] = []
    for reduce in reduces:
        product = summed_product(reduce, integers)
        if product is None or reductions_of(product):
            return None
        if not free[reduce].difference(outside).issubset(loops):
            return None
        left, right = product.src
        only_left = [r for r in loops if r in free[left] and r not in free[right]]
        only_right = [r for r in loops if r in free[right] and r not in free[left]]
        if sums and not set(only_left).intersection(axes[0]):
            left, right, only_left, only_right = right, left, only_right, only_left
        if sums:
            only_left = [r for r in only_left if r in axes[0]]
            only_right = [r for r in only_right if r in axes[1]]
        if not only_left or not only_right:
            return None
        axes = only_left, only_right
        sums.append(SumOfProducts(reduce, (left, right)))
    shared = [r for r in loops if r not in axes[0] and r not in axes[1]]
    found = Contraction(store, total, sums, axes, shared, free, is_inner=bool(outside))
    return found if found.multiply_adds() >= MIN_PRODUCTS else None


def reductions_of(node: UOp) -> list[UOp]:
    """The reductions that an expression is computed from, those of its first source first."""
    return [u for u in node.toposort() if u.op is Ops.REDUCE]


def total_of(reduces: list[UOp], store: UOp) -> UOp | None:
    """The sum of all reductions of a store, None if they are not all added before anything else."""
    added = dict.fromkeys(reduces, 1)
    for u in store.toposort():
        if u.op is Ops.ADD and all(x in added for x in u.src):
            added[u] = sum(added[x] for x in u.src)
    return next((u for u, count in added.items() if count == len(reduces)), None)


def add_reductions_first(store: UOp) -> UOp:
    """A store whose sums add reductions before other terms, so that these have one accumulator."""
    nodes = store.toposort()
    if sum(u.op is Ops.REDUCE for u in nodes) < 2:
        return store
    uses = Counter(x for u in nodes for x in u.src)
    terms: dict[UOp, list[UOp]] = {}
    for u in nodes:
        if u.op is Ops.ADD and dtypes.is_float(u.dtype):
            terms[u] = [y for x in u.src for y in (terms.get(x, [x]) if uses[x] == 1 else [x])]
    table: dict[UOp, UOp] = {}
    for total, found in terms.items():
        reduces = [x for x in found if x.op is Ops.REDUCE]
        if 1 < len(reduces) < len(found):
            rest = [x for x in found if x.op is not Ops.REDUCE]
            table[total] = functools.reduce(operator.add, reduces + rest)
    return store.substitute(table)
