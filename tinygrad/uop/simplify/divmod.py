"""Simplification of integer division and remainder, from reshapes and repeats.

Input: `x // d` and `x % d`, which round toward zero as in C, with canonical sources. Output: the
same value with fewer divisions, or None. Every rule proves by bounds that nothing wraps. Since
division rounds toward zero, a rule that splits a sum also proves that it is not negative.
"""

from __future__ import annotations

import math

from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import cdiv, cmod
from tinygrad.uop import Ops
from tinygrad.uop.node import Node
from tinygrad.uop.simplify.affine import (
    INTEGERS,
    Addends,
    add_scaled,
    binary,
    build_sum,
    common_factor,
    constant,
    divide,
    fits_dtype,
    is_always_less,
    multiply,
    remainder,
    split_content,
    split_sum,
    sum_bounds,
)


def simplify_idiv(u: Node) -> Node | None:
    """A simpler form of an IDIV of integers, or None."""
    if u.dtype not in INTEGERS:
        return None
    x, divisor = u.src
    if divisor.op is not Ops.CONST:
        return _divide_symbolic(u)
    d = divisor.arg
    if d in (0, 1, -1):
        return None if d == 0 else multiply(x, d)
    addends, offset = split_sum(x)
    low, high = sum_bounds(addends, offset)
    if not fits_dtype(u.dtype, (low, high)):
        return _divide_quotient(u, x, d)
    if cdiv(low, d) == cdiv(high, d):
        return u.const_like(cdiv(low, d))
    if d < 0 and d == dtypes.min(u.dtype):
        # it has no opposite
        return None
    if d < 0:
        return multiply(divide(x, -d), -1)
    if common_factor(addends, offset) % d == 0:
        return build_sum(u, _divide_factors(addends, d), offset // d)
    if high <= 0:
        return multiply(divide(multiply(x, -1), d), -1)
    if low < 0:
        return _divide_mixed_sign(u, x, addends, offset, d)
    return _divide_nonnegative(u, addends, offset, d)


def simplify_mod(u: Node) -> Node | None:
    """A simpler form of a MOD of integers, or None."""
    if u.dtype not in INTEGERS:
        return None
    x, divisor = u.src
    if divisor.op is not Ops.CONST:
        return _remainder_symbolic(u)
    d = divisor.arg
    if d in (0, 1, -1):
        return None if d == 0 else u.const_like(0)
    addends, offset = split_sum(x)
    low, high = sum_bounds(addends, offset)
    if not fits_dtype(u.dtype, (low, high)):
        return None
    if cdiv(low, d) == cdiv(high, d):
        return build_sum(u, addends, offset - cdiv(low, d) * d)
    if d < 0 and d == dtypes.min(u.dtype):
        return None
    if d < 0:
        return remainder(x, -d)
    content = common_factor(addends, offset)
    if content % d == 0:
        return u.const_like(0)
    if high <= 0:
        return multiply(remainder(multiply(x, -1), d), -1)
    if low < 0:
        shared = math.gcd(content, d)
        if shared == 1:
            return None
        smaller = build_sum(u, _divide_factors(addends, shared), offset // shared)
        return multiply(remainder(smaller, d // shared), shared)
    return _remainder_nonnegative(u, addends, offset, d)


def _divide_factors(addends: Addends, divisor: int) -> Addends:
    return {base: factor // divisor for base, factor in addends.items()}


def _divide_quotient(u: Node, x: Node, d: int) -> Node | None:
    """`(y // a) // d` is `y // (a*d)`, for all signs."""
    if x.op is not Ops.IDIV or x.src[1].op is not Ops.CONST:
        return None
    product = x.src[1].arg * d
    return divide(x.src[0], product) if fits_dtype(u.dtype, (product, product)) else None


def _divide_mixed_sign(u: Node, x: Node, addends: Addends, offset: int, d: int) -> Node | None:
    """The quotient of a sum of unknown sign: only a common factor cancels."""
    shared = math.gcd(common_factor(addends, offset), d)
    if shared > 1:
        smaller = build_sum(u, _divide_factors(addends, shared), offset // shared)
        return divide(smaller, d // shared)
    return _divide_quotient(u, x, d)


def _residues(addends: Addends, d: int, kind: int) -> Addends:
    """Factors congruent modulo `d`: of the same sign (0), not negative (1), nearest to 0 (2)."""
    if kind == 0:
        reduced = {base: cmod(factor, d) for base, factor in addends.items()}
    elif kind == 1:
        reduced = {base: factor % d for base, factor in addends.items()}
    else:
        reduced = {base: (factor + d // 2) % d - d // 2 for base, factor in addends.items()}
    return {base: factor for base, factor in reduced.items() if factor}


def _reduce_modulo(addends: Addends, offset: int, d: int) -> tuple[Addends, int, bool]:
    """A sum congruent modulo `d` that is not negative, and whether it is known to be below `d`."""
    first: tuple[Addends, int] | None = None
    for kind in range(3):
        reduced = _residues(addends, d, kind)
        low, high = sum_bounds(reduced)
        start = (offset + low) % d
        if start + high - low < d:
            return reduced, start - low, True
        if first is None:
            first = reduced, start - low
    assert first is not None
    return *first, False


def _split_small(
    addends: Addends, offset: int, d: int
) -> tuple[int, Addends, int, Addends, int] | None:
    """Write a sum as `g*y + s` with `0 <= s < g` and `g` a divisor of `d` greater than 1.

    Returns `g`, the addends and the constant of `y`, and those of `s`.
    """
    for g in sorted({math.gcd(factor, d) for factor in addends.values()}, reverse=True):
        if g == 1 or g == d:
            continue
        large = {base: factor // g for base, factor in addends.items() if factor % g == 0}
        small = {base: factor for base, factor in addends.items() if factor % g}
        low, high = sum_bounds(small)
        start = (offset + low) % g
        if start + high - low < g:
            return g, large, (offset + low - start) // g, small, start - low
    return None


def _divide_nonnegative(u: Node, addends: Addends, offset: int, d: int) -> Node | None:
    """The quotient of a sum that is not negative and a constant `d > 1`."""
    rest, rest_offset, small = _reduce_modulo(addends, offset, d)
    exact = _divide_factors(add_scaled(addends, rest, -1), d)
    exact_offset = (offset - rest_offset) // d
    if small:
        return build_sum(u, exact, exact_offset)
    quotient = _divide_reduced(u, rest, rest_offset, d)
    if quotient is None:
        if not exact and not exact_offset:
            return None
        quotient = divide(build_sum(u, rest, rest_offset), d)
    return binary(Ops.ADD, build_sum(u, exact, exact_offset), quotient)


def _divide_reduced(u: Node, addends: Addends, offset: int, d: int) -> Node | None:
    parts = _split_small(addends, offset, d)
    if parts is not None:
        g, large, large_offset, _, _ = parts
        return divide(build_sum(u, large, large_offset), d // g)
    if len(addends) != 1:
        return None
    ((base, factor),) = addends.items()
    if factor != 1 or base.op not in _DIVISIONS or base.src[1].op is not Ops.CONST:
        return None
    y, inner = base.src[0], base.src[1].arg
    if inner <= 0 or y.bounds[0] < 0:
        return None
    if base.op is Ops.IDIV:
        # (y // a + k) // d
        bounds = sum_bounds({y: 1}, offset * inner)
        if (
            bounds[0] < 0
            or not fits_dtype(u.dtype, bounds)
            or not fits_dtype(u.dtype, (0, inner * d))
        ):
            return None
        return divide(binary(Ops.ADD, y, constant(u, offset * inner)), inner * d)
    if offset or inner % d:
        return None
    # (y % (d*m)) // d
    return remainder(divide(y, d), inner // d)


_DIVISIONS = frozenset({Ops.IDIV, Ops.MOD})


def _remainder_nonnegative(u: Node, addends: Addends, offset: int, d: int) -> Node | None:
    """The remainder of a sum that is not negative and a constant `d > 1`."""
    before = addends, offset
    addends, offset = _drop_inner_mod(addends, offset, d, u.dtype)
    addends, offset, small = _reduce_modulo(addends, offset, d)
    if small:
        return build_sum(u, addends, offset)
    parts = _split_small(addends, offset, d)
    if parts is not None:
        g, large, large_offset, rest, rest_offset = parts
        part = multiply(remainder(build_sum(u, large, large_offset), d // g), g)
        return binary(Ops.ADD, part, build_sum(u, rest, rest_offset))
    if (addends, offset) == before:
        return None
    return remainder(build_sum(u, addends, offset), d)


def _drop_inner_mod(addends: Addends, offset: int, d: int, dtype: DType) -> tuple[Addends, int]:
    """`(y % a)*f` is congruent to `y*f` modulo `d`, where `d` divides `a*f`."""
    for base, factor in list(addends.items()):
        if base.op is not Ops.MOD or base.src[1].op is not Ops.CONST:
            continue
        y, inner = base.src
        if inner.arg <= 0 or inner.arg * factor % d or y.bounds[0] < 0:
            continue
        more, more_offset = split_sum(y)
        rest = {b: f for b, f in addends.items() if b is not base}
        new = add_scaled(rest, more, factor), offset + factor * more_offset
        bounds = sum_bounds(*new)
        if (
            bounds[0] >= 0
            and fits_dtype(dtype, bounds)
            and fits_dtype(dtype, sum_bounds(more, more_offset))
        ):
            addends, offset = new
    return addends, offset


# ---- symbolic divisors ----


def _divide_symbolic(u: Node) -> Node | None:
    x, divisor = u.src
    if x is divisor:
        low, high = x.bounds
        return u.const_like(1) if low > 0 or high < 0 else None
    reduced = _without_shared_factor(u)
    if reduced is not None:
        return binary(Ops.IDIV, *reduced[:2])
    parts = _split_by_divisor(u)
    if parts is None:
        return None
    quotient, rest, divisor, changed = parts
    if is_always_less(rest, divisor):
        return quotient
    if not changed:
        return None
    return binary(Ops.ADD, quotient, binary(Ops.IDIV, rest, divisor))


def _remainder_symbolic(u: Node) -> Node | None:
    x, divisor = u.src
    if x is divisor:
        return u.const_like(0)
    reduced = _without_shared_factor(u)
    if reduced is not None:
        return multiply(binary(Ops.MOD, *reduced[:2]), reduced[2])
    parts = _split_by_divisor(u)
    if parts is None:
        return None
    _, rest, _, changed = parts
    if is_always_less(rest, divisor):
        return rest
    return binary(Ops.MOD, rest, divisor) if changed else None


def _without_shared_factor(u: Node) -> tuple[Node, Node, int] | None:
    """The operands divided by the number that divides both, and that number; None if it is 1."""
    sums = [split_sum(operand) for operand in u.src]
    shared = math.gcd(*(common_factor(*found) for found in sums))
    if shared == 1 or not all(fits_dtype(u.dtype, sum_bounds(*found)) for found in sums):
        return None
    x, divisor = (
        build_sum(u, _divide_factors(addends, shared), offset // shared) for addends, offset in sums
    )
    return x, divisor, shared


def _split_by_divisor(u: Node) -> tuple[Node, Node, Node, bool] | None:
    """`x = quotient*divisor + rest`, none of them negative, and whether the quotient is not 0."""
    x, divisor = u.src
    x_bounds = sum_bounds(*split_sum(x))
    if divisor.bounds[0] < 1 or x_bounds[0] < 0 or not fits_dtype(u.dtype, x_bounds):
        return None
    core, content = split_content(divisor)
    addends, offset = split_sum(x)
    quotients: list[Node] = []
    rest = dict(addends)
    for base, factor in addends.items():
        exact = _exact_quotient(base, core)
        if exact is not None and factor % content == 0:
            quotients.append(multiply(exact, factor // content))
            del rest[base]
    multiple = _multiple_of_sum(rest, offset, divisor)
    if multiple:
        divisor_addends, divisor_offset = split_sum(divisor)
        rest = add_scaled(rest, divisor_addends, -multiple)
        offset -= multiple * divisor_offset
        quotients.append(constant(u, multiple))
    bounds = sum_bounds(rest, offset)
    if bounds[0] < 0 or not fits_dtype(u.dtype, bounds):
        return None
    quotient = constant(u, 0)
    for part in quotients:
        quotient = binary(Ops.ADD, quotient, part)
    return quotient, build_sum(u, rest, offset), divisor, bool(quotients)


def _multiple_of_sum(addends: Addends, offset: int, divisor: Node) -> int:
    """The multiple of a divisor with several addends that a sum contains, by its first addend."""
    divisor_addends, _ = split_sum(divisor)
    if len(divisor_addends) + bool(split_sum(divisor)[1]) < 2:
        return 0
    base, factor = next(iter(divisor_addends.items()))
    count = cdiv(addends.get(base, 0), factor)
    if count <= 0:
        return 0
    rest = add_scaled(addends, divisor_addends, -count)
    return count if sum_bounds(rest, offset - count * split_sum(divisor)[1])[0] >= 0 else 0


def _exact_quotient(product: Node, factor: Node) -> Node | None:
    """`product / factor` if the factor occurs in the product, else None."""
    if product is factor:
        return constant(product, 1)
    if product.op is not Ops.MUL:
        return None
    left, right = product.src
    found = _exact_quotient(left, factor)
    if found is not None:
        return binary(Ops.MUL, found, right)
    found = _exact_quotient(right, factor)
    return None if found is None else binary(Ops.MUL, left, found)
