"""Comparison of index expressions: one canonical form, fewest terms.

`x < c` with the constant on the right and factors without a common divisor, or the negation of such
a comparison. Terms that are negative on the left go to the right. Index arithmetic never wraps, so
terms may change sides.
"""

from __future__ import annotations

from tinygrad.helpers import ceildiv
from tinygrad.uop import Ops
from tinygrad.uop.divmod import greatest
from tinygrad.uop.linear import (
    INDEX,
    Terms,
    add_terms,
    build_sum,
    common_factor,
    constant,
    negation,
    sorted_terms,
    split_sum,
    sum_bounds,
)
from tinygrad.uop.node import Node


def _negated(terms: Terms) -> Terms:
    return {base: -factor for base, factor in terms.items()}


def _difference(u: Node) -> tuple[Terms, int]:
    """`left - right` of a comparison."""
    left, right = u.src
    terms, total = split_sum(left)
    other, other_total = split_sum(right)
    return (add_terms(terms, other, -1) if other else terms), total - other_total


def simplify_cmplt(u: Node) -> Node | None:
    """The canonical form of `x < y` on indices."""
    if u.src[0].dtype is not INDEX:
        return None
    terms, total = _difference(u)
    if greatest(terms, total) < 0:
        return u.const_like(True)
    if greatest(_negated(terms), -total) <= 0:
        return u.const_like(False)
    terms, limit = _reduce_inequality(terms, -total)
    like = u.src[0]
    if len(terms) == 1:
        ((base, factor),) = terms.items()
        if factor == 1 and base.op is Ops.IDIV and base.src[1].op is Ops.CONST:
            divisor = base.src[1].arg
            if divisor > 0:
                # a quotient is rounded toward zero
                bound = limit * divisor if limit > 0 else (limit - 1) * divisor + 1
                return u.replace(src=(base.src[0], constant(like, bound)))
    positive = {base: factor for base, factor in terms.items() if factor > 0}
    if not positive:
        less = u.replace(src=(build_sum(like, _negated(terms)), constant(like, 1 - limit)))
        return negation(less)
    negative = {base: -factor for base, factor in terms.items() if factor < 0}
    right = build_sum(like, negative, limit)
    return u.replace(src=(build_sum(like, positive), right))


def _reduce_inequality(terms: Terms, limit: int) -> tuple[Terms, int]:
    """The smallest `terms`, `limit` for which `terms < limit` says the same."""
    content = common_factor(terms)
    if content > 1:
        terms = {base: factor // content for base, factor in terms.items()}
        limit = ceildiv(limit, content)
    for g in sorted({abs(factor) for factor in terms.values()}, reverse=True):
        small = {base: factor for base, factor in terms.items() if factor % g}
        if g == 1 or not small:
            continue
        low, high = sum_bounds(small)
        if ceildiv(limit - low, g) == ceildiv(limit - high, g):
            large = {base: factor // g for base, factor in terms.items() if factor % g == 0}
            return _reduce_inequality(large, ceildiv(limit - low, g))
    return terms, limit


def simplify_equality(u: Node) -> Node | None:
    """The canonical form of `x != y` and `x == y` on indices."""
    if u.src[0].dtype is not INDEX:
        return None
    unequal = u.op is Ops.CMPNE
    terms, total = _difference(u)
    if greatest(terms, total) < 0 or greatest(_negated(terms), -total) < 0:
        return u.const_like(unequal)
    if not terms:
        return u.const_like(unequal == (total != 0))
    content = common_factor(terms)
    if total % content:
        return u.const_like(unequal)
    terms = {base: factor // content for base, factor in terms.items()}
    total //= content
    if sorted_terms(terms)[0][1] < 0:
        terms, total = _negated(terms), -total
    positive = {base: factor for base, factor in terms.items() if factor > 0}
    negative = {base: -factor for base, factor in terms.items() if factor < 0}
    like = u.src[0]
    return u.replace(src=(build_sum(like, positive), build_sum(like, negative, -total)))


def simplify_max(u: Node) -> Node | None:
    """The larger of two indices, where their difference tells."""
    if u.dtype is not INDEX:
        return None
    terms, total = _difference(u)
    if greatest(_negated(terms), -total) <= 0:
        return u.src[0]
    return u.src[1] if greatest(terms, total) <= 0 else None
