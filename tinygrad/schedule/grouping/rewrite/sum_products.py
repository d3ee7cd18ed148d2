"""Sums of products of one weight: each product is a contraction of its own.

Before: `sum over k of (a * b + c * d)` with outer products, as in the gradient of a weight that is
used several times: the gradients of its uses are added before the sum over the batch. After: `sum
over k of a * b + sum over k of c * d`. Code generation tiles these; the sum before is a plain loop.
"""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.schedule.grouping.values import below_casts
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.sint import is_one


def split_sum_of_products(node: UOp, x: UOp) -> UOp | None:
    """`sum(a * b + c * d + rest) -> sum(a * b) + sum(c * d) + sum(rest)` for outer products."""
    if node.arg.op is not Ops.ADD:
        return None
    terms = _terms(x)
    products = [term for term in terms if _is_outer(term, node.arg.axes)]
    rest = [term for term in terms if not _is_outer(term, node.arg.axes)]
    if not products:
        return None
    sums = [node.replace(src=(term,)) for term in products]
    if rest:
        sums.append(node.replace(src=(_added(rest),)))
    return _added(sums)


def _terms(node: UOp) -> list[UOp]:
    """What a tree of additions adds, in order."""
    found: list[UOp] = []
    stack = [node]
    while stack:
        x = stack.pop()
        if x.op is Ops.ADD:
            stack.extend(reversed(x.src))
        else:
            found.append(x)
    return found


def _added(terms: list[UOp]) -> UOp:
    total, *others = terms
    for term in others:
        total = UOp(Ops.ADD, total.dtype, (total, term))
    return total


def _is_outer(term: UOp, reduced: tuple[int, ...]) -> bool:
    """Whether a term is a product of floats, of which each has an axis of the result that the
    other one repeats.
    """
    product = below_casts(term)
    if product.op is not Ops.MUL or not dtypes.is_float(product.dtype):
        return False
    repeated = [_repeated_axes(x).difference(reduced) for x in product.src]
    return bool(repeated[0] - repeated[1] and repeated[1] - repeated[0])


def _repeated_axes(operand: UOp) -> set[int]:
    """The axes along which an EXPAND repeats its source."""
    operand = below_casts(operand)
    if operand.op is not Ops.EXPAND:
        return set()
    pairs = enumerate(zip(operand.src[0].shape, operand.shape, strict=True))
    return {i for i, (old, new) in pairs if is_one(old) and not is_one(new)}
