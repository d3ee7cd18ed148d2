"""Logarithms and the inverse hyperbolic functions, in basic arithmetic and bit operations.

In: expressions of float32 or float64, scalar or vector. Out: the same dtype, without branches.
Infinities, NaNs, zeros and subnormals follow IEEE 754. `docs/numerics.md` states the maximum
errors. Coefficients are fitted as those in `exponential.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinygrad.codegen.decompose.exponential import LOG_2_PARTS
from tinygrad.codegen.decompose.float_math import (
    absolute,
    bits_of,
    copy_sign,
    float_fields,
    float_of,
    polynomial,
    subtract,
)
from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# log2(1 + f) = f + f * Q(f) for sqrt(1/2) <= 1 + f <= sqrt(2); relative error 2**-26.5
LOG2_COEFFICIENTS = (
    *(0.4426950514316559, -0.7213473320007324, 0.4808967709541321, -0.3606972396373749),
    *(0.2886233627796173, -0.2396448701620102, 0.20379506051540375, -0.1901431828737259),
    *(0.19011595845222473, -0.11637934297323227),
)

# float32: log(1 + f) = f - f**2 / 2 + f**3 * Q(f), same f; relative error 2**-27.3
LOG_COEFFICIENTS_OF_F = (
    *(0.3333333134651184, -0.250008225440979, 0.20001259446144104, -0.16623330116271973),
    *(0.1420106738805771, -0.13159748911857605, 0.12765733897686005, -0.0764041617512703),
)

# float64: log(1 + f) = 2 s + s * z * R(z) with s = f / (2 + f), z = s**2; relative error 2**-66.6
LOG_COEFFICIENTS = (
    *(0.6666666666666666, 0.4000000000000489, 0.28571428569423607, 0.22222222605031267),
    *(0.18181778506254895, 0.15386982556394124, 0.13252282655278927, 0.13233618337367725),
)

# asinh(x) = x + x z P(z) with z = x**2, |x| <= 0.55; relative error 2**-28.1 and 2**-61.3
ASINH_COEFFICIENTS = {
    dtypes.float32: (
        *(-0.16666613519191742, 0.07497413456439972, -0.04422922432422638),
        *(0.02741312049329281, -0.011982295662164688),
    ),
    dtypes.float64: (
        *(-0.16666666666666638, 0.07499999999992346, -0.044642857135726875),
        *(0.03038194410959973, -0.02237214979501545, 0.01735259798309684),
        *(-0.013962819574563946, 0.011534554299123697, -0.009656939413720636),
        *(0.00793543762525387, -0.00590279145341783, 0.0033670225333881725),
        -0.0010382515974658416,
    ),
}

# atanh(x) = x + x z P(z) with z = x**2, |x| <= 0.5; relative error 2**-29.4 and 2**-57.0
ATANH_COEFFICIENTS = {
    dtypes.float32: (
        *(0.33333301544189453, 0.2000245451927185, 0.14223742485046387),
        *(0.11816821247339249, 0.05158602073788643, 0.1764061599969864),
    ),
    dtypes.float64: (
        *(0.3333333333333399, 0.19999999999794488, 0.14285714308098355),
        *(0.11111109885392675, 0.09090948580788626, 0.07691492965866185),
        *(0.06677966665379335, 0.057742065511652216, 0.05983506040206324),
        *(0.014521757156542374, 0.1450358966269305, -0.15305203311939233),
        0.22487757520611354,
    ),
}

# 1 / log(2) in two parts; the first has 21 bits, so its product with a 21-bit number is exact
INVERSE_LOG_2 = (1.4426946640014648, 3.768874985636099e-07)
UPPER_21_BITS = 0xFFFF_FFFF_0000_0000


@dataclass(frozen=True)
class Mantissa:
    """x = 2**exponent * (1 + fraction), 1 + fraction from sqrt(1/2) to sqrt(2), for x > 0."""

    exponent: UOp
    fraction: UOp
    shift: UOp
    """The exponent in the bits of the float's exponent."""

    @staticmethod
    def of_normal(x: UOp) -> Mantissa:
        """The parts of a number that is not subnormal."""
        fields = float_fields(x)
        bits = bits_of(x)
        origin = bits_of(x.const_like(math.sqrt(0.5)))
        shift = subtract(bits, origin) & fields.exponent_mask
        fraction = subtract(float_of(subtract(bits, shift), fields), 1)
        # the integer has few significant bits, so the conversion is exact
        exponent = shift.bitcast(fields.signed.vec(x.dtype.count)).cast(x.dtype)
        return Mantissa(exponent * 2.0**-fields.mantissa_bits, fraction, shift)

    @staticmethod
    def of(x: UOp) -> Mantissa:
        """The parts of any number."""
        fields = float_fields(x)
        extra = fields.mantissa_bits + 2
        subnormal = x < 2.0 ** (1 - fields.bias)
        parts = Mantissa.of_normal(subnormal.where(x * 2.0**extra, x))
        offset = subnormal.where(x.const_like(extra), x.const_like(0))
        return Mantissa(subtract(parts.exponent, offset), parts.fraction, parts.shift)


def log2(x: UOp) -> UOp:
    """The logarithm to base 2: NaN below 0, -infinity at 0."""
    if x.dtype.scalar() is dtypes.float64:
        result = _log2_float64(x)
    else:
        parts = Mantissa.of(x)
        f = parts.fraction
        result = parts.exponent + (f * polynomial(f, LOG2_COEFFICIENTS) + f)
    return _with_edges(x, result)


def log(x: UOp) -> UOp:
    """The natural logarithm: NaN below 0, -infinity at 0."""
    parts = Mantissa.of(x)
    return _with_edges(x, _log_of_parts(parts.exponent, parts.fraction))


def _with_edges(x: UOp, result: UOp) -> UOp:
    """A logarithm of x > 0, given that of finite x > 0."""
    finite = (x < math.inf).where(result, x)
    return (x > 0).where(finite, x.ne(0).where(x.const_like(math.nan), x.const_like(-math.inf)))


def _log_of_parts(exponent: UOp, f: UOp, error: UOp | None = None) -> UOp:
    """log(2**exponent * (1 + f)), plus a small `error`."""
    dtype = f.dtype.scalar()
    high, low = LOG_2_PARTS[dtype]
    lower = exponent * low if error is None else exponent * low + error
    half_square = f * f * 0.5
    if dtype is dtypes.float64:
        s = f.alu(Ops.FDIV, f + 2)
        z = s * s
        lower = s * (half_square + z * polynomial(z, LOG_COEFFICIENTS)) + lower
    else:
        lower = f * f * f * polynomial(f, LOG_COEFFICIENTS_OF_F) + lower
    return exponent * high + (f + subtract(lower, half_square))


def _log2_float64(x: UOp) -> UOp:
    """log2 of a positive finite float64."""
    fields = float_fields(x)
    parts = Mantissa.of(x)
    exponent, f = parts.exponent, parts.fraction
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
    return total + (low + (subtract(exponent, total) + product))


def _log_of_sum(x: UOp, rest: UOp | None = None) -> UOp:
    """log(1 + x + rest) for x > -1 and a small rest."""
    fields = float_fields(x)
    total = x + 1
    part = subtract(total, 1)
    # the rounding error of the sum (Knuth)
    error = subtract(1, subtract(total, part)) + subtract(x, part)
    error = error if rest is None else error + rest
    parts = Mantissa.of_normal(total)
    scale = float_of(subtract(bits_of(x.const_like(1)), parts.shift), fields)
    # from where on the error is lost, before the scale underflows
    scaled = (x < 4.0 * 2.0**fields.mantissa_bits).where(error * scale, x.const_like(0))
    # 1 / (1 + f) to first order
    scaled = subtract(scaled, scaled * parts.fraction)
    return _log_of_parts(parts.exponent, parts.fraction, scaled)


def log1p(x: UOp) -> UOp:
    """log(1 + x), accurate near 0."""
    result = copy_sign(_log_of_sum(x), x)
    finite = (x < math.inf).where(result, x)
    at_one = x.ne(-1).where(x.const_like(math.nan), x.const_like(-math.inf))
    return (x > -1).where(finite, at_one)


def _log_of_root(x: UOp, less_one: UOp, rest: UOp | None = None) -> UOp:
    """log(1 + less_one + rest), or log(2 x) for large x, whose square may overflow."""
    is_large = x > 4.0 * 2.0 ** float_fields(x).mantissa_bits
    result = _log_of_sum(is_large.where(x, less_one), rest)
    return result + is_large.where(x.const_like(math.log(2)), x.const_like(0))


def asinh(x: UOp) -> UOp:
    """The inverse hyperbolic sine: a polynomial near 0, log(x + sqrt(x**2 + 1)) for larger x."""
    magnitude = absolute(x)
    square = magnitude * magnitude
    small = _odd_polynomial(magnitude, square, ASINH_COEFFICIENTS)
    # beyond it the sum is 2 x, and the square may overflow
    is_huge = magnitude > 4.0 * 2.0 ** float_fields(x).mantissa_bits
    root = (square + 1).sqrt()
    total = is_huge.where(magnitude, magnitude + root)
    parts = Mantissa.of_normal(total)
    exponent = parts.exponent + is_huge.where(x.const_like(1), x.const_like(0))
    # the rounding error of the sum, relative to about the sum
    scale = float_of(subtract(bits_of(x.const_like(1)), parts.shift), float_fields(x))
    error = subtract(magnitude, subtract(total, root)) * scale
    error = is_huge.where(x.const_like(0), error)
    large = _log_of_parts(exponent, parts.fraction, error)
    result = (magnitude < 0.55).where(small, large)
    return copy_sign((magnitude < math.inf).where(result, magnitude), x)


def _odd_polynomial(x: UOp, square: UOp, coefficients: dict[DType, tuple[float, ...]]) -> UOp:
    """x + x z P(z) for z = x**2."""
    return x * (square * polynomial(square, coefficients[x.dtype.scalar()])) + x


def acosh(x: UOp) -> UOp:
    """The inverse hyperbolic cosine: log(x + sqrt(x**2 - 1)); NaN below 1."""
    above = subtract(x, 1)
    root = (above * above + (above + above)).sqrt()
    less_one = root + above
    result = _log_of_root(x, less_one, subtract(above, subtract(less_one, root)))
    finite = (x < math.inf).where(result, x)
    return (x < 1).where(x.const_like(math.nan), finite)


def atanh(x: UOp) -> UOp:
    """The inverse hyperbolic tangent: a polynomial near 0, log((1 + x) / (1 - x)) / 2 elsewhere;
    NaN outside [-1, 1].
    """
    magnitude = absolute(x)
    small = _odd_polynomial(magnitude, magnitude * magnitude, ATANH_COEFFICIENTS)
    # the difference is exact
    parts = Mantissa.of_normal((magnitude + 1).alu(Ops.FDIV, subtract(1, magnitude)))
    large = _log_of_parts(parts.exponent, parts.fraction) * 0.5
    result = (magnitude < 0.5).where(small, large)
    at_one = magnitude.ne(1).where(x.const_like(math.nan), x.const_like(math.inf))
    return copy_sign((magnitude < 1).where(result, at_one), x)
