"""Powers by repeated squaring: of small constant exponents, and of integers.

In: `x**y`. Out: products, or None where another decomposition is better. Products of float32 round
in float64 where an exponent takes several.
"""

from __future__ import annotations

import math

from tinygrad.codegen.decompose.float_math import splat_value
from tinygrad.dtype import dtypes
from tinygrad.uop.ops import UOp

# integer exponents up to this are multiplied out, in float64 above the second
MAX_UNROLLED_POWER = 32
MAX_ACCURATE_POWER = 4


def constant_power(x: UOp, y: UOp) -> UOp | None:
    """x to a small constant integer power by multiplications, or to 0.5 by a square root."""
    exponent = splat_value(y)
    if exponent is None:
        return None
    if abs(exponent) == 0.5:
        # the root of -0.0 is -0.0 and that of -inf NaN; these powers are 0.0 and inf
        root = x.eq(-math.inf).where(x.const_like(math.inf), (x + 0.0).sqrt())
        return root if exponent > 0 else root.reciprocal()
    if exponent in (-1, -2):
        # the square of x may overflow where that of 1 / x is subnormal
        return _multiply_out(x.reciprocal(), -int(exponent))
    if exponent in range(1, MAX_ACCURATE_POWER + 1):
        return _multiply_out(x, int(exponent))
    return None


def wide_constant_power(x: UOp, y: UOp) -> UOp | None:
    """float32 to a larger constant integer power: the products round in float64."""
    exponent = splat_value(y)
    if exponent is None or not float(exponent).is_integer():
        return None
    if not MAX_ACCURATE_POWER < abs(exponent) <= MAX_UNROLLED_POWER and exponent not in (-3, -4):
        return None
    power = _multiply_out(x.cast(dtypes.float64.vec(x.dtype.count)), abs(int(exponent)))
    return (power if exponent > 0 else power.reciprocal()).cast(x.dtype)


def constant_integer_power(x: UOp, y: UOp) -> UOp | None:
    value = splat_value(y)
    return _multiply_out(x, int(value)) if value is not None and value > 0 else None


def _multiply_out(x: UOp, exponent: int) -> UOp:
    """x**exponent by squaring; exponent > 0."""
    if exponent == 1:
        return x
    half = _multiply_out(x, exponent // 2)
    return half * half * x if exponent % 2 else half * half


def integer_power(x: UOp, y: UOp) -> UOp:
    """x**y modulo the width of the dtype, for y >= 0, by squaring."""
    highest = dtypes.max(y.dtype) if y.dtype.count > 1 else y.vmax
    result = x.const_like(1)
    for bit in range(max(int(highest), 1).bit_length()):
        result = (y & (1 << bit)).ne(0).where(result * x, result)
        x = x * x
    return result
