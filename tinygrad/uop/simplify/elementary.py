"""Elementary functions of Python floats, for constant folding, with the edges of IEEE 754."""

from __future__ import annotations

import math
from collections.abc import Callable

from tinygrad.uop import Ops


def _logistic(x: float) -> float:
    exponential = math.exp(-abs(x))
    return (1.0 if x >= 0 else exponential) / (1 + exponential)


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _exp2(x: float) -> float:
    return float(2.0**x)


# Python's functions raise OverflowError for large results, ValueError at poles and for NaN
_FUNCTIONS: dict[Ops, Callable[[float], float]] = {
    Ops.EXP2: _exp2,
    Ops.EXP: math.exp,
    Ops.EXPM1: math.expm1,
    Ops.LOG2: math.log2,
    Ops.LOG: math.log,
    Ops.LOG1P: math.log1p,
    Ops.SIN: math.sin,
    Ops.COS: math.cos,
    Ops.TAN: math.tan,
    Ops.ASIN: math.asin,
    Ops.ACOS: math.acos,
    Ops.ATAN: math.atan,
    Ops.SINH: math.sinh,
    Ops.COSH: math.cosh,
    Ops.TANH: math.tanh,
    Ops.ASINH: math.asinh,
    Ops.ACOSH: math.acosh,
    Ops.ATANH: math.atanh,
    Ops.ERF: math.erf,
    Ops.LOGISTIC: _logistic,
    Ops.SOFTPLUS: _softplus,
}
_POLES = {
    (Ops.LOG2, 0.0): -math.inf,
    (Ops.LOG, 0.0): -math.inf,
    (Ops.LOG1P, -1.0): -math.inf,
    (Ops.ATANH, 1.0): math.inf,
    (Ops.ATANH, -1.0): -math.inf,
}


def elementary(op: Ops, x: float) -> float:
    """The value of an elementary function."""
    try:
        return _FUNCTIONS[op](x)
    except OverflowError:
        return -math.inf if op is Ops.SINH and x < 0 else math.inf
    except ValueError:
        return _POLES.get((op, x), math.nan)
