"""Elementwise expressions computed by numpy, to test what rewriting makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad.dtype import DType, dtypes, to_numpy_dtype
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Array = np.ndarray[Any, Any]


def variable(name: str, dtype: DType) -> UOp:
    """A leaf that stands for an array."""
    return UOp(Ops.DEFINE_VAR, dtype, (), (name, dtypes.min(dtype), dtypes.max(dtype)))


def evaluate(expression: UOp, **arrays: Array) -> Array:
    """The values of a scalar expression, its variables taken from `arrays`."""
    values: dict[UOp, Array] = {}
    with np.errstate(all="ignore"):
        for node in expression.toposort():
            values[node] = _value(node, [values[x] for x in node.src], arrays)
    return values[expression]


def _value(node: UOp, src: list[Array], arrays: dict[str, Array]) -> Array:
    dtype = to_numpy_dtype(node.dtype)
    if node.op is Ops.DEFINE_VAR:
        array = arrays[node.arg[0]]
        assert array.dtype == dtype, (array.dtype, dtype)
        return array
    if node.op is Ops.CONST:
        return np.asarray(node.arg).astype(dtype)
    if node.op is Ops.CAST:
        return src[0].astype(dtype)
    if node.op is Ops.BITCAST:
        return src[0].view(dtype)
    result = _FUNCTIONS[node.op](*src)
    assert result.dtype == dtype, f"{node.op}: {result.dtype} is not {dtype}"
    return result


def _divide(a: Array, b: Array) -> Array:
    """Integer division toward zero."""
    quotient = np.abs(a) // np.abs(b)
    return np.where((a < 0) != (b < 0), -quotient, quotient)


_FUNCTIONS: dict[Ops, Any] = {
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.NEG: np.negative,
    Ops.FDIV: np.divide,
    Ops.RECIPROCAL: np.reciprocal,
    Ops.SQRT: np.sqrt,
    Ops.TRUNC: np.trunc,
    Ops.IDIV: _divide,
    Ops.MOD: np.fmod,
    Ops.MAX: np.maximum,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift,
    Ops.WHERE: np.where,
    Ops.MULACC: lambda a, b, c: a * b + c,
}
