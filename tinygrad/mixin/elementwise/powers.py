"""Powers of nodes: floats to a constant, integers to an integer.

Input: a base and an exponent. Output: a node of the dtype of the base.
"""

from __future__ import annotations

import math

from tinygrad.dtype import dtypes
from tinygrad.errors import ArgumentError
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import const_node
from tinygrad.uop.ops import UOp

# the largest exponent that is expanded to products: more products would round too often
MAX_EXPANDED_EXPONENT = 4


def constant_power(base: UOp, exponent: float) -> UOp:
    """Floats to a constant power."""
    if exponent == 0:
        # 1, but with a gradient of 0
        return base.alu(Ops.POW, const_node(0, base.dtype))
    if abs(exponent) == 0.5:
        # the root of -0.0 is -0.0 and that of -inf NaN; these powers are 0.0 and inf
        root = base.alu(Ops.ADD, const_node(0.0, base.dtype)).alu(Ops.SQRT)
        infinity = const_node(math.inf, base.dtype)
        root = base.eq(const_node(-math.inf, base.dtype)).where(infinity, root)
        return root if exponent > 0 else root.alu(Ops.RECIPROCAL)
    if exponent in (-1, -2):
        # the square may overflow where that of the reciprocal is subnormal
        base, exponent = base.alu(Ops.RECIPROCAL), -exponent
    if exponent.is_integer() and 0 < exponent <= MAX_EXPANDED_EXPONENT:
        return _power_by_squaring(base, int(exponent))
    return base.alu(Ops.POW, const_node(exponent, base.dtype))


def _power_by_squaring(base: UOp, count: int) -> UOp:
    """`base` to the power of `count` > 0, by repeated squaring."""
    result = None
    while count:
        if count & 1:
            result = base if result is None else result.alu(Ops.MUL, base)
        count >>= 1
        if count:
            base = base.alu(Ops.MUL, base)
    assert result is not None
    return result


def integer_power(base: UOp, exponent: UOp) -> UOp:
    """Integers to an integer power, which wraps around; negative powers round toward zero."""
    if exponent.op is Ops.CONST:
        if exponent.arg < 0:
            raise ArgumentError(
                f"an integer to the power of {exponent.arg} is not an integer; "
                "cast it to float first"
            )
        return _power_by_squaring(base, exponent.arg) if exponent.arg else base.const_like(1)
    one, none = const_node(1, base.dtype), const_node(0, exponent.dtype)
    # 1 and -1 are their own inverses: only the parity of the exponent matters
    is_unit = base.eq(one) | base.eq(const_node(-1, base.dtype))
    is_zero = (exponent < none) & is_unit.ne(const_node(True, dtypes.bool))
    result = None
    for bit in range(base.dtype.itemsize * 8 - (not dtypes.is_unsigned(base.dtype))):
        is_set = (exponent & const_node(1 << bit, exponent.dtype)).ne(none)
        factor = is_set.where(base, one)
        result = factor if result is None else result.alu(Ops.MUL, factor)
        base = base.alu(Ops.MUL, base)
    assert result is not None
    return is_zero.where(const_node(0, result.dtype), result)
