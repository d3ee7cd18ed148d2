"""Contractions: sums of products, as in matrix products, convolutions and their gradients.

A contraction is `out[...] = f(sum over k of a * b)` where some output axes index `a` alone and some
index `b` alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.codegen.analysis.ranges import FreeRanges, loops_of
from tinygrad.codegen.optimize.nest import Nest, points
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

# products, below which a nest is not worth a register tile
MIN_PRODUCTS = 1 << 12


@dataclass
class Contraction:
    """A store of a sum of products; `axes[i]` are the output axes of `operands[i]` alone."""

    store: UOp
    reduce: UOp
    operands: tuple[UOp, UOp]
    axes: tuple[list[UOp], list[UOp]]
    shared: list[UOp]
    free: FreeRanges
    untiled: frozenset[UOp] = frozenset()
    """Output axes that stay plain loops."""
    is_inner: bool = False
    """Whether the nest is inside of other loops."""

    def reduction_size(self) -> int:
        """The size of the reduction axes together."""
        return points(loops_of(self.reduce))

    def products(self) -> int:
        """The number of products of all outputs."""
        own = self.free[self.reduce].difference(self.free[self.store])
        return points(own.union(loops_of(self.reduce)))


def below_casts(node: UOp) -> UOp:
    """The value of which a node is a conversion, or the node."""
    while node.op is Ops.CAST:
        node = node.src[0]
    return node


def summed_product(reduce: UOp) -> UOp | None:
    """The product of floats, possibly converted, that a REDUCE sums; None for any other REDUCE."""
    product = below_casts(reduce.src[0])
    if reduce.arg is not Ops.ADD or product.op is not Ops.MUL:
        return None
    return product if dtypes.is_float(product.dtype) else None


def find_contraction(nest: Nest) -> Contraction | None:
    """The contraction of a nest with one store, or None."""
    if len(nest.stores) != 1:
        return None
    store = nest.stores[0]
    loops = loops_of(store)
    reduces = [u for u in store.toposort() if u.op is Ops.REDUCE]
    if len(reduces) != 1 or any(r.arg.kind is not AxisType.LOOP for r in loops):
        return None
    reduce = reduces[0]
    product = summed_product(reduce)
    if product is None:
        return None
    free = FreeRanges()
    outside = free[store]
    outputs = free[reduce].difference(outside)
    if not outputs.issubset(loops) or points(outputs.union(loops_of(reduce))) < MIN_PRODUCTS:
        return None
    left, right = product.src
    only_left = [r for r in loops if r in free[left] and r not in free[right]]
    only_right = [r for r in loops if r in free[right] and r not in free[left]]
    if not only_left or not only_right:
        return None
    shared = [r for r in loops if r not in only_left and r not in only_right]
    return Contraction(
        store,
        reduce,
        (left, right),
        (only_left, only_right),
        shared,
        free,
        is_inner=bool(outside),
    )
