"""Elementwise ops, casts and reductions on numpy arrays, the same in every form of the graph.

In: a node and the arrays of its sources. Out: an array whose elements are values of the node's
dtype. bfloat16 and fp8 values are float32 arrays that hold only values of the narrow type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad.dtype import (
    DType,
    dtypes,
    from_float32_array,
    is_stored_as_bits,
    to_float32_array,
    to_numpy_dtype,
    truncate,
)
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Array = np.ndarray[Any, Any]


# ---- values and their storage ----


def value_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy dtype that represents values of `dtype`."""
    return np.dtype(np.float32) if is_stored_as_bits(dtype) else to_numpy_dtype(dtype)


def rounded(array: Array, dtype: DType) -> Array:
    """`array` with every element rounded to a value of `dtype`."""
    if is_stored_as_bits(dtype):
        return to_float32_array(from_float32_array(array, dtype), dtype)
    return np.asarray(array).astype(value_dtype(dtype), copy=False)


def from_storage(array: Array, dtype: DType) -> Array:
    """The values that the contents of a buffer encode."""
    return to_float32_array(array, dtype) if is_stored_as_bits(dtype) else array


def to_storage(array: Array, dtype: DType) -> Array:
    """The contents of a buffer that encodes these values."""
    return from_float32_array(array, dtype) if is_stored_as_bits(dtype) else array


# ---- elementwise ----


def is_elementwise(node: UOp) -> bool:
    """Whether `elementwise` evaluates the node."""
    return node.op in ALU or node.op in {Ops.CONST, Ops.CAST, Ops.BITCAST}


def elementwise(node: UOp, src: list[Array]) -> Array:
    """The value of a constant, a cast or an ALU op; shapes broadcast as numpy broadcasts them."""
    if node.op is Ops.CONST:
        value = truncate[node.dtype](node.arg) if node.dtype in truncate else node.arg
        return np.asarray(rounded(np.asarray(value), node.dtype))
    if node.op is Ops.CAST:
        return _cast(src[0], node.dtype)
    if node.op is Ops.BITCAST:
        stored = np.ascontiguousarray(to_storage(src[0], node.src[0].dtype))
        return from_storage(stored.view(to_numpy_dtype(node.dtype)), node.dtype)
    result = ALU[node.op](*src)
    expected = value_dtype(node.dtype)
    assert result.dtype == expected, f"{node.op}: {result.dtype} is not {expected}"
    return rounded(result, node.dtype)


def _cast(x: Array, dtype: DType) -> Array:
    if dtypes.is_bool(dtype):
        return x != 0
    if x.dtype.kind == "f" and dtypes.is_int(dtype):
        # through the widest integer, so that negative values wrap around
        wide = np.uint64 if dtype is dtypes.uint64 else np.int64
        return np.trunc(x).astype(wide).astype(to_numpy_dtype(dtype))
    return rounded(x, dtype)


def _truncated_division(a: Array, b: Array) -> Array:
    """Integer division that rounds toward zero, and is 0 for a divisor of 0."""
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = a // safe
    inexact = (a - quotient * safe) != 0
    # numpy rounds down, which is one too low where the signs differ
    result = quotient + (inexact & ((a < 0) != (b < 0))).astype(a.dtype)
    return np.where(b == 0, np.zeros_like(a), result).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    return a - _truncated_division(a, b) * b


def threefry(counter: Array, key: Array) -> Array:
    """Threefry-2x32 with 20 rounds (Salmon et al., 2011); the low words come first."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    c = np.asarray(counter, np.uint64)
    k = np.asarray(key, np.uint64)
    x0, x1 = (c & low).astype(np.uint32), (c >> half).astype(np.uint32)
    k0, k1 = (k & low).astype(np.uint32), (k >> half).astype(np.uint32)
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))
            x1 = x1 ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0.astype(np.uint64) | (x1.astype(np.uint64) << half)


def _erf(x: Array) -> Array:
    x = np.asarray(x)
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def _logistic(x: Array) -> Array:
    exponential = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, exponential) / (1 + exponential)


ALU: dict[Ops, Callable[..., Array]] = {
    Ops.EXP2: np.exp2,
    Ops.EXP: np.exp,
    Ops.EXPM1: np.expm1,
    Ops.LOG2: np.log2,
    Ops.LOG: np.log,
    Ops.LOG1P: np.log1p,
    Ops.SIN: np.sin,
    Ops.COS: np.cos,
    Ops.TAN: np.tan,
    Ops.ASIN: np.arcsin,
    Ops.ACOS: np.arccos,
    Ops.ATAN: np.arctan,
    Ops.SINH: np.sinh,
    Ops.COSH: np.cosh,
    Ops.TANH: np.tanh,
    Ops.ASINH: np.arcsinh,
    Ops.ACOSH: np.arccosh,
    Ops.ATANH: np.arctanh,
    Ops.ERF: _erf,
    Ops.LOGISTIC: _logistic,
    Ops.SOFTPLUS: lambda x: np.logaddexp(x, np.zeros_like(x)),
    Ops.SQRT: np.sqrt,
    Ops.RECIPROCAL: np.reciprocal,
    Ops.NEG: np.negative,
    Ops.TRUNC: np.trunc,
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.SUB: np.subtract,
    Ops.FDIV: np.divide,
    Ops.IDIV: _truncated_division,
    Ops.MOD: _remainder,
    Ops.MAX: np.maximum,
    Ops.POW: np.power,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift,
    Ops.THREEFRY: threefry,
    Ops.WHERE: np.where,
    Ops.MULACC: lambda a, b, c: a * b + c,
}


# ---- reductions ----


def reduction(op: Ops, x: Array, axes: tuple[int, ...], dtype: DType) -> Array:
    """`x` reduced by `op` along `axes`, which stay as axes of size 1."""
    numpy_dtype = value_dtype(dtype)
    if op is Ops.ADD:
        return rounded(np.sum(x, axes, numpy_dtype, keepdims=True), dtype)
    if op is Ops.MUL:
        return rounded(np.prod(x, axes, numpy_dtype, keepdims=True), dtype)
    assert op is Ops.MAX
    return np.max(x, axes, keepdims=True, initial=np.array(dtypes.min(dtype), numpy_dtype))
