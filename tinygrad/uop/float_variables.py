"""Float Variables: a kernel takes the bits of their values, so all of its arguments are integers.

float64 is passed as the bits of a float64, every other float as those of a float32.
"""

from __future__ import annotations

import struct
from typing import Any

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.node import N


def argument_of(variable: N, value: Any) -> int:
    """The integer by which kernels are passed a value of a Variable."""
    if not dtypes.is_float(variable.dtype):
        return int(value)
    float_code, integer_code = _codes(variable.dtype)
    return int(struct.unpack(integer_code, struct.pack(float_code, value))[0])


def value_of(variable: N, argument: int) -> Any:
    """The value of a Variable that `argument` passes to kernels."""
    if not dtypes.is_float(variable.dtype):
        return argument
    float_code, integer_code = _codes(variable.dtype)
    return struct.unpack(float_code, struct.pack(integer_code, argument))[0]


def read_argument(variable: N) -> N:
    """The value of a Variable in a kernel: itself, or the float whose bits are passed."""
    if not dtypes.is_float(variable.dtype):
        return variable
    new, is_double = type(variable), variable.dtype is dtypes.float64
    bits = dtypes.int64 if is_double else dtypes.int32
    passed = dtypes.float64 if is_double else dtypes.float32
    limits = (dtypes.min(bits), dtypes.max(bits))
    number = new(Ops.BITCAST, passed, (new(Ops.DEFINE_VAR, bits, (), (variable.arg[0], *limits)),))
    return number if passed is variable.dtype else new(Ops.CAST, variable.dtype, (number,))


def _codes(dtype: DType) -> tuple[str, str]:
    return ("<d", "<q") if dtype is dtypes.float64 else ("<f", "<i")
