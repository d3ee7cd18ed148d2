"""LLVM IR types, constants and conversion instructions of dtypes."""

from __future__ import annotations

import math
import struct
from typing import Any

from tinygrad.dtype import DType, dtypes, truncate
from tinygrad.renderer.base import memory_dtype
from tinygrad.uop import Ops

SCALARS = {
    dtypes.bool: "i1",
    dtypes.int8: "i8",
    dtypes.uint8: "i8",
    dtypes.int16: "i16",
    dtypes.uint16: "i16",
    dtypes.int32: "i32",
    dtypes.uint32: "i32",
    dtypes.int64: "i64",
    dtypes.uint64: "i64",
    dtypes.index: "i64",
    dtypes.float16: "half",
    dtypes.float32: "float",
    dtypes.float64: "double",
    dtypes.void: "void",
}
_TYPES: dict[DType, str] = {}


def value_type(dtype: DType) -> str:
    """The LLVM type of a value."""
    found = _TYPES.get(dtype)
    if found is None:
        scalar = SCALARS[dtype.scalar()]
        found = scalar if dtype.count == 1 else f"<{dtype.count} x {scalar}>"
        _TYPES[dtype] = found
    return found


def memory_type(dtype: DType) -> str:
    """The LLVM type of a value in memory, where a bool is a byte."""
    return value_type(memory_dtype(dtype))


def mangled(dtype: DType) -> str:
    """The type suffix of an overloaded intrinsic."""
    scalar = SCALARS[dtype.scalar()]
    scalar = {"half": "f16", "float": "f32", "double": "f64"}.get(scalar, scalar)
    return scalar if dtype.count == 1 else f"v{dtype.count}{scalar}"


def literal(dtype: DType, value: Any) -> str:
    """A constant operand without its type; a tuple holds a value for each lane."""
    scalar = dtype.scalar()
    if isinstance(value, tuple):
        kind = value_type(scalar)
        return "<" + ", ".join(f"{kind} {_scalar_literal(scalar, x)}" for x in value) + ">"
    text = _scalar_literal(scalar, value)
    if dtype.count == 1:
        return text
    return f"splat ({value_type(scalar)} {text})"


def _scalar_literal(dtype: DType, value: Any) -> str:
    if dtype is dtypes.bool:
        return "true" if value else "false"
    if not dtypes.is_float(dtype):
        number = int(value)
        bits = dtype.itemsize * 8
        number &= (1 << bits) - 1
        return str(number - (1 << bits) if number >> (bits - 1) else number)
    if dtype is dtypes.float16:
        return f"0xH{struct.unpack('<H', struct.pack('<e', truncate[dtype](value)))[0]:04X}"
    if math.isnan(value):
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', truncate[dtype](value)))[0]:016X}"


def cast_steps(source: DType, target: DType) -> list[tuple[str, DType]]:
    """The instructions of a lane-wise conversion, each with its scalar result type.

    A float is converted to a narrow integer through a wide one, which has vector instructions; it
    must be in range. Conversions to bool are comparisons, which the caller writes.
    """
    a, b = source.scalar(), target.scalar()
    if dtypes.is_float(a) and dtypes.is_float(b):
        return [("fpext" if b.itemsize > a.itemsize else "fptrunc", b)] if a is not b else []
    if dtypes.is_float(a):
        if b is dtypes.uint64:
            return [("fptoui", b)]
        wide = dtypes.int32 if b.itemsize < 4 or b is dtypes.int32 else dtypes.int64
        return [("fptosi", wide), *_integer_steps(wide, b)]
    if dtypes.is_float(b):
        unsigned = dtypes.is_unsigned(a) or a is dtypes.bool
        return [("uitofp" if unsigned else "sitofp", b)]
    return _integer_steps(a, b)


def _integer_steps(a: DType, b: DType) -> list[tuple[str, DType]]:
    if value_type(a) == value_type(b):
        return []
    if a is dtypes.bool:
        return [("zext", b)]
    if b.itemsize < a.itemsize:
        return [("trunc", b)]
    return [("zext" if dtypes.is_unsigned(a) else "sext", b)]


def lane_reduction(op: Ops, dtype: DType) -> tuple[str, str]:
    """The intrinsic that reduces the lanes of a vector, and its start operand or ""."""
    if dtypes.is_bool(dtype):
        return {Ops.ADD: "or", Ops.MAX: "or", Ops.MUL: "and"}[op], ""
    if dtypes.is_float(dtype):
        name = {Ops.ADD: "fadd", Ops.MUL: "fmul", Ops.MAX: "fmaximum"}[op]
        start = {Ops.ADD: "-0.0", Ops.MUL: "1.0", Ops.MAX: ""}[op]
        return name, start
    maximum = "umax" if dtypes.is_unsigned(dtype) else "smax"
    return {Ops.ADD: "add", Ops.MUL: "mul", Ops.MAX: maximum}[op], ""
