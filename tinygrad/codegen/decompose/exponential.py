"""2**x, e**x, and the hyperbolic and logistic functions, in basic arithmetic and bit operations.

In: expressions of float32 or float64, scalar or vector. Out: the same dtype, without branches.
Infinities, NaNs, zeros and subnormals follow IEEE 754. `docs/numerics.md` states the maximum
errors. Coefficients are minimax fits (Remez), rounded to the dtype from the lowest degree up, with
the others fitted again after each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinygrad.codegen.decompose.float_math import (
    FloatFields,
    absolute,
    bits_of,
    copy_sign,
    float_fields,
    float_of,
    polynomial,
    subtract,
)
from tinygrad.dtype import dtypes
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

# e**r - 1 = r + r**2 * Q(r) for |r| <= log(2) / 2; relative error 2**-26.1 and 2**-61.6
EXP_COEFFICIENTS = {
    dtypes.float32: (
        *(0.4999999701976776, 0.16666539013385773, 0.04166775196790695),
        *(0.00836713332682848, 0.00138360564596951),
    ),
    dtypes.float64: (
        *(0.5, 0.16666666666666677, 0.041666666666666685, 0.008333333333321806),
        *(0.0013888888888894445, 0.00019841269885311776, 2.4801587276139535e-05),
        *(2.7557245180128448e-06, 2.7557332927815633e-07, 2.5108679225025063e-08),
        2.0892611686693397e-09,
    ),
}

# sinh(x) = x + x z S(z) with z = x**2, |x| <= 1; relative error 2**-31.6 and 2**-62.9
SINH_COEFFICIENTS = {
    dtypes.float32: (
        *(0.1666666716337204, 0.00833331048488617, 0.00019842895562760532),
        2.7822136416943977e-06,
    ),
    dtypes.float64: (
        *(0.16666666666666666, 0.008333333333333573, 0.00019841269841061168),
        *(2.755731931012007e-06, 2.5052089388560516e-08, 1.6061345385947821e-10),
        *(7.502611463884998e-13, 6.49974730698978e-15),
    ),
}

# log(1 + e) = e - e**2 * P(e) for 0 <= e <= 1; relative error 2**-27.5 and 2**-56.4
SOFTPLUS_COEFFICIENTS = {
    dtypes.float32: (
        *(0.4999993145465851, -0.33330464363098145, 0.24958018958568573),
        *(-0.19692100584506989, 0.1534487009048462, -0.1066109910607338),
        *(0.05745682492852211, -0.020085956901311874, 0.003290388500317931),
    ),
    dtypes.float64: (
        *(0.4999999999999946, -0.33333333333235254, 0.24999999993686092, -0.19999999791556464),
        *(0.16666662502044818, -0.1428565893324497, 0.12499479873264066, -0.11107507392056945),
        *(0.09981020631555218, -0.09013171824378395, 0.08081257085409632, -0.07035632749025426),
        *(0.05750343939505558, -0.042301867624466895, 0.026745625927872656),
        *(-0.013839783030342712, 0.005543735929761521, -0.0015959687867928435),
        *(0.00029181226573248324, -2.533526138343244e-05),
    ),
}

# log(2) in two parts; the product of the first with an exponent is exact
LOG_2_PARTS = {
    dtypes.float32: (0.693145751953125, 1.428606765330187e-06),
    dtypes.float64: (0.6931471803691238, 1.9082149292705877e-10),
}
INVERSE_LOG_2 = 1 / math.log(2)


def exp2(x: UOp) -> UOp:
    """2**x. Subnormal results are rounded once; overflow is infinity."""
    fields = float_fields(x)
    # beyond these bounds the result is 0 or infinity
    x = _clamp(x, -fields.bias - fields.mantissa_bits - 1, fields.bias + 1)
    rounder = fields.round_to_integer + _offset(fields)
    shifted = x + rounder
    fraction = subtract(x, subtract(shifted, rounder))
    return _scaled_polynomial(fraction, (1.0, *EXP2_COEFFICIENTS[fields.dtype]), bits_of(shifted))


def exp(x: UOp) -> UOp:
    """e**x, with subnormals and infinity as `exp2`."""
    return _exponential(x)


def _exponential(x: UOp, exponent: int = 0) -> UOp:
    """e**x * 2**exponent."""
    fields = float_fields(x)
    low = -fields.bias - fields.mantissa_bits - 1 - exponent
    x = _clamp(x, low / INVERSE_LOG_2, (fields.bias + 2 - exponent) / INVERSE_LOG_2)
    bits, r = _reduce(x, _offset(fields) + exponent)
    return _scaled_polynomial(r, (1.0, *_exp_coefficients(x, 1)), bits)


def _exp_coefficients(x: UOp, factor: int) -> list[float]:
    """The coefficients c1, c2, ... of e**(factor * r) = 1 + c1 r + c2 r**2 + ..."""
    coefficients = 1.0, *EXP_COEFFICIENTS[x.dtype.scalar()]
    return [c * factor ** (i + 1) for i, c in enumerate(coefficients)]


def _clamp(x: UOp, low: float, high: float) -> UOp:
    """`x` within bounds; the comparisons keep a NaN."""
    x = (x < low).where(x.const_like(low), x)
    return (x > high).where(x.const_like(high), x)


def _reduce(x: UOp, offset: int, factor: int = 1) -> tuple[UOp, UOp]:
    """x = n log(2) / factor + r, |factor * r| <= log(2) / 2: an integer with n + offset in its low
    bits, and r (Cody and Waite). `factor` is a power of two, or the negative of one.
    """
    fields = float_fields(x)
    rounder = fields.round_to_integer + offset
    shifted = x * (factor * INVERSE_LOG_2) + rounder
    n = subtract(shifted, rounder)
    high, low = LOG_2_PARTS[fields.dtype]
    r = subtract(subtract(x, n * (high / factor)), n * (low / factor))
    return bits_of(shifted), r


def _offset(fields: FloatFields) -> int:
    """What `_scaled_polynomial` expects beside the exponent."""
    return fields.bias + fields.bias // 2


def _scaled_polynomial(x: UOp, coefficients: Sequence[float], scale: UOp) -> UOp:
    """P(x) * 2**n with P(x) about 1, given n + `_offset` in the low bits of `scale`.

    One factor cannot reach subnormals or 2**(bias + 1). So half of n is added to the bits of the
    value, the other half is a factor. The coefficients make up for the offset.
    """
    fields = float_fields(x)
    unit = 2.0 ** (fields.bias - _offset(fields))
    value = polynomial(x, [c * unit for c in coefficients])
    first = (scale << (fields.mantissa_bits - 1)) & fields.exponent_mask
    second = subtract(scale << fields.mantissa_bits, first)
    result = float_of(bits_of(value) + first, fields) * float_of(second, fields)
    # the sum of bits may lose a NaN
    return result + subtract(x, x)


def _expm1(x: UOp, factor: int) -> UOp:
    """(e**(factor * x) - 1) / 2, for `factor * |x|` not above the exponents of the dtype."""
    fields = float_fields(x)
    bits, r = _reduce(x, fields.bias - 1, factor)
    # 2**(n - 1)
    scale = float_of(bits << fields.mantissa_bits, fields)
    coefficients = [c / factor for c in _exp_coefficients(x, factor)]
    square = r * r * polynomial(r, coefficients[1:])
    scaled = scale if factor == 1 else scale + scale
    first, second, third = subtract(scale, 0.5), scaled * r, scaled * square
    # the first sum is nearly exact
    total = first + second
    if fields.dtype is dtypes.float64:
        third = third + subtract(second, subtract(total, first))
    return total + third


def expm1(x: UOp) -> UOp:
    """e**x - 1, accurate near 0."""
    fields = float_fields(x)
    limit = (fields.mantissa_bits + 2) / INVERSE_LOG_2
    half = _expm1(_clamp(x, -limit, (fields.bias + 1.25) / INVERSE_LOG_2), 1)
    # half of a subnormal may not be exact
    return (absolute(x) < 2.0**-fields.mantissa_bits / 4).where(x, half + half)


def tanh(x: UOp) -> UOp:
    """The hyperbolic tangent: h / (1 + h) with h = (e**2x - 1) / 2."""
    magnitude = absolute(x)
    # the result is exactly 1 above it, and the gradient 0
    limit = (float_fields(x).mantissa_bits + 6) / INVERSE_LOG_2 / 2
    h = _expm1((magnitude > limit).where(x.const_like(limit), magnitude), 2)
    quotient = h.alu(Ops.FDIV, h + 1)
    # near 0, the difference rounds less than the quotient
    return copy_sign((h < 0.6).where(subtract(h, h * quotient), quotient), x)


def logistic(x: UOp) -> UOp:
    """1 / (1 + e**-x). Scaled numerator and denominator give subnormal results.

    With e**-x = 2**n (1 + t), the denominator is (1 + 2**n) + 2**n t, whose first sum is exact, or,
    for large n, (1 + 2**n t) + 2**n. So nearly all of the error is that of the last two operations.
    """
    fields = float_fields(x)
    exponent = -fields.mantissa_bits - 1
    one = x.const_like(2.0**exponent)
    # below, the result is 0; above, it is 1
    x = _clamp(x, (exponent - fields.bias) / INVERSE_LOG_2, (3 - exponent) / INVERSE_LOG_2)
    bits, r = _reduce(x, fields.bias + exponent, factor=-1)
    power = float_of(bits << fields.mantissa_bits, fields)
    rest = power * (r * polynomial(r, _exp_coefficients(x, -1)))
    is_large = x < -fields.mantissa_bits / 2
    first, second = is_large.where(rest, power), is_large.where(power, rest)
    return one.alu(Ops.FDIV, (one + first) + second)


def softplus(x: UOp) -> UOp:
    """log(1 + e**x): max(x, 0) + log(1 + e**-|x|)."""
    fields = float_fields(x)
    e = exp(float_of(bits_of(x) | fields.sign_bit, fields))
    square = e * (e * polynomial(e, SOFTPLUS_COEFFICIENTS[fields.dtype]))
    # the smaller difference first
    return subtract((x > 0).where(x, x.const_like(0)), square) + e


def _half_exponential(x: UOp) -> UOp:
    """e**x / 2, which overflows no earlier than sinh and cosh."""
    return _exponential(x, -1)


def sinh(x: UOp) -> UOp:
    """The hyperbolic sine: a polynomial near 0, (e**x - e**-x) / 2 elsewhere."""
    fields = float_fields(x)
    magnitude = absolute(x)
    z = magnitude * magnitude
    small = magnitude * (z * polynomial(z, SINH_COEFFICIENTS[fields.dtype])) + magnitude
    half = _half_exponential(magnitude)
    large = subtract(half, half.const_like(0.25).alu(Ops.FDIV, half))
    return copy_sign((magnitude < 1).where(small, large), x)


def cosh(x: UOp) -> UOp:
    """The hyperbolic cosine: (e**x + e**-x) / 2."""
    half = _half_exponential(absolute(x))
    return half + half.const_like(0.25).alu(Ops.FDIV, half)
