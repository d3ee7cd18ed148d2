"""Exact values of the elementary functions, by mpmath, and errors in ulps.

The arguments cover the whole range: random bits, uniform numbers of several magnitudes, neighbours
of zeros and of the ends of the domain, subnormals, infinities, NaN and both zeros.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from test.evaluator.arithmetic import Array
from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops

FLOATS = {dtypes.float32: np.float32, dtypes.float64: np.float64}
MAGNITUDES = (1e-3, 0.3, 1, 2, 5, 20, 90, 130, 750, 1100, 1e6)
# with the logarithms of 2**24 and 2**53, from where on 1 is lost beside an exponential
NEAR = (0.25, 0.35, 0.5, 0.6, 1.0, np.pi / 2, np.pi, 10 * np.pi, 1e5 * np.pi, 16.64, 36.74)
# the float64 nearest to a multiple of pi / 2, and a classic
HARD = (6381956970095103 * 2.0**797, 1e22)


def _logistic(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


FUNCTIONS: dict[Ops, Callable[[Any], Any]] = {
    Ops.EXP2: lambda x: mpmath.power(2, x),
    Ops.EXP: mpmath.exp,
    Ops.EXPM1: mpmath.expm1,
    Ops.LOG2: lambda x: mpmath.log(x, 2),
    Ops.LOG: mpmath.log,
    Ops.LOG1P: mpmath.log1p,
    Ops.SIN: mpmath.sin,
    Ops.COS: mpmath.cos,
    Ops.TAN: mpmath.tan,
    Ops.ASIN: mpmath.asin,
    Ops.ACOS: mpmath.acos,
    Ops.ATAN: mpmath.atan,
    Ops.SINH: mpmath.sinh,
    Ops.COSH: mpmath.cosh,
    Ops.TANH: mpmath.tanh,
    Ops.ASINH: mpmath.asinh,
    Ops.ACOSH: mpmath.acosh,
    Ops.ATANH: mpmath.atanh,
    Ops.ERF: mpmath.erf,
    Ops.LOGISTIC: _logistic,
    Ops.SOFTPLUS: lambda x: mpmath.log1p(mpmath.exp(x)),
}
AT_INFINITY: dict[Ops, tuple[float, float]] = {
    Ops.EXP2: (0, np.inf),
    Ops.EXP: (0, np.inf),
    Ops.EXPM1: (-1, np.inf),
    Ops.ATAN: (-np.pi / 2, np.pi / 2),
    Ops.SINH: (-np.inf, np.inf),
    Ops.COSH: (np.inf, np.inf),
    Ops.TANH: (-1, 1),
    Ops.ASINH: (-np.inf, np.inf),
    Ops.ERF: (-1, 1),
    Ops.LOGISTIC: (0, 1),
    Ops.SOFTPLUS: (0, np.inf),
    **dict.fromkeys((Ops.LOG2, Ops.LOG, Ops.LOG1P, Ops.ACOSH), (np.nan, np.inf)),
}
# f(x) of larger |x| overflows, or is that of infinity
LARGEST_EXPONENT = 2000
POLES = {(Ops.LOG, 0): -1, (Ops.LOG2, 0): -1, (Ops.LOG1P, -1): -1, (Ops.ATANH, 1): 1}
POLES[Ops.ATANH, -1] = -1


def arguments(dtype: DType, count: int = 20) -> Array:
    """Numbers of a float type from its whole range; about 30 * count of them."""
    kind = FLOATS[dtype]
    generator = np.random.default_rng(7)
    limits = np.finfo(kind)
    bits = (
        generator.integers(0, 256, (4 * count, dtype.itemsize), dtype=np.uint8).view(kind).ravel()
    )
    uniform = [generator.uniform(-m, m, count).astype(kind) for m in MAGNITUDES]
    near = [x * (1 + generator.uniform(-1e-3, 1e-3, count)).astype(kind) for x in NEAR]
    steps = generator.integers(-3, 4, count) * limits.eps
    exact = [(sign * kind(x) * (1 + steps)).astype(kind) for x in NEAR for sign in (-1, 1)]
    small = generator.uniform(-40, 40, count).astype(kind) * limits.smallest_subnormal
    edges = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, limits.max, -limits.max, limits.tiny]
    parts = [bits, *uniform, *near, *exact, small, np.array(edges, kind)]
    with np.errstate(over="ignore"):
        hard = np.array(HARD).astype(kind)
    return np.concatenate([*parts, hard[np.isfinite(hard)]]).astype(kind)


def exact(op: Ops, x: float) -> Any:
    """The value of a function as an mpmath number; NaN outside its domain."""
    if x != x:
        return mpmath.nan
    if np.isinf(x):
        return mpmath.mpf(AT_INFINITY.get(op, (np.nan, np.nan))[int(x > 0)])
    if (op, x) in POLES:
        return POLES[op, x] * mpmath.inf
    if abs(x) > LARGEST_EXPONENT and op in {Ops.EXP, Ops.EXP2, Ops.EXPM1, Ops.SINH, Ops.COSH}:
        return mpmath.mpf(AT_INFINITY[op][int(x > 0)])
    if abs(x) > LARGEST_EXPONENT and op in {Ops.LOGISTIC, Ops.SOFTPLUS}:
        return mpmath.mpf(x if op is Ops.SOFTPLUS and x > 0 else x > 0)
    # enough for a difference from 1, or from 0, of one smallest subnormal
    with mpmath.workprec(1200 if op in {Ops.LOGISTIC, Ops.SOFTPLUS, Ops.TANH} else 120):
        value = FUNCTIONS[op](mpmath.mpf(x))
    return value if isinstance(value, mpmath.mpf) else mpmath.nan


@functools.cache
def references(op: Ops, dtype: DType) -> list[Any]:
    """The exact values at `arguments(dtype)`."""
    return [exact(op, float(x)) for x in arguments(dtype)]


def error_in_ulps(got: float, value: Any, dtype: DType) -> float:
    """The error of a result; infinite for NaN in the place of a number, or the reverse.

    Infinity counts as the number after the largest.
    """
    limits = np.finfo(FLOATS[dtype])
    if mpmath.isnan(value) or np.isnan(got):
        return 0.0 if mpmath.isnan(value) and np.isnan(got) else np.inf
    bound = mpmath.ldexp(1, int(limits.maxexp))
    value, result = (max(-bound, min(bound, mpmath.mpf(x))) for x in (value, float(got)))
    exponent = mpmath.mag(value) - 1 if value else int(limits.minexp)
    exponent = min(max(exponent, int(limits.minexp)), int(limits.maxexp) - 1)
    return float(mpmath.ldexp(abs(result - value), int(limits.nmant) - exponent))


def max_error(
    op: Ops, dtype: DType, got: Array, *, has_subnormals: bool = True
) -> tuple[float, float]:
    """The largest error of the results `got` at `arguments(dtype)`, and its argument; on a target
    without subnormals, of arguments and results whose ulps are normal numbers.
    """
    xs, limits = arguments(dtype), np.finfo(FLOATS[dtype])
    least = 0 if has_subnormals else limits.smallest_normal / limits.eps
    with mpmath.workprec(200):
        errors = [
            0.0
            if 0 < abs(x) < least or 0 < abs(value) < least
            else error_in_ulps(float(y), value, dtype)
            for x, y, value in zip(xs, got, references(op, dtype), strict=True)
        ]
    worst = int(np.argmax(errors))
    return errors[worst], float(xs[worst])
