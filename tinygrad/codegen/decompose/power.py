"""x**y in basic arithmetic and bit operations.

In: expressions of float32 or float64, scalar or vector. Out: the same dtype, without branches, with
the edge cases of C `pow`. `docs/numerics.md` states the maximum errors.

float32 is computed in float64 if the target has it. In float64, y * log2(x) needs 10 bits more than
its dtype has, so it is a `_Pair`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinygrad.codegen.decompose.exponential import exp2
from tinygrad.codegen.decompose.float_math import (
    absolute,
    bits_of,
    float_fields,
    float_of,
    polynomial,
    subtract,
)
from tinygrad.codegen.decompose.logarithm import Mantissa, log2
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# log(1 + f) = 2 s + s z (2/3 + z R(z)) with s = f / (2 + f), z = s**2, sqrt(1/2) <= 1 + f <=
# sqrt(2); relative error 2**-73.5. Coefficients are fitted as those in `exponential.py`.
LOG_COEFFICIENTS = (
    *(0.3999999999999998, 0.2857142857144384, 0.222222222177897, 0.1818181884400229),
    *(0.15384558427674278, 0.13336264537051803, 0.11675779919283188, 0.1198175960544963),
)
LOG_2 = 0.6931471805599453


@dataclass(frozen=True)
class _Pair:
    """The unevaluated sum of a float64 and a much smaller one: about 100 bits."""

    high: UOp
    low: UOp

    @staticmethod
    def fast_sum(a: UOp, b: UOp) -> _Pair:
        """a + b for |a| >= |b| (Dekker)."""
        high = a + b
        return _Pair(high, subtract(b, subtract(high, a)))

    @staticmethod
    def product(a: UOp, b: UOp) -> _Pair:
        """a * b: the products of halves of 26 and 27 bits are exact (Dekker)."""
        high = a * b
        a_upper, b_upper = _upper_half(a), _upper_half(b)
        a_lower, b_lower = subtract(a, a_upper), subtract(b, b_upper)
        error = subtract(a_upper * b_upper, high) + a_upper * b_lower + a_lower * b_upper
        return _Pair(high, error + a_lower * b_lower)

    def times(self, other: _Pair) -> _Pair:
        """The product of two pairs."""
        product = _Pair.product(self.high, other.high)
        rest = self.high * other.low + self.low * other.high
        return _Pair(product.high, product.low + rest)


def _upper_half(x: UOp) -> UOp:
    fields = float_fields(x)
    return float_of(bits_of(x) & (fields.all_bits ^ ((1 << 27) - 1)), fields)


def _log2_pair(x: UOp) -> _Pair:
    """log2 of a positive finite float64; relative error about 2**-65."""

    def pair(high: float, low: float) -> _Pair:
        return _Pair(x.const_like(high), x.const_like(low))

    parts = Mantissa.of(x)
    f = parts.fraction
    denominator = _Pair.fast_sum(x.const_like(2), f)
    quotient = f.alu(Ops.FDIV, denominator.high)
    product = _Pair.product(quotient, denominator.high)
    rest = subtract(subtract(subtract(f, product.high), product.low), quotient * denominator.low)
    s = _Pair(quotient, rest.alu(Ops.FDIV, denominator.high))
    z = s.times(s)
    two_thirds = pair(2 / 3, 3.700743415417188e-17)
    factor = _Pair.fast_sum(two_thirds.high, z.high * polynomial(z.high, LOG_COEFFICIENTS))
    factor = _Pair(factor.high, factor.low + two_thirds.low)
    cubic = s.times(z.times(factor))
    logarithm = _Pair.fast_sum(s.high + s.high, cubic.high)
    logarithm = _Pair(logarithm.high, logarithm.low + (cubic.low + (s.low + s.low)))
    scaled = logarithm.times(pair(1.4426950408889634, 2.0355273740931033e-17))
    # the exponent is 0 or the larger
    total = _Pair.fast_sum(parts.exponent, scaled.high)
    return _Pair(total.high, total.low + scaled.low)


def power(x: UOp, y: UOp) -> UOp:
    """x**y as C pow: 1 for y = 0 and for x = 1; NaN for x < 0 and fractional y."""
    magnitude = absolute(x)
    if x.dtype.scalar() is dtypes.float64:
        result = _power_of_magnitude(magnitude, y)
    else:
        result = exp2(log2(magnitude) * y)
    return _with_edges(x, y, result)


def power_in_float64(x: UOp, y: UOp) -> UOp:
    """x**y for float32: a float64 product with the logarithm is accurate enough."""
    wide = dtypes.float64.vec(x.dtype.count)
    result = exp2(log2(absolute(x).cast(wide)) * y.cast(wide)).cast(x.dtype)
    return _with_edges(x, y, result)


def _with_edges(x: UOp, y: UOp, result: UOp) -> UOp:
    """x**y, given |x|**y."""
    fields = float_fields(x)
    sign = bits_of(x) & fields.sign_bit
    result = _is_odd(y).where(float_of(bits_of(result) | sign, fields), result)
    fraction = y.alu(Ops.TRUNC).ne(y) & (absolute(y) < math.inf)
    domain_error = (x < 0) & (x > -math.inf) & fraction
    result = domain_error.where(x.const_like(math.nan), result)
    is_one = x.eq(1) | y.eq(0) | (x.eq(-1) & absolute(y).eq(math.inf))
    return is_one.where(x.const_like(1), result)


def _power_of_magnitude(x: UOp, y: UOp) -> UOp:
    """x**y for float64 x >= 0."""
    # at the edges of the domain, the logarithm is infinite or NaN
    regular = (x > 0) & (x < math.inf)
    logarithm = _log2_pair(regular.where(x, x.const_like(1)))
    product = _Pair.product(logarithm.high, y)
    error = product.low + logarithm.low * y
    edge = x.eq(0).where(x.const_like(-math.inf), x)
    value = exp2(regular.where(product.high, edge * y))
    # 2**(product + error) for a small error; otherwise the result is 0, infinity or NaN
    usable = regular & (absolute(error) < 1) & (value < math.inf)
    return usable.where(value + value * (error * LOG_2), value)


def _is_odd(y: UOp) -> UOp:
    half = y * 0.5
    return y.alu(Ops.TRUNC).eq(y) & half.alu(Ops.TRUNC).ne(half)
