"""Comparisons of index expressions in canonical form, with as few addends as possible.

The form is `x < c` with the constant on the right and factors without a common divisor, or the
negation of such a comparison. Addends with a negative factor move to the right. Index arithmetic
never wraps, so addends may change sides.
"""

from __future__ import annotations

from tinygrad.helpers import ceildiv
from tinygrad.uop import Ops
from tinygrad.uop.node import Node
from tinygrad.uop.simplify.affine import (
    INDEX,
    Addends,
    add_scaled,
    build_sum,
    common_factor,
    constant,
    negation,
    sorted_addends,
    split_sum,
    sum_bounds,
    upper_bound,
)


def _negated(addends: Addends) -> Addends:
    return {base: -factor for base, factor in addends.items()}


def _difference(u: Node) -> tuple[Addends, int]:
    """`left - right` of a comparison."""
    left, right = u.src
    addends, offset = split_sum(left)
    other, other_offset = split_sum(right)
    return (add_scaled(addends, other, -1) if other else addends), offset - other_offset


def simplify_cmplt(u: Node) -> Node | None:
    """The canonical form of `x < y` on indices."""
    if u.src[0].dtype is not INDEX:
        return None
    addends, offset = _difference(u)
    if upper_bound(addends, offset) < 0:
        return u.const_like(True)
    if upper_bound(_negated(addends), -offset) <= 0:
        return u.const_like(False)
    addends, limit = _reduce_inequality(addends, -offset)
    like = u.src[0]
    if len(addends) == 1:
        ((base, factor),) = addends.items()
        if factor == 1 and base.op is Ops.IDIV and base.src[1].op is Ops.CONST:
            divisor = base.src[1].arg
            if divisor > 0:
                # division rounds toward zero
                bound = limit * divisor if limit > 0 else (limit - 1) * divisor + 1
                return u.replace(src=(base.src[0], constant(like, bound)))
    positive = {base: factor for base, factor in addends.items() if factor > 0}
    if not positive:
        less = u.replace(src=(build_sum(like, _negated(addends)), constant(like, 1 - limit)))
        return negation(less)
    negative = {base: -factor for base, factor in addends.items() if factor < 0}
    right = build_sum(like, negative, limit)
    return u.replace(src=(build_sum(like, positive), right))


def _reduce_inequality(addends: Addends, limit: int) -> tuple[Addends, int]:
    """An equivalent inequality `addends < limit` with the fewest addends and the least factors."""
    content = common_factor(addends)
    if content > 1:
        addends = {base: factor // content for base, factor in addends.items()}
        limit = ceildiv(limit, content)
    for g in sorted({abs(factor) for factor in addends.values()}, reverse=True):
        small = {base: factor for base, factor in addends.items() if factor % g}
        if g == 1 or not small:
            continue
        low, high = sum_bounds(small)
        if ceildiv(limit - low, g) == ceildiv(limit - high, g):
            large = {base: factor // g for base, factor in addends.items() if factor % g == 0}
            return _reduce_inequality(large, ceildiv(limit - low, g))
    return addends, limit


def simplify_equality(u: Node) -> Node | None:
    """The canonical form of `x != y` and `x == y` on indices."""
    if u.src[0].dtype is not INDEX:
        return None
    unequal = u.op is Ops.CMPNE
    addends, offset = _difference(u)
    if upper_bound(addends, offset) < 0 or upper_bound(_negated(addends), -offset) < 0:
        return u.const_like(unequal)
    if not addends:
        return u.const_like(unequal == (offset != 0))
    content = common_factor(addends)
    if offset % content:
        return u.const_like(unequal)
    addends = {base: factor // content for base, factor in addends.items()}
    offset //= content
    if sorted_addends(addends)[0][1] < 0:
        addends, offset = _negated(addends), -offset
    positive = {base: factor for base, factor in addends.items() if factor > 0}
    negative = {base: -factor for base, factor in addends.items() if factor < 0}
    like = u.src[0]
    return u.replace(src=(build_sum(like, positive), build_sum(like, negative, -offset)))


def simplify_max(u: Node) -> Node | None:
    """The larger of two indices, if the bounds of their difference decide."""
    if u.dtype is not INDEX:
        return None
    addends, offset = _difference(u)
    if upper_bound(_negated(addends), -offset) <= 0:
        return u.src[0]
    return u.src[1] if upper_bound(addends, offset) <= 0 else None
