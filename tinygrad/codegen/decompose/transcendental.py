"""2**x, log2(x) and x**y in additions, multiplications and bit operations.

In: expressions of float32 or float64, scalar or vector. Out: the same dtype, without branches.
Infinities, NaNs, zeros and subnormals follow IEEE 754. `test/unit/test_transcendental.py` states
the maximum errors. Coefficients are minimax fits (Remez), rounded to the dtype from the lowest
degree up, with the others fitted again after each.
"""

from __future__ import annotations

import math

from tinygrad.codegen.decompose.float_math import (
    absolute,
    bits_of,
    float_fields,
    float_of,
    polynomial,
    subtract,
)
from tinygrad.dtype import dtypes
from tinygrad.fast_dataclass import dataclass
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# 2**f = 1 + f * P(f) for |f| <= 1/2; relative error of 2**f: 2**-28.0 and 2**-59.4
EXP2_COEFFICIENTS = {
    dtypes.float32: (
        *(0.6931471824645996, 0.24022644758224487, 0.055503588169813156),
        *(0.009618833661079407, 0.001339130336418748, 0.00015241313667502254),
    ),
    dtypes.float64: (
        *(0.6931471805599453, 0.2402265069591007, 0.05550410866482295, 0.0096181291076296),
        *(0.0013333558146159858, 0.00015403530391221347, 1.5252734041790663e-05),
        *(1.3215488581255288e-06, 1.0177983413763916e-07, 7.0542391304513845e-09),
        *(4.46588807077515e-10, 2.6634122220271028e-11),
    ),
}

# log2(1 + f) = f + f * Q(f) for sqrt(1/2) <= 1 + f <= sqrt(2); relative error 2**-26.5
LOG2_COEFFICIENTS = (
    *(0.4426950514316559, -0.7213473320007324, 0.4808967709541321, -0.3606972396373749),
    *(0.2886233627796173, -0.2396448701620102, 0.20379506051540375, -0.1901431828737259),
    *(0.19011595845222473, -0.11637934297323227),
)

# log(1 + f) = 2 s + s * z * R(z) with s = f / (2 + f), z = s**2, same f; relative error 2**-66.6
LOG_COEFFICIENTS = (
    *(0.6666666666666666, 0.4000000000000489, 0.28571428569423607, 0.22222222605031267),
    *(0.18181778506254895, 0.15386982556394124, 0.13252282655278927, 0.13233618337367725),
)

# 1 / log(2) in two parts; the first has 21 bits, so its product with a 21-bit number is exact
INVERSE_LOG_2 = (1.4426946640014648, 3.768874985636099e-07)
LOG_2 = 0.6931471805599453
UPPER_21_BITS = 0xFFFF_FFFF_0000_0000


def exp2(x: UOp) -> UOp:
    """2**x. Subnormal results are rounded once; overflow is infinity."""
    scale, fraction = _split_exponent(x)
    return _scale(1 + fraction * polynomial(fraction, EXP2_COEFFICIENTS[x.dtype.scalar()]), scale)


def _split_exponent(x: UOp) -> tuple[UOp, UOp]:
    """x = n + fraction, |fraction| <= 1/2: an integer with n + 2 bias in its low bits, fraction."""
    fields = float_fields(x)
    # beyond these bounds the result is 0 or infinity; the comparisons keep a NaN
    low = x.const_like(-fields.bias - fields.mantissa_bits - 1)
    high = x.const_like(fields.bias + 1)
    x = (x < low).where(low, x)
    x = (high < x).where(high, x)
    rounder = fields.round_to_integer + 2 * fields.bias
    shifted = x + rounder
    return bits_of(shifted), subtract(x, subtract(shifted, rounder))


def _scale(x: UOp, scale: UOp) -> UOp:
    """x * 2**n, given n + 2 * bias in the low bits of `scale`.

    Two factors of half the exponent each, since one cannot reach subnormals or 2**(bias + 1).
    """
    fields = float_fields(x)
    first = (scale << (fields.mantissa_bits - 1)) & fields.exponent_mask
    second = subtract(scale << fields.mantissa_bits, first)
    return x * float_of(first, fields) * float_of(second, fields)


def log2(x: UOp) -> UOp:
    """The logarithm to base 2: NaN below 0, -infinity at 0."""
    if x.dtype.scalar() is dtypes.float64:
        result = _Log2Parts.of(x).high
    else:
        exponent, fraction = _split_mantissa(x)
        result = exponent + (fraction * polynomial(fraction, LOG2_COEFFICIENTS) + fraction)
    finite = (x < math.inf).where(result, x)
    return (x > 0).where(finite, x.ne(0).where(x.const_like(math.nan), x.const_like(-math.inf)))


def _split_mantissa(x: UOp) -> tuple[UOp, UOp]:
    """x = 2**exponent * (1 + fraction), 1 + fraction from sqrt(1/2) to sqrt(2), for x > 0."""
    fields = float_fields(x)
    extra = fields.mantissa_bits + 2
    subnormal = x < 2.0 ** (1 - fields.bias)
    bits = bits_of(subnormal.where(x * 2.0**extra, x))
    origin = bits_of(x.const_like(math.sqrt(0.5)))
    above = subtract(bits, origin) & fields.exponent_mask
    fraction = subtract(float_of(subtract(bits, above), fields), 1)
    # the integer has few significant bits, so the conversion is exact
    exponent = above.bitcast(fields.signed.vec(x.dtype.count)).cast(x.dtype)
    offset = subnormal.where(x.const_like(extra), x.const_like(0))
    return subtract(exponent * 2.0**-fields.mantissa_bits, offset), fraction


@dataclass(frozen=True)
class _Log2Parts:
    """log2 of a positive finite float64 as a rounded value and its error; accurate to 2**-60."""

    high: UOp
    low: UOp

    @staticmethod
    def of(x: UOp) -> _Log2Parts:
        fields = float_fields(x)
        exponent, f = _split_mantissa(x)
        s = f.alu(Ops.FDIV, f + 2)
        z = s * s
        half_square = f * f * 0.5
        correction = s * (half_square + z * polynomial(z, LOG_COEFFICIENTS))
        # log(1 + f) = f - half_square + correction, its leading part in 21 bits
        leading = float_of(bits_of(subtract(f, half_square)) & UPPER_21_BITS, fields)
        rest = subtract(subtract(f, leading), half_square) + correction
        product = leading * INVERSE_LOG_2[0]
        low = (rest + leading) * INVERSE_LOG_2[1] + rest * INVERSE_LOG_2[0]
        total = exponent + product
        low = low + (subtract(exponent, total) + product)
        high = total + low
        return _Log2Parts(high, subtract(low, subtract(high, total)))


def power(x: UOp, y: UOp) -> UOp:
    """x**y as C pow: 1 for y = 0 and for x = 1; NaN for x < 0 and fractional y."""
    magnitude = absolute(x)
    if x.dtype.scalar() is dtypes.float64:
        result = _power_of_magnitude(magnitude, y)
    else:
        result = exp2(log2(magnitude) * y)
    fields = float_fields(x)
    sign = bits_of(x) & fields.sign_bit
    result = _is_odd(y).where(float_of(bits_of(result) | sign, fields), result)
    fraction = y.alu(Ops.TRUNC).ne(y) & (absolute(y) < math.inf)
    domain_error = (x < 0) & (x > -math.inf) & fraction
    result = domain_error.where(x.const_like(math.nan), result)
    is_one = x.eq(1) | y.eq(0) | (x.eq(-1) & absolute(y).eq(math.inf))
    return is_one.where(x.const_like(1), result)


def _power_of_magnitude(x: UOp, y: UOp) -> UOp:
    """x**y for float64 x >= 0, with y * log2(x) in double-double arithmetic."""
    fields = float_fields(x)
    high = log2(x)
    product = high * y
    # Dekker's product: halves of 26 and 27 bits have exact products, which give the rounding error
    upper_mask = fields.all_bits ^ ((1 << 27) - 1)
    high_upper = float_of(bits_of(high) & upper_mask, fields)
    y_upper = float_of(bits_of(y) & upper_mask, fields)
    high_lower, y_lower = subtract(high, high_upper), subtract(y, y_upper)
    error = subtract(high_upper * y_upper, product) + high_upper * y_lower + high_lower * y_upper
    error = error + high_lower * y_lower + _Log2Parts.of(x).low * y
    value = exp2(product)
    # 2**(product + error) for a small error; otherwise the result is 0, infinity or NaN
    usable = (absolute(error) < 1) & (value < math.inf)
    return usable.where(value + value * (error * LOG_2), value)


def _is_odd(y: UOp) -> UOp:
    half = y * 0.5
    return y.alu(Ops.TRUNC).eq(y) & half.alu(Ops.TRUNC).ne(half)
