"""Quotients of nodes: exact, rounded down, and the gradient of remainders.

Input: nodes of one dtype. Output: a node of that dtype, of their broadcast shape.
"""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.gradient import with_gradient
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import const_node
from tinygrad.uop.ops import UOp
from tinygrad.uop.simplify.identities import exact_inverse


def floor_of(node: UOp) -> UOp:
    """Floats rounded down."""
    whole = node.alu(Ops.TRUNC)
    below = whole.alu(Ops.ADD, const_node(-1, node.dtype))
    return node.alu(Ops.CMPLT, whole).where(below, whole)


def quotient(a: UOp, b: UOp) -> UOp:
    """Floats divided. Division by a power of two is an exact multiplication by its inverse, unless
    that overflows.
    """
    inverse = exact_inverse(b.arg, b.dtype) if b.op is Ops.CONST else None
    return a.alu(Ops.FDIV, b) if inverse is None else a.alu(Ops.MUL, const_node(inverse, b.dtype))


def floor_division(a: UOp, b: UOp) -> UOp:
    """Integers divided and rounded down. Division by zero gives zero, as in `IDIV`."""
    truncated = a.alu(Ops.IDIV, b)
    if dtypes.is_unsigned(a.dtype) or dtypes.is_bool(a.dtype):
        return truncated
    zero = const_node(0, a.dtype)
    inexact = a.alu(Ops.MOD, b).ne(zero)
    differs = (a < zero).ne(b < zero)
    lower = inexact & differs & b.ne(zero)
    return truncated + lower.where(const_node(-1, a.dtype), zero)


def gradient_of_remainder(gradient: UOp, _: UOp, a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """The gradient rule of `a - floor(a / b) * b`, also where that is a zero with the sign of b."""
    return gradient, gradient * floor_division_of_floats(a, b) * const_node(-1, a.dtype)


def gradient_of_truncated_remainder(gradient: UOp, node: UOp, a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """The gradient rule of `a - trunc(a / b) * b`. Truncation is one above the floor where a
    remainder is left and the signs differ.
    """
    zero, one = const_node(0, a.dtype), const_node(1, a.dtype)
    above = node.ne(zero) & (a < zero).ne(b < zero)
    whole = floor_division_of_floats(a, b) + above.where(one, zero)
    return gradient, gradient * whole * const_node(-1, a.dtype)


def floor_division_of_floats(a: UOp, b: UOp) -> UOp:
    """Floats divided and rounded down, as in Python: exact, by the remainder. NaN if `a` is
    infinite; division by zero gives an infinity or NaN. The gradient is 0.
    """
    if a.dtype.itemsize < dtypes.float32.itemsize:
        wide = dtypes.float32
        return floor_division_of_floats(a.cast(wide), b.cast(wide)).cast(a.dtype)
    zero, one = const_node(0, a.dtype), const_node(1, a.dtype)
    rest, exact = a.alu(Ops.MOD, b), quotient(a, b)
    differs = rest.ne(zero) & (rest < zero).ne(b < zero)
    minus = const_node(-1, a.dtype)
    # an integer, up to rounding errors
    nearly = (a + rest * minus).alu(Ops.FDIV, b) + differs.where(minus, zero)
    below = floor_of(nearly)
    whole = (const_node(0.5, a.dtype) < nearly + below * minus).where(below + one, below)
    # zero has the sign of the quotient
    whole = whole.eq(zero).where(exact * zero, whole)
    result = b.eq(zero).where(exact, whole)
    return with_gradient(result, lambda g, y, a, b: (a.const_like(0), b.const_like(0)), a, b)
