"""C types and literals of dtypes and constants."""

from __future__ import annotations

import math
from typing import Any

from tinygrad.dtype import DType, dtypes, truncate

# `long long` has 64 bits on every system, `long` has not
SCALARS = {
    dtypes.void: "void",
    dtypes.bool: "_Bool",
    dtypes.int8: "signed char",
    dtypes.uint8: "unsigned char",
    dtypes.int16: "short",
    dtypes.uint16: "unsigned short",
    dtypes.int32: "int",
    dtypes.uint32: "unsigned int",
    dtypes.int64: "long long",
    dtypes.uint64: "unsigned long long",
    dtypes.index: "long long",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
_SUFFIXES = {
    dtypes.uint32: "u",
    dtypes.int64: "ll",
    dtypes.uint64: "ull",
    dtypes.float32: "f",
}
_MIN_INTEGER = -(1 << 63)


def type_suffix(dtype: DType) -> str:
    """The dtype as part of an identifier: `f32`, `i64x8`; a bool is `u8`, as in memory."""
    scalar = dtype.scalar()
    letter = "f" if dtypes.is_float(scalar) else "u" if is_unsigned(scalar) else "i"
    lanes = f"x{dtype.count}" if dtype.count > 1 else ""
    return f"{letter}{scalar.itemsize * 8}{lanes}"


def is_unsigned(dtype: DType) -> bool:
    """Whether the C type is unsigned, as `_Bool` is."""
    return dtypes.is_unsigned(dtype) or dtypes.is_bool(dtype)


def mask_type(count: int, itemsize: int) -> DType:
    """The type of a comparison of `count` elements of `itemsize` bytes: lanes of 0 or -1."""
    signed = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}[itemsize]
    return signed.vec(count)


def literal(dtype: DType, value: Any) -> str:
    """A literal of a scalar type."""
    scalar = dtype.scalar()
    if dtypes.is_bool(scalar):
        return str(int(bool(value)))
    if dtypes.is_float(scalar):
        return _float(scalar, float(value))
    convert = truncate.get(scalar)
    integer = int(value) if convert is None else int(convert(value))
    suffix = _SUFFIXES.get(scalar, "")
    if integer == _MIN_INTEGER:
        # C has no negative literals, and the magnitude does not fit the type
        return f"({integer + 1}{suffix} - 1)"
    if scalar is dtypes.index and abs(integer) >= 1 << 31:
        suffix = "ll"
    text = f"{integer}{suffix}"
    return f"({text})" if integer < 0 else text


def _float(dtype: DType, value: float) -> str:
    value = truncate[dtype](value)
    suffix = _SUFFIXES.get(dtype, "")
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"({'-' if value < 0 else ''}__builtin_inf{suffix}())"
    text = f"{_shortest(dtype, value)}{suffix}"
    return f"({text})" if text.startswith("-") else text


def _shortest(dtype: DType, value: float) -> str:
    """The shortest decimal that rounds to this number in its type."""
    digits = next(n for n in range(1, 18) if truncate[dtype](float(f"{value:.{n}g}")) == value)
    text = f"{value:.{digits}g}"
    return text if any(c in text for c in ".e") else text + ".0"
