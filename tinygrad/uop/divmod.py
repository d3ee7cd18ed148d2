"""Division and remainder of integer expressions, which reshapes and repeats leave behind.

In: `x // d` and `x % d` (rounded toward zero, as in C) whose sources are canonical. Out: the same
value with fewer divisions, or None. Every rule proves from bounds that nothing wraps and, since
division rounds toward zero, that what it splits is not negative.
"""

from __future__ import annotations

import math

from tinygrad.dtype import DType
from tinygrad.helpers import cdiv, cmod
from tinygrad.uop import Ops
from tinygrad.uop.linear import (
    INTEGERS,
    Terms,
    add_terms,
    binary,
    build_sum,
    common_factor,
    constant,
    divide,
    fits,
    remainder,
    split_content,
    split_sum,
    sum_bounds,
    times,
)
from tinygrad.uop.node import Node


def simplify_idiv(u: Node) -> Node | None:
    """The simpler form of an IDIV of integers."""
    if u.dtype not in INTEGERS:
        return None
    x, divisor = u.src
    if divisor.op is not Ops.CONST:
        return _divide_symbolic(u)
    d = divisor.arg
    if d in (0, 1, -1):
        return None if d == 0 else times(x, d)
    terms, total = split_sum(x)
    low, high = sum_bounds(terms, total)
    if not fits(u.dtype, (low, high)):
        return _divide_quotient(u, x, d)
    if cdiv(low, d) == cdiv(high, d):
        return u.const_like(cdiv(low, d))
    if d < 0:
        return times(divide(x, -d), -1)
    if common_factor(terms, total) % d == 0:
        return build_sum(u, _over(terms, d), total // d)
    if high <= 0:
        return times(divide(times(x, -1), d), -1)
    if low < 0:
        return _divide_mixed(u, x, terms, total, d)
    return _divide_natural(u, terms, total, d)


def simplify_mod(u: Node) -> Node | None:
    """The simpler form of a MOD of integers."""
    if u.dtype not in INTEGERS:
        return None
    x, divisor = u.src
    if divisor.op is not Ops.CONST:
        return _remainder_symbolic(u)
    d = divisor.arg
    if d in (0, 1, -1):
        return None if d == 0 else u.const_like(0)
    terms, total = split_sum(x)
    low, high = sum_bounds(terms, total)
    if not fits(u.dtype, (low, high)):
        return None
    if cdiv(low, d) == cdiv(high, d):
        return build_sum(u, terms, total - cdiv(low, d) * d)
    if d < 0:
        return remainder(x, -d)
    content = common_factor(terms, total)
    if content % d == 0:
        return u.const_like(0)
    if high <= 0:
        return times(remainder(times(x, -1), d), -1)
    if low < 0:
        shared = math.gcd(content, d)
        if shared == 1:
            return None
        smaller = build_sum(u, _over(terms, shared), total // shared)
        return times(remainder(smaller, d // shared), shared)
    return _remainder_natural(u, terms, total, d)


def _over(terms: Terms, divisor: int) -> Terms:
    return {base: factor // divisor for base, factor in terms.items()}


def _divide_quotient(u: Node, x: Node, d: int) -> Node | None:
    """`(y // a) // d` is `y // (a*d)`, whatever the signs."""
    if x.op is not Ops.IDIV or x.src[1].op is not Ops.CONST:
        return None
    product = x.src[1].arg * d
    return divide(x.src[0], product) if fits(u.dtype, (product, product)) else None


def _divide_mixed(u: Node, x: Node, terms: Terms, total: int, d: int) -> Node | None:
    """The quotient of what may have either sign: only a common factor can be taken out."""
    shared = math.gcd(common_factor(terms, total), d)
    if shared > 1:
        smaller = build_sum(u, _over(terms, shared), total // shared)
        return divide(smaller, d // shared)
    return _divide_quotient(u, x, d)


def _residues(terms: Terms, d: int, kind: int) -> Terms:
    """Factors equal modulo `d`: of the same sign (0), not negative (1), nearest to 0 (2)."""
    if kind == 0:
        reduced = {base: cmod(factor, d) for base, factor in terms.items()}
    elif kind == 1:
        reduced = {base: factor % d for base, factor in terms.items()}
    else:
        reduced = {base: (factor + d // 2) % d - d // 2 for base, factor in terms.items()}
    return {base: factor for base, factor in reduced.items() if factor}


def _reduce(terms: Terms, total: int, d: int) -> tuple[Terms, int, bool]:
    """A sum that is the same modulo `d`, not negative, and whether it is surely less than `d`."""
    first: tuple[Terms, int] | None = None
    for kind in range(3):
        reduced = _residues(terms, d, kind)
        low, high = sum_bounds(reduced)
        start = (total + low) % d
        if start + high - low < d:
            return reduced, start - low, True
        if first is None:
            first = reduced, start - low
    assert first is not None
    return *first, False


def _split_small(terms: Terms, total: int, d: int) -> tuple[int, Terms, int, Terms, int] | None:
    """Write a sum as `g*y + s` with `0 <= s < g` and `g` a divisor of `d` greater than 1.

    Returns `g`, the terms and the constant of `y`, and those of `s`.
    """
    for g in sorted({math.gcd(factor, d) for factor in terms.values()}, reverse=True):
        if g == 1 or g == d:
            continue
        large = {base: factor // g for base, factor in terms.items() if factor % g == 0}
        small = {base: factor for base, factor in terms.items() if factor % g}
        low, high = sum_bounds(small)
        start = (total + low) % g
        if start + high - low < g:
            return g, large, (total + low - start) // g, small, start - low
    return None


def _divide_natural(u: Node, terms: Terms, total: int, d: int) -> Node | None:
    """The quotient of a sum that is not negative by a constant `d > 1`."""
    rest, rest_total, small = _reduce(terms, total, d)
    whole = _over(add_terms(terms, rest, -1), d)
    whole_total = (total - rest_total) // d
    if small:
        return build_sum(u, whole, whole_total)
    quotient = _divide_reduced(u, rest, rest_total, d)
    if quotient is None:
        if not whole and not whole_total:
            return None
        quotient = divide(build_sum(u, rest, rest_total), d)
    return binary(Ops.ADD, build_sum(u, whole, whole_total), quotient)


def _divide_reduced(u: Node, terms: Terms, total: int, d: int) -> Node | None:
    parts = _split_small(terms, total, d)
    if parts is not None:
        g, large, large_total, _, _ = parts
        return divide(build_sum(u, large, large_total), d // g)
    if len(terms) != 1:
        return None
    ((base, factor),) = terms.items()
    if factor != 1 or base.op not in _DIVISIONS or base.src[1].op is not Ops.CONST:
        return None
    y, inner = base.src[0], base.src[1].arg
    if inner <= 0 or y._min_max()[0] < 0:
        return None
    if base.op is Ops.IDIV:
        # (y // a + k) // d
        bounds = sum_bounds({y: 1}, total * inner)
        if bounds[0] < 0 or not fits(u.dtype, bounds) or not fits(u.dtype, (0, inner * d)):
            return None
        return divide(binary(Ops.ADD, y, constant(u, total * inner)), inner * d)
    if total or inner % d:
        return None
    # (y % (d*m)) // d
    return remainder(divide(y, d), inner // d)


_DIVISIONS = frozenset({Ops.IDIV, Ops.MOD})


def _remainder_natural(u: Node, terms: Terms, total: int, d: int) -> Node | None:
    """The remainder of a sum that is not negative by a constant `d > 1`."""
    before = terms, total
    terms, total = _drop_inner_mod(terms, total, d, u.dtype)
    terms, total, small = _reduce(terms, total, d)
    if small:
        return build_sum(u, terms, total)
    parts = _split_small(terms, total, d)
    if parts is not None:
        g, large, large_total, rest, rest_total = parts
        part = times(remainder(build_sum(u, large, large_total), d // g), g)
        return binary(Ops.ADD, part, build_sum(u, rest, rest_total))
    if (terms, total) == before:
        return None
    return remainder(build_sum(u, terms, total), d)


def _drop_inner_mod(terms: Terms, total: int, d: int, dtype: DType) -> tuple[Terms, int]:
    """`(y % a)*f` is the same as `y*f` modulo `d`, where `d` divides `a*f`."""
    for base, factor in list(terms.items()):
        if base.op is not Ops.MOD or base.src[1].op is not Ops.CONST:
            continue
        y, inner = base.src
        if inner.arg <= 0 or inner.arg * factor % d or y._min_max()[0] < 0:
            continue
        more, more_total = split_sum(y)
        rest = {b: f for b, f in terms.items() if b is not base}
        new = add_terms(rest, more, factor), total + factor * more_total
        bounds = sum_bounds(*new)
        if bounds[0] >= 0 and fits(dtype, bounds) and fits(dtype, sum_bounds(more, more_total)):
            terms, total = new
    return terms, total


# ---- divisors that are not constant: symbolic sizes ----


def _divide_symbolic(u: Node) -> Node | None:
    x, divisor = u.src
    if x is divisor:
        low, high = x._min_max()
        return u.const_like(1) if low > 0 or high < 0 else None
    parts = _split_by_divisor(u)
    if parts is None:
        return None
    whole, rest, divisor, changed = parts
    if is_less(rest, divisor):
        return whole
    if not changed:
        return None
    return binary(Ops.ADD, whole, binary(Ops.IDIV, rest, divisor))


def _remainder_symbolic(u: Node) -> Node | None:
    x, divisor = u.src
    if x is divisor:
        return u.const_like(0)
    parts = _split_by_divisor(u)
    if parts is None:
        return None
    _, rest, _, changed = parts
    if is_less(rest, divisor):
        return rest
    return binary(Ops.MOD, rest, divisor) if changed else None


def _split_by_divisor(u: Node) -> tuple[Node, Node, Node, bool] | None:
    """`x = whole*divisor + rest`, none of them negative; and whether `whole` is more than 0."""
    x, divisor = u.src
    x_bounds = sum_bounds(*split_sum(x))
    if divisor._min_max()[0] < 1 or x_bounds[0] < 0 or not fits(u.dtype, x_bounds):
        return None
    core, content = split_content(divisor)
    terms, total = split_sum(x)
    whole: list[Node] = []
    rest = dict(terms)
    for base, factor in terms.items():
        quotient = _without_factor(base, core)
        if quotient is not None and factor % content == 0:
            whole.append(times(quotient, factor // content))
            del rest[base]
    multiple = _multiple_of_sum(rest, total, divisor)
    if multiple:
        divisor_terms, divisor_total = split_sum(divisor)
        rest = add_terms(rest, divisor_terms, -multiple)
        total -= multiple * divisor_total
        whole.append(constant(u, multiple))
    bounds = sum_bounds(rest, total)
    if bounds[0] < 0 or not fits(u.dtype, bounds):
        return None
    whole_sum = constant(u, 0)
    for part in whole:
        whole_sum = binary(Ops.ADD, whole_sum, part)
    return whole_sum, build_sum(u, rest, total), divisor, bool(whole)


def _multiple_of_sum(terms: Terms, total: int, divisor: Node) -> int:
    """How many times a divisor that is a sum is contained in another sum, by its first term."""
    divisor_terms, _ = split_sum(divisor)
    if len(divisor_terms) + bool(split_sum(divisor)[1]) < 2:
        return 0
    base, factor = next(iter(divisor_terms.items()))
    count = cdiv(terms.get(base, 0), factor)
    if count <= 0:
        return 0
    rest = add_terms(terms, divisor_terms, -count)
    return count if sum_bounds(rest, total - count * split_sum(divisor)[1])[0] >= 0 else 0


def _without_factor(product: Node, factor: Node) -> Node | None:
    """`product / factor`, where the product shows that factor."""
    if product is factor:
        return constant(product, 1)
    if product.op is not Ops.MUL:
        return None
    left, right = product.src
    found = _without_factor(left, factor)
    if found is not None:
        return binary(Ops.MUL, found, right)
    found = _without_factor(right, factor)
    return None if found is None else binary(Ops.MUL, left, found)


def is_less(x: Node, y: Node) -> bool:
    """Whether `x < y` always, also where a loop runs up to a symbolic size."""
    terms, total = split_sum(x)
    other, other_total = split_sum(y)
    return greatest(add_terms(terms, other, -1), total - other_total) < 0


def greatest(terms: Terms, total: int) -> int:
    """The greatest value of a sum; a loop variable's own symbolic size is its bound."""
    if not any(base.op is Ops.RANGE and base.src[0].op is not Ops.CONST for base in terms):
        return sum_bounds(terms, total)[1]
    bounded: Terms = {}
    for base, factor in terms.items():
        if factor > 0 and base.op is Ops.RANGE:
            size_terms, size_total = split_sum(base.src[0])
            bounded = add_terms(bounded, size_terms, factor)
            total += factor * (size_total - 1)
        else:
            bounded = add_terms(bounded, {base: factor})
    return sum_bounds(bounded, total)[1]
