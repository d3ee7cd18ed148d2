"""Inverse sine, cosine and tangent by polynomials on a reduced interval.

In: expressions of float32 or float64, scalar or vector. Out: the same dtype, without branches; NaN
outside the domain. `docs/numerics.md` states the maximum errors. Coefficients are fitted as those
in `exponential.py`.
"""

from __future__ import annotations

from tinygrad.codegen.decompose.float_math import (
    absolute,
    copy_sign,
    float_fields,
    polynomial,
    subtract,
)
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# asin(x) = x + x z R(z) with z = x**2, |x| <= 1/2; relative error 2**-27.6 and 2**-55.9
ASIN_COEFFICIENTS = {
    dtypes.float32: (
        *(0.16666752099990845, 0.074953094124794, 0.045469142496585846),
        *(0.02418484352529049, 0.04215816780924797),
    ),
    dtypes.float64: (
        *(0.16666666666665408, 0.07500000000337137, 0.04464285682823795),
        *(0.03038195914072529, 0.02237175795133376, 0.01735970645643095),
        *(0.013885216527726516, 0.01216935085805485, 0.006527310493140017),
        *(0.019530246752817327, -0.016227598290559336, 0.031914710688153686),
    ),
}

# atan(x) = x + x z R(z) with z = x**2, |x| <= 1; relative error 2**-28.5 and 2**-54.9
ATAN_COEFFICIENTS = {
    dtypes.float32: (
        *(-0.33333298563957214, 0.1999852955341339, -0.14264015853405),
        *(0.10950880497694016, -0.08399307727813721, 0.057881444692611694),
        *(-0.03109704703092575, 0.010868698358535767, -0.0017828132258728147),
    ),
    dtypes.float64: (
        *(-0.3333333333333186, 0.1999999999975519, -0.1428571427134185, 0.11111110678902449),
        *(-0.09090901237426294, 0.07692212947934558, -0.06665860460992516),
        *(0.0587730811823355, -0.052392335979771255, 0.04673948743704576),
        *(-0.04092629357363529, 0.03406751913107701, -0.025826200333261034),
        *(0.016977197008176213, -0.00918372931347256, 0.0038554047962791604),
        *(-0.001163812123797143, 0.00022295179971419738, -2.0249868239022845e-05),
    ),
}

# pi / 2 as a rounded value and its error
HALF_PI_PARTS = {
    dtypes.float32: (1.5707963705062866, -4.371138828673793e-08),
    dtypes.float64: (1.5707963267948966, 6.123233995736766e-17),
}


def _reduced_asin(x: UOp, is_large: UOp) -> tuple[UOp, UOp]:
    """asin(s) = s + rest, for s = |x|, or sqrt((1 - |x|) / 2) where `is_large`."""
    magnitude = absolute(x)
    z = is_large.where(subtract(1, magnitude) * 0.5, x * x)
    s = is_large.where(z.sqrt(), magnitude)
    return s, s * (z * polynomial(z, ASIN_COEFFICIENTS[x.dtype.scalar()]))


def asin(x: UOp) -> UOp:
    """The inverse sine: pi / 2 - 2 asin(sqrt((1 - x) / 2)) for x > 1/2."""
    high, low = HALF_PI_PARTS[x.dtype.scalar()]
    is_large = absolute(x) > 0.5
    s, rest = _reduced_asin(x, is_large)
    leading = subtract(high, s + s)
    lost = subtract(subtract(high, leading), s + s)
    large = leading + (lost + subtract(low, rest + rest))
    return copy_sign(is_large.where(large, s + rest), x)


def acos(x: UOp) -> UOp:
    """The inverse cosine: 2 asin(sqrt((1 - x) / 2)) for x > 1/2, pi / 2 - asin(x) near 0."""
    high, low = HALF_PI_PARTS[x.dtype.scalar()]
    is_large = absolute(x) > 0.5
    is_negative = x < 0
    s, rest = _reduced_asin(x, is_large)
    s, rest = is_large.where(s + s, s), is_large.where(rest + rest, rest)
    # from pi / 2, from pi, or alone
    multiple = is_large.where(is_negative.where(x.const_like(2), x.const_like(0)), x.const_like(1))
    is_added = is_large.ne(is_negative)
    s, rest = is_added.where(s, s * -1), is_added.where(rest, rest * -1)
    return (multiple * high + s) + (multiple * low + rest)


def atan(x: UOp) -> UOp:
    """The inverse tangent: pi / 2 - atan(1 / x) for x > 1."""
    fields = float_fields(x)
    high, low = HALF_PI_PARTS[fields.dtype]
    magnitude = absolute(x)
    is_large = magnitude > 1
    t = is_large.where(magnitude.const_like(1).alu(Ops.FDIV, magnitude), magnitude)
    z = t * t
    rest = t * (z * polynomial(z, ATAN_COEFFICIENTS[fields.dtype]))
    large = subtract(high, t) + subtract(low, rest)
    return copy_sign(is_large.where(large, t + rest), x)
