"""Algebraic identities of constants, repeated operands and known bounds, for all dtypes.

Floats follow IEEE 754: NaN, infinities and the sign of zero are preserved.
"""

from __future__ import annotations

import math

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.node import Node
from tinygrad.uop.simplify.fold import constant_value, exec_alu


def broadcast_like(u: Node, x: Node) -> Node:
    """`x`, a source of `u`, broadcast to the shape of `u`."""
    shape = u.shape_or_none
    if not shape or x.shape_or_none == shape:
        return x
    return x.broadcast_to(shape)


def fold_single_value(u: Node) -> Node | None:
    """An integer or a bool whose bounds meet is constant."""
    if u.dtype.count > 1 or dtypes.is_float(u.dtype):
        return None
    low, high = u.bounds
    return u.const_like(low) if low == high else None


def move_constant_right(u: Node, c: Node, x: Node) -> Node | None:
    """A commutative op has its constant on the right: `c + x` is `x + c`."""
    return None if x.op is Ops.CONST else u.replace(src=(x, c))


def _merge_constants(u: Node, x: Node, c: Node) -> Node | None:
    """`(y op c0) op c` is `y op (c0 op c)`."""
    if x.op is not u.op or x.src[1].op is not Ops.CONST or u.dtype.count > 1:
        return None
    operands = constant_value(x.src[1]), constant_value(c)
    merged = exec_alu(u.op, u.dtype.scalar(), operands)
    return u.replace(src=(x.src[0], c.replace(arg=merged)))


def add_constant(u: Node, x: Node, c: Node) -> Node | None:
    """`x + 0` is `x`; `(x + c0) + c1` of integers is `x + (c0 + c1)`."""
    if dtypes.is_float(u.dtype):
        return x if _is_zero(c, -1.0) else None
    return x if c.arg == 0 else _merge_constants(u, x, c)


def _is_zero(c: Node, sign: float) -> bool:
    """Whether a float is the neutral zero: -0.0 of an addition, 0.0 of a subtraction."""
    return c.arg == 0 and math.copysign(1.0, c.arg) == sign


def subtract(u: Node, x: Node, y: Node) -> Node | None:
    """`x - 0` is `x`; `x - x` of integers is 0."""
    if dtypes.is_float(u.dtype):
        return broadcast_like(u, x) if y.op is Ops.CONST and _is_zero(y, 1.0) else None
    if y.op is Ops.CONST and y.arg == 0:
        return broadcast_like(u, x)
    return u.const_like(0) if x is y else None


def multiply_constant(u: Node, x: Node, c: Node) -> Node | None:
    """`x*1` is `x`; `x*0` is 0 unless `x` may be NaN, infinite or negative; constants merge."""
    if c.arg == 1:
        return x
    is_float = dtypes.is_float(u.dtype)
    if c.arg == 0:
        return u.const_like(c.arg) if not is_float or _is_positive(x) else None
    if is_float and not (x.op is Ops.MUL and -1 in (c.arg, x.src[1].arg)):
        return None
    return _merge_constants(u, x, c)


def _is_positive(x: Node) -> bool:
    """Whether a float is finite with a clear sign bit: a cast integer is never -0.0."""
    low, high = x.bounds
    is_integral = x.op is Ops.CAST and not dtypes.is_float(x.src[0].dtype)
    return bool(high < math.inf and (low > 0 or (low == 0 and is_integral)))


def divide_float(u: Node, x: Node, c: Node) -> Node | None:
    """`x / c` is `x * (1/c)` where `c` is a power of two, which makes `1/c` exact."""
    inverse = None if u.dtype.count > 1 else exact_inverse(constant_value(c), u.dtype)
    return None if inverse is None else u.replace(op=Ops.MUL, src=(x, c.replace(arg=inverse)))


def exact_inverse(value: float, dtype: DType) -> float | None:
    """`1 / value` if `value` is a power of two, with either sign, and its inverse is a normal
    number of `dtype`; None otherwise.

    The inverse of 2**-130 is infinite in float32, though 2**-130 / 2**-130 is 1.
    """
    mantissa, exponent = math.frexp(value)
    largest = (1 << dtypes.finfo(dtype)[0] - 1) - 2
    # `value` is 2**(exponent - 1)
    return 1 / value if abs(mantissa) == 0.5 and abs(exponent - 1) <= largest else None


def divide_integer(u: Node, x: Node, y: Node) -> Node | None:
    """`x // 1` is `x`, `x // -1` is `-x`, `0 // y` is 0, and `x // x` is 1 where `x` is not 0."""
    if _is_unit(y):
        return x if y.arg == 1 else u.replace(op=Ops.MUL)
    if x.op is Ops.CONST and x.arg == 0:
        return u.const_like(0)
    low, high = x.bounds
    return u.const_like(1) if x is y and (low > 0 or high < 0) else None


def _is_unit(y: Node) -> bool:
    """Whether `y` is the constant 1 or -1; an unsigned -1 is the maximum."""
    return y.op is Ops.CONST and constant_value(y) in (1, -1)


def remainder_integer(u: Node, x: Node, y: Node) -> Node | None:
    """`x % 1`, `x % -1`, `x % x` and `0 % y` of integers are 0."""
    if dtypes.is_float(u.dtype):
        return None
    if x is y or _is_unit(y) or (x.op is Ops.CONST and x.arg == 0):
        return u.const_like(0)
    return None


def maximum(u: Node, x: Node, y: Node) -> Node | None:
    """The larger operand if the bounds decide; nested constants merge."""
    if x is y:
        return x
    a, b = x.bounds
    c, d = y.bounds
    # a float that may be NaN has infinite bounds, which are not compared
    if a >= d and -math.inf < a and d < math.inf:
        return broadcast_like(u, x)
    if c >= b and -math.inf < c and b < math.inf:
        return broadcast_like(u, y)
    return _merge_constants(u, x, y) if y.op is Ops.CONST else None


def negate_twice(x: Node) -> Node:
    """`-(-x)` is `x`."""
    return x


def truncate_integral(x: Node) -> Node | None:
    """TRUNC of an integral value is that value."""
    if x.op is Ops.TRUNC or not dtypes.is_float(x.dtype):
        return x
    is_integral = x.op is Ops.CAST and not dtypes.is_float(x.src[0].dtype)
    return x if is_integral else None


def power_constant(u: Node, x: Node, c: Node) -> Node | None:
    """`x ** 0` is 1, `x ** 1` is `x`."""
    if c.arg == 1:
        return x
    return u.const_like(1) if c.arg == 0 else None


def bits_and(u: Node, x: Node, y: Node) -> Node | None:
    """AND with itself, with 0, and with a mask that keeps all bits."""
    if x is y:
        return x
    if y.op is not Ops.CONST or u.dtype.count > 1:
        return None
    mask = constant_value(y)
    if not mask:
        return u.const_like(mask)
    low, high = x.bounds
    keeps_all = (mask + 1) & mask == 0 and 0 <= low and high <= mask
    if mask is True or mask == -1 or keeps_all:
        return x
    return _merge_constants(u, x, y)


def bits_or(u: Node, x: Node, y: Node) -> Node | None:
    """OR with itself, with 0 and with all ones."""
    if x is y:
        return x
    if y.op is not Ops.CONST or u.dtype.count > 1:
        return None
    mask = constant_value(y)
    if not mask:
        return x
    if mask is True or mask == -1:
        return u.const_like(mask)
    return _merge_constants(u, x, y)


def bits_xor(u: Node, x: Node, y: Node) -> Node | None:
    """XOR with itself and with 0; of bools, XOR is `!=`."""
    if dtypes.is_bool(u.dtype):
        return u.replace(op=Ops.CMPNE)
    if x is y:
        return u.const_like(0)
    if y.op is not Ops.CONST or u.dtype.count > 1:
        return None
    return x if y.arg == 0 else _merge_constants(u, x, y)


def shift_by_zero(x: Node, c: Node) -> Node | None:
    """`x << 0` and `x >> 0` are `x`."""
    return x if c.arg == 0 else None


def bool_arithmetic(u: Node) -> Node | None:
    """Sums and maxima of bools are OR, products AND."""
    if not dtypes.is_bool(u.dtype):
        return None
    return u.replace(op=Ops.AND if u.op is Ops.MUL else Ops.OR)


def lane_of_vector(x: Node, lane: Node) -> Node:
    """One lane of a VECTORIZE is that source; a VECTORIZE of one source is a broadcast."""
    number: int = lane.arg
    return x.src[number if len(x.src) > 1 else 0]


def vector_of_lanes(u: Node) -> Node | None:
    """All lanes of a vector, in order, are the vector."""
    first = u.src[0]
    if first.op is not Ops.GEP:
        return None
    vector = first.src[0]
    if vector.dtype is not u.dtype:
        return None
    in_order = len(u.src) == u.dtype.count and all(
        x.op is Ops.GEP and x.src[0] is vector and x.arg == i for i, x in enumerate(u.src)
    )
    return vector if in_order else None
