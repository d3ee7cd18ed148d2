"""sin, cos and tan in multiplications, additions and integer ops, accurate for every float.

In: expressions of float32 or float64, scalar or vector. Out: the same dtype. The argument is
reduced modulo pi / 2 in two ways, of which one is selected: Cody-Waite reduction, which subtracts
multiples of pi / 2 in three parts, for small arguments, and Payne-Hanek reduction, which multiplies
by the significant bits of 1 / (2 pi), for large ones. That costs several times as much, so it runs
only where a lane of a vector needs it (`rare_values.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinygrad.codegen.decompose.float_math import (
    FloatFields,
    absolute,
    bits_of,
    float_fields,
    float_of,
    polynomial,
    subtract,
)
from tinygrad.codegen.decompose.rare_values import select_rarely
from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# for z = r**2, |r| <= pi / 4: sin(r) = r + r z S(z), cos(r) = 1 + z C(z); relative errors 2**-27.9
# and 2**-33.0 for float32, 2**-57.9 and 2**-63.9 for float64
SIN_COEFFICIENTS = {
    dtypes.float32: (-0.16666655242443085, 0.008332190103828907, -0.00019518454791978002),
    dtypes.float64: (
        *(-0.1666666666666663, 0.008333333333321922, -0.0001984126982946316),
        *(2.7557313584362357e-06, -2.5050742709715414e-08, 1.5895969116785161e-10),
    ),
}
COS_COEFFICIENTS = {
    dtypes.float32: (-0.5, 0.04166664555668831, -0.0013887310633435845, 2.4432567443000153e-05),
    dtypes.float64: (
        *(-0.5, 0.041666666666666595, -0.001388888888887335, 2.4801587289010143e-05),
        *(-2.7557314219757556e-07, 2.0875705792280657e-09, -1.1358770398839089e-11),
    ),
}

# tan(r) = r + r z T(z), same r; relative error 2**-29.6 and 2**-56.1
TAN_COEFFICIENTS = {
    dtypes.float32: (
        *(0.33333349227905273, 0.13332675397396088, 0.054058920592069626),
        *(0.021286126226186752, 0.010827760212123394, 9.772824705578387e-05),
        0.004373002797365189,
    ),
    dtypes.float64: (
        *(0.33333333333332776, 0.1333333333341485, 0.053968253926554306, 0.02186948961181167),
        *(0.008863219122907726, 0.0035922894724698512, 0.0014547554316956927),
        *(0.0005950760336615138, 0.0002223448044909765, 0.00013660073173851208),
        *(-2.6495794707208528e-05, 8.955582442102944e-05, -4.493359547454256e-05),
        2.0877191737679346e-05,
    ),
}

# pi / 2 in three parts; the product of either of the first two with an integer of 7 bits is exact
HALF_PI_PARTS = {
    dtypes.float32: (1.57080078125, -4.45445766672492e-06, 2.5633440682570896e-12),
    dtypes.float64: (1.5707963267948912, 5.3903028581581316e-15, -1.2536990206932499e-29),
}

# below 2**7, the multiple of pi / 2 has at most 7 bits
SMALL_EXPONENT = 7

# 2 pi in two parts, of which the first has half the bits of the mantissa
TWO_PI_PARTS = {
    dtypes.float32: (6.283203125, -1.781781975296326e-05),
    dtypes.float64: (6.283185362815857, -5.5636270456668466e-08),
}

# the first 1280 bits of 1 / (2 pi) after the point
INVERSE_TWO_PI_BITS = 1280
INVERSE_TWO_PI = int(
    "28be60db9391054a7f09d5f47d4d377036d8a5664f10e4107f9458eaf7aef158"
    "6dc91b8e909374b801924bba827464873f877ac72c4a69cfba208d7d4baed121"
    "3a671c09ad17df904e64758e60d4ce7d272117e2ef7e4a0ec7fe25fff7816603"
    "fbcbc462d6829b47db4d9fb3c9f2c26dd3d18fd9a797fa8b5d49eeb1faf97c5e"
    "cf41ce7de294a4ba9afed7ec47e357421580cc11bf1edaeafc33ef0826bd0d87",
    16,
)


@dataclass(frozen=True)
class _Reduced:
    """|x| = quadrant * pi / 2 + angle + error with |angle| <= pi / 4, quadrants modulo 4."""

    angle: UOp
    error: UOp
    quadrant: UOp

    @staticmethod
    def of(x: UOp, precise: bool = False) -> _Reduced:
        """The angle is NaN for infinity. `precise` for errors below half an ulp of the angle."""
        magnitude = absolute(x)
        small, large = _cody_waite(magnitude, precise), _payne_hanek(magnitude, precise)
        is_large = magnitude.const_like(2.0**SMALL_EXPONENT) < magnitude
        finite = (magnitude < math.inf).where(large.angle, x.const_like(math.nan))
        return _Reduced(
            select_rarely(is_large, finite, small.angle),
            select_rarely(is_large, large.error, small.error),
            select_rarely(is_large, large.quadrant, small.quadrant),
        )


def sin(x: UOp) -> UOp:
    """The sine of x radians; NaN for infinity."""
    return _with_sign_of(_sine_after(_Reduced.of(x), 0), x)


def cos(x: UOp) -> UOp:
    """The cosine of x radians; NaN for infinity."""
    return _sine_after(_Reduced.of(x), 1)


def _sine_after(x: _Reduced, quadrants: int) -> UOp:
    """sin(|x| + quadrants * pi / 2)."""
    r = x.angle
    fields = float_fields(r)
    z = r * r
    sine = r + (r * (z * polynomial(z, SIN_COEFFICIENTS[fields.dtype])) + x.error)
    cosine = z * polynomial(z, COS_COEFFICIENTS[fields.dtype]) + 1
    quadrant = x.quadrant + quadrants if quadrants else x.quadrant
    value = (quadrant & 1).ne(0).where(cosine, sine)
    sign = (quadrant << (fields.total_bits - 2)) & fields.sign_bit
    return float_of(bits_of(value) ^ sign, fields)


def tan(x: UOp) -> UOp:
    """The tangent of x radians; NaN for infinity."""
    reduced = _Reduced.of(x, precise=True)
    r = reduced.angle
    z = r * r
    cubic = r * (z * polynomial(z, TAN_COEFFICIENTS[x.dtype.scalar()]))
    # the slope 1 + tan(r)**2 matters where it is large
    tangent = r + (cubic + (reduced.error + reduced.error * z))
    inverse = tangent.const_like(-1).alu(Ops.FDIV, tangent)
    return _with_sign_of((reduced.quadrant & 1).ne(0).where(inverse, tangent), x)


def _with_sign_of(value: UOp, by: UOp) -> UOp:
    """`value`, negated where the sign bit of `by` is set."""
    fields = float_fields(by)
    return float_of(bits_of(value) ^ (bits_of(by) & fields.sign_bit), fields)


def _cody_waite(x: UOp, precise: bool) -> _Reduced:
    """The reduction for 0 <= x < 2**SMALL_EXPONENT."""
    fields = float_fields(x)
    shifted = x * (2 / math.pi) + fields.round_to_integer
    n = subtract(shifted, fields.round_to_integer)
    first, second, third = HALF_PI_PARTS[fields.dtype]
    exact = subtract(x, n * first)
    difference = subtract(exact, n * second)
    angle = subtract(difference, n * third)
    if not precise:
        return _Reduced(angle, x.const_like(0), bits_of(shifted))
    error = subtract(subtract(exact, difference), n * second)
    error = error + subtract(subtract(difference, angle), n * third)
    return _Reduced(angle, error, bits_of(shifted))


def _payne_hanek(x: UOp, precise: bool) -> _Reduced:
    """The reduction for x >= 2**SMALL_EXPONENT; meaningless below."""
    fields = float_fields(x)
    limbs = _fraction_of_turns(x, fields)
    turns = [(limbs[i] << 32) | limbs[i + 1] for i in range(0, len(limbs), 2)]
    # rounded; a fraction of 7/8 or more wraps to quadrant 0
    quadrant = (turns[0] + (1 << 61)) >> 62
    angle = subtract(turns[0], quadrant << 62).bitcast(dtypes.int64.vec(x.dtype.count))
    rounded = angle.cast(x.dtype)
    lower = subtract(angle, rounded.cast(angle.dtype)).cast(x.dtype)
    for i, turn in enumerate(turns[1:]):
        lower = lower + turn.cast(x.dtype) * 2.0 ** (-64 * (i + 1))
    # half of the bits, whose product with the first part of 2 pi is exact
    half = (1 << (fields.mantissa_bits // 2 + 1)) - 1
    upper = float_of(bits_of(rounded) & (fields.all_bits ^ half), fields)
    high, low = (part * 2.0**-64 for part in TWO_PI_PARTS[fields.dtype])
    leading, correction = upper * high, lower * (high + low)
    rest = subtract(rounded, upper) * high + rounded * low
    if len(turns) > 1:
        rest = rest + correction
    r = leading + rest
    error = subtract(leading, r) + rest
    if precise and len(turns) == 1:
        error = error + correction
    return _Reduced(r, error, quadrant.cast(fields.unsigned.vec(x.dtype.count)))


def _fraction_of_turns(x: UOp, fields: FloatFields) -> list[UOp]:
    """frac(x / (2 pi)) in 32-bit limbs held in uint64, the highest first: 2, or 4 for float64.

    x is m * 2**e with an integer m, so the result is frac(m * frac(2**e / (2 pi))): the bits of
    1 / (2 pi) from position e on, as many as m and the result have together, times m.
    """
    bits = bits_of(x)
    mantissa = (bits & fields.mantissa_mask) | (1 << fields.mantissa_bits)
    wide = dtypes.uint64.vec(x.dtype.count)
    factor = _limbs(mantissa, fields, wide)
    count = 2 if fields.dtype is dtypes.float32 else 4
    # the table starts at the position of the smallest argument, so that positions are not negative
    lead = fields.mantissa_bits - SMALL_EXPONENT
    position = subtract(bits >> fields.mantissa_bits, fields.bias + SMALL_EXPONENT)
    max_position = fields.bias - SMALL_EXPONENT
    position = position.cast(dtypes.uint32.vec(x.dtype.count))
    window = _window(INVERSE_TWO_PI >> lead, position, max_position, count + len(factor))
    return _multiply([w.cast(wide) for w in window], factor, count)


def _limbs(mantissa: UOp, fields: FloatFields, wide: DType) -> list[UOp]:
    """An integer as 32-bit limbs held in uint64, the lowest first."""
    if fields.mantissa_bits < 32:
        return [mantissa.cast(wide)]
    return [mantissa & 0xFFFF_FFFF, mantissa >> 32]


def _window(table: int, position: UOp, max_position: int, count: int) -> list[UOp]:
    """`count` 32-bit words of a table of bits from a bit position (uint32) on, highest first."""
    steps = range((max_position // 32).bit_length() - 1, -1, -1)
    needed = count + 1 + sum(1 << b for b in steps)
    words = [
        position.const_like((table >> (INVERSE_TWO_PI_BITS - 32 * (i + 1))) & 0xFFFF_FFFF)
        for i in range(needed)
    ]
    # select by the bits of the word number, the highest first; each step halves the candidates
    for b in steps:
        is_upper = (position & (32 << b)).ne(0)
        remaining = len(words) - (1 << b)
        words = [is_upper.where(words[i + (1 << b)], words[i]) for i in range(remaining)]
    shift = position & 31
    # a shift by 32 is undefined, so it is split in two
    return [(words[i] << shift) | ((words[i + 1] >> 1) >> (shift ^ 31)) for i in range(count)]


def _multiply(window: list[UOp], factor: list[UOp], count: int) -> list[UOp]:
    """The fraction of window * factor: the `count` limbs above the `len(factor)` lowest.

    `window` and the result have the highest limb first, and are fractions; `factor` is an integer
    and has the lowest first.
    """
    total = count + len(factor)
    columns: list[list[UOp]] = [[] for _ in range(total + 1)]
    for i, w in enumerate(reversed(window)):
        for j, m in enumerate(factor):
            if i + j < total:
                product = w * m
                columns[i + j].append(product & 0xFFFF_FFFF)
                columns[i + j + 1].append(product >> 32)
    limbs = []
    carry: UOp | None = None
    for column in columns[:total]:
        value = column[0] if carry is None else column[0] + carry
        for product in column[1:]:
            value = value + product
        carry = value >> 32
        limbs.append(value & 0xFFFF_FFFF)
    return limbs[: len(factor) - 1 : -1]
