"""Variables of any dtype: a kernel takes their values as int32 or int64.

A float64 is passed by its bits, every other float by those of a float32. Integers of other types
are passed as int64, which is converted.
"""

from __future__ import annotations

import struct
from typing import Any

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.node import N

_PASSED = frozenset({dtypes.index, dtypes.int32, dtypes.int64})


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
    """The value of a Variable in a kernel: itself, or what is made of its integer argument."""
    if variable.dtype in _PASSED:
        return variable
    new, is_double = type(variable), variable.dtype is dtypes.float64
    if not dtypes.is_float(variable.dtype):
        name, low, high = variable.arg
        if variable.dtype is dtypes.uint64:
            low, high = dtypes.min(dtypes.int64), dtypes.max(dtypes.int64)
        passed_integer = new(Ops.DEFINE_VAR, dtypes.int64, (), (name, low, high))
        return new(Ops.CAST, variable.dtype, (passed_integer,))
    bits = dtypes.int64 if is_double else dtypes.int32
    passed = dtypes.float64 if is_double else dtypes.float32
    limits = (dtypes.min(bits), dtypes.max(bits))
    number = new(Ops.BITCAST, passed, (new(Ops.DEFINE_VAR, bits, (), (variable.arg[0], *limits)),))
    return number if passed is variable.dtype else new(Ops.CAST, variable.dtype, (number,))


def _codes(dtype: DType) -> tuple[str, str]:
    return ("<d", "<q") if dtype is dtypes.float64 else ("<f", "<i")
