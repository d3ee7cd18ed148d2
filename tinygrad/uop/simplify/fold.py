"""Constant folding, exactly as the dtype computes.

Integers wrap around and divide toward zero, floats follow IEEE 754 and round to the dtype after
each operation.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from tinygrad.dtype import ConstType, DType, dtypes, saturate, truncate
from tinygrad.helpers import cdiv, cmod
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.node import Node
from tinygrad.uop.simplify.elementary import elementary

_INFINITY = float("inf")


def exec_alu(op: Ops, dtype: DType, operands: tuple[Any, ...]) -> ConstType | None:
    """`op` on Python numbers, in the scalar `dtype`; of a comparison, the dtype of the operands.

    An integer divided by zero is 0, as with `cdiv`. A shift by the width or more, or by a negative
    number, shifts all bits out. The result is None for an integer to a negative power.
    """
    if op in _COMPARISONS:
        return _COMPARISONS[op](*operands)
    table = _FLOAT if dtypes.is_float(dtype) else _INTEGER
    result = table[op](dtype, *operands) if op in table else None
    if result is None:
        return None
    convert = truncate.get(dtype)
    return result if convert is None else convert(result)  # type: ignore[no-any-return]


def constant_value(node: Node) -> Any:
    """The value of a CONST, rounded to its dtype; of a vector, a tuple if its lanes differ."""
    convert = truncate.get(node.dtype.scalar())
    if convert is None or node.arg.__class__ is tuple:
        return node.arg
    return convert(node.arg)


def fold_constants(u: Node) -> Node | None:
    """An op of constants is a CONST."""
    dtype = u.src[-1].dtype
    if dtype.count > 1:
        return None
    value = exec_alu(u.op, dtype, tuple([constant_value(x) for x in u.src]))
    return None if value is None else u.const_like(value)


def fold_cast(u: Node) -> Node | None:
    """A CAST of a CONST is a CONST; a float saturates in an integer type."""
    value = constant_value(u.src[0])
    target = u.dtype
    if target.count > 1:
        return None
    if isinstance(value, float) and dtypes.is_int(target):
        value = saturate(value, target)
    convert = truncate.get(target)
    return u.const_like(value if convert is None else convert(value))


def fold_bitcast(u: Node) -> Node | None:
    """A BITCAST of a CONST between types that `struct` supports is a CONST, unless it is NaN."""
    source, target = u.src[0].dtype, u.dtype
    if source.fmt is None or target.fmt is None or source.itemsize != target.itemsize:
        return None
    bits = struct.pack(source.fmt, constant_value(u.src[0]))
    (value,) = struct.unpack(target.fmt, bits)
    return None if value != value else u.const_like(value)


def threefry2x32(counter: int, key: int) -> int:
    """Threefry-2x32 with 20 rounds, of 64-bit numbers whose low word is word 0.

    Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
    """
    mask = 0xFFFFFFFF
    k0, k1 = key & mask, key >> 32 & mask
    keys = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x0, x1 = (counter + k0) & mask, ((counter >> 32) + k1) & mask
    for group in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x0 = (x0 + x1) & mask
            x1 = (x1 << rotation | x1 >> (32 - rotation)) & mask ^ x0
        x0 = (x0 + keys[(group + 1) % 3]) & mask
        x1 = (x1 + keys[(group + 2) % 3] + group + 1) & mask
    return x1 << 32 | x0


def _divide(x: float, y: float) -> float:
    if y == 0:
        return math.nan if x == 0 or x != x else math.copysign(_INFINITY, x) * math.copysign(1, y)
    return x / y


def _power(x: float, y: float) -> float:
    odd = abs(y) < 2**53 and y % 2 == 1
    try:
        return math.pow(x, y)
    except OverflowError:
        return -_INFINITY if x < 0 and odd else _INFINITY
    except ValueError:
        if x != 0:
            return math.nan
        return math.copysign(_INFINITY, x) if odd else _INFINITY


def _remainder(x: float, y: float) -> float:
    if math.isinf(x) or y == 0:
        return math.nan
    return math.fmod(x, y)


def _maximum(x: float, y: float) -> float:
    """The larger, 0.0 of two zeros of different sign; NaN if either is."""
    if x != x or y != y:
        return math.nan
    return x + y if x == y == 0 else max(x, y)


def _truncate_float(x: float) -> float:
    return math.copysign(math.trunc(x), x) if math.isfinite(x) else x


def _integer_power(dtype: DType, x: int, y: int) -> int | None:
    return None if y < 0 else pow(x, y, 1 << dtype.itemsize * 8)


def _shift(dtype: DType, x: int, y: int, left: bool) -> int:
    width = dtype.itemsize * 8
    if not 0 <= y < width:
        return -1 if x < 0 and not left else 0
    return x << y if left else x >> y


_COMPARISONS: dict[Ops, Callable[[Any, Any], bool]] = {
    Ops.CMPLT: lambda x, y: x < y,
    Ops.CMPNE: lambda x, y: x != y,
    Ops.CMPEQ: lambda x, y: x == y,
}

_SHARED: dict[Ops, Callable[..., Any]] = {
    Ops.ADD: lambda dtype, x, y: x + y,
    Ops.SUB: lambda dtype, x, y: x - y,
    Ops.MUL: lambda dtype, x, y: x * y,
    Ops.NEG: lambda dtype, x: -x,
    Ops.MULACC: lambda dtype, x, y, z: x * y + z,
    Ops.WHERE: lambda dtype, condition, x, y: x if condition else y,
}

_FLOAT: dict[Ops, Callable[..., Any]] = _SHARED | {
    **{op: lambda dtype, x, op=op: elementary(op, x) for op in GroupOp.Elementary},
    Ops.SQRT: lambda dtype, x: math.nan if x < 0 else math.sqrt(x),
    Ops.RECIPROCAL: lambda dtype, x: _divide(1.0, x),
    Ops.TRUNC: lambda dtype, x: _truncate_float(x),
    Ops.FDIV: lambda dtype, x, y: _divide(x, y),
    Ops.MOD: lambda dtype, x, y: _remainder(x, y),
    Ops.MAX: lambda dtype, x, y: _maximum(x, y),
    Ops.POW: lambda dtype, x, y: _power(x, y),
}

_INTEGER: dict[Ops, Callable[..., Any]] = _SHARED | {
    Ops.TRUNC: lambda dtype, x: x,
    Ops.IDIV: lambda dtype, x, y: cdiv(x, y),
    Ops.MOD: lambda dtype, x, y: cmod(x, y),
    Ops.MAX: lambda dtype, x, y: max(x, y),
    Ops.POW: _integer_power,
    Ops.AND: lambda dtype, x, y: x & y,
    Ops.OR: lambda dtype, x, y: x | y,
    Ops.XOR: lambda dtype, x, y: x ^ y,
    Ops.SHL: lambda dtype, x, y: _shift(dtype, x, y, left=True),
    Ops.SHR: lambda dtype, x, y: _shift(dtype, x, y, left=False),
    Ops.THREEFRY: lambda dtype, x, y: threefry2x32(x, y),
}
