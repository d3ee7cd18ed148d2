"""Values of element types: rounding of Python numbers, and numpy arrays.

Input: a Python number, an array or a numpy dtype. Output: the value as the dtype stores it, or the
dtype or array on the other side. bfloat16 and fp8, which numpy lacks, are stored as their bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinygrad.dtype.float_format import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FP8E4M3,
    FP8E4M3FNUZ,
    FP8E5M2,
    FP8E5M2FNUZ,
    FloatFormat,
)
from tinygrad.dtype.types import DType, dtypes

if TYPE_CHECKING:
    import numpy

FORMATS: dict[DType, FloatFormat] = {
    dtypes.fp8e4m3: FP8E4M3,
    dtypes.fp8e5m2: FP8E5M2,
    dtypes.fp8e4m3fnuz: FP8E4M3FNUZ,
    dtypes.fp8e5m2fnuz: FP8E5M2FNUZ,
    dtypes.float16: FLOAT16,
    dtypes.bfloat16: BFLOAT16,
    dtypes.float32: FLOAT32,
}


def _wrap(value: Any, bits: int, signed: bool) -> int:
    wrapped = int(value) & ((1 << bits) - 1)
    return wrapped - (1 << bits) if signed and wrapped >> (bits - 1) else wrapped


truncate: dict[DType, Callable[[Any], Any]] = {
    dtypes.bool: bool,
    dtypes.float64: float,
    **{dtype: form.round for dtype, form in FORMATS.items()},
    **{
        dtype: functools.partial(_wrap, bits=dtype.itemsize * 8, signed=dtype in dtypes.sints)
        for dtype in dtypes.ints
    },
}
"""For each type, the function that rounds a Python number to a value of the type:
integers wrap around, floats round to nearest, ties to even."""


def saturate(value: float, dtype: DType) -> int:
    """A float as an integer of `dtype`: rounded toward zero, the nearest limit if it is out of
    range, 0 for NaN.
    """
    if value != value:
        return 0
    low, high = dtypes.min(dtype), dtypes.max(dtype)
    return int(min(max(value, low), high))


def is_stored_as_bits(dtype: DType) -> bool:
    """Whether arrays hold the bits as unsigned integers, as numpy has no such type."""
    return dtypes.is_float(dtype) and dtype.fmt is None


@functools.cache
def to_numpy_dtype(dtype: DType) -> numpy.dtype[Any]:
    """The numpy type of the stored elements; see `is_stored_as_bits`. Raises TypeError for void."""
    import numpy

    if is_stored_as_bits(dtype):
        return numpy.dtype(f"u{dtype.itemsize}")
    if dtype is dtypes.index:
        return numpy.dtype("i8")
    if dtype.fmt is None:
        raise TypeError(f"numpy has no type for {dtype!r}; cast the tensor to another dtype first")
    return numpy.dtype(f"={dtype.fmt}")


@functools.cache
def from_numpy_dtype(dtype: Any) -> DType:
    """The type of a numpy dtype, including those of ml_dtypes. Raises TypeError if none is."""
    import numpy

    name = numpy.dtype(dtype).name
    own = f"fp8{name[7:].removesuffix('fn')}" if name.startswith("float8_") else name
    if own not in dtypes.fields():
        raise TypeError(f"there is no dtype for numpy's {name}")
    return dtypes.fields()[own]


def to_float32_array(stored: numpy.ndarray[Any, Any], dtype: DType) -> numpy.ndarray[Any, Any]:
    """An array of the bits of `dtype` (bfloat16 or fp8) as float32 values, of the same shape."""
    return FORMATS[dtype].decode_array(stored)


def from_float32_array(values: numpy.ndarray[Any, Any], dtype: DType) -> numpy.ndarray[Any, Any]:
    """An array of floats as the bits of `dtype` (bfloat16 or fp8), of the same shape, rounded."""
    return FORMATS[dtype].encode_array(values)
