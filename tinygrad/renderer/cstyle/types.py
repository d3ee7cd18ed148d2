"""Facts about types that all dialects share."""

from __future__ import annotations

from tinygrad.dtype import DType, dtypes


def type_suffix(dtype: DType) -> str:
    """The dtype as part of an identifier: `f32`, `i64x8`; a bool is `u8`, as in memory."""
    scalar = dtype.scalar()
    letter = "f" if dtypes.is_float(scalar) else "u" if is_unsigned(scalar) else "i"
    letter = "bf" if scalar is dtypes.bfloat16 else letter
    lanes = f"x{dtype.count}" if dtype.count > 1 else ""
    return f"{letter}{scalar.itemsize * 8}{lanes}"


def is_unsigned(dtype: DType) -> bool:
    """Whether the C type is unsigned, as that of bools is."""
    return dtypes.is_unsigned(dtype) or dtypes.is_bool(dtype)


def mask_type(count: int, itemsize: int) -> DType:
    """The type of a comparison of `count` elements of `itemsize` bytes: lanes of 0 or -1."""
    signed = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}[itemsize]
    return signed.vec(count)
