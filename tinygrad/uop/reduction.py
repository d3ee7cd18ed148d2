"""Reduction ops: those of scatters, and their identity elements."""

from __future__ import annotations

import math

from tinygrad.dtype import ConstType, DType, dtypes
from tinygrad.uop import Ops

SCATTER_REDUCE_OPS: dict[Ops, Ops] = {
    Ops.SCATTER_ADD: Ops.ADD,
    Ops.SCATTER_MUL: Ops.MUL,
    Ops.SCATTER_MAX: Ops.MAX,
}
"""The op by which each scatter combines values of equal index."""


def identity(op: Ops, dtype: DType) -> ConstType:
    """The identity element of a reduction by `op`."""
    return {Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dtypes.min(dtype)}[op]


def lowest(dtype: DType) -> float:
    """The least finite number of a float dtype."""
    exponent, mantissa = dtypes.finfo(dtype)
    return -math.ldexp(2.0 - 2.0**-mantissa, (1 << (exponent - 1)) - 1)
