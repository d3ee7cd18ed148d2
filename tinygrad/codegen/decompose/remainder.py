"""Remainders of floats: `x - trunc(x / y) * y` without rounding, as C's fmod.

In: expressions of float32 or float64, scalar or vector. Out: the same dtype, without branches. The
quotient is subtracted in steps of few bits, each of them exact.
"""

from __future__ import annotations

import math

from tinygrad.codegen.decompose.float_math import (
    absolute,
    bits_of,
    float_fields,
    float_of,
    subtract,
)
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# the product of a partial quotient of 29 bits and a float32 of 24 bits is exact in float64
QUOTIENT_BITS = 28
FLOAT32_MAX_EXPONENT = 128
FLOAT32_MIN_EXPONENT = -149


def remainder_by_power_of_two(x: UOp, divisor: float) -> UOp:
    """The remainder by a power of two whose inverse is a normal number."""
    fields, size, by = float_fields(x), absolute(x), abs(divisor)
    rest = subtract(size, (size * (1 / by)).trunc() * by)
    if by < 1:
        # the quotient may overflow; a float without a fraction is a multiple, but infinity is not
        rest = (size < by * 2.0**fields.mantissa_bits).where(rest, size * 0.0)
    return _with_sign(rest, x)


def is_power_of_two(value: float) -> bool:
    """Whether `value` is a power of two whose inverse is a normal float32."""
    mantissa, exponent = math.frexp(value)
    return abs(mantissa) == 0.5 and abs(exponent) < 126


def remainder(x: UOp, y: UOp, divisor: float | None) -> UOp:
    """The remainder of float32, computed in float64; `divisor` is the constant value of `y`."""
    wide = dtypes.float64.vec(x.dtype.count)
    rest, by = absolute(x).cast(wide), absolute(y).cast(wide)
    # just below 1, so that the products are not rewritten to divisions
    inverse = by.const_like(1 - 2.0**-53).alu(Ops.FDIV, by)
    for step in reversed(range(_steps(divisor))):
        quotient = rest * inverse
        if step:
            # rounded toward zero, so that the rest stays near 0; it may become negative
            kept = bits_of(quotient) & ~((1 << 52 - QUOTIENT_BITS) - 1)
            quotient = float_of(kept, float_fields(quotient))
        rest = subtract(rest, quotient.trunc() * by)
    rest = (rest < 0.0).where(rest + by, (rest < by).where(rest, subtract(rest, by)))
    result = rest.cast(x.dtype)
    if divisor is None or math.isinf(divisor):
        # an infinite divisor leaves x as it is, and NaN of an infinite x
        size = absolute(x)
        result = absolute(y).eq(math.inf).where(size + size * 0.0, result)
    return _with_sign(result, x)


def _steps(divisor: float | None) -> int:
    """The number of steps for the largest quotient."""
    exponent = FLOAT32_MIN_EXPONENT
    if divisor and math.isfinite(divisor):
        exponent = max(exponent, math.frexp(divisor)[1] - 1)
    return math.ceil((FLOAT32_MAX_EXPONENT - exponent) / QUOTIENT_BITS)


def _with_sign(size: UOp, x: UOp) -> UOp:
    """A float that is not negative with the sign of `x`."""
    fields = float_fields(x)
    return float_of(bits_of(size) | (bits_of(x) & fields.sign_bit), fields)
