"""Gradients of elementwise ops.

Input: the gradient of the result and the node. Output: the gradients by its operands, which have
the shape of the result; the walk sums those of operands that were broadcast. Invariant: a rule
names ops of the graph alone, so that it can be differentiated again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tinygrad.dtype import dtypes
from tinygrad.gradient.rule import GradientRule, Gradients, number
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

# ops that no gradient passes
STOPS = GroupOp.Comparison | {
    *(Ops.IDIV, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR),
    *(Ops.THREEFRY, Ops.BITCAST, Ops.DETACH),
}
STOPS_OF_INTEGERS = {Ops.CAST, Ops.MOD}


def _none(g: UOp, y: UOp) -> Gradients:
    return (None,) * len(y.src)


def _cast(g: UOp, y: UOp) -> Gradients:
    source = y.src[0].dtype
    return (g.cast(source) if dtypes.is_float(source) and dtypes.is_float(y.dtype) else None,)


def _reciprocal(g: UOp, y: UOp) -> Gradients:
    return (g * y * y * number(y, -1),)


def _trunc(g: UOp, y: UOp) -> Gradients:
    return (y.src[0].const_like(0),)


def _log2(g: UOp, y: UOp) -> Gradients:
    x = y.src[0]
    return (g.alu(Ops.FDIV, x * number(x, math.log(2))),)


def _exp2(g: UOp, y: UOp) -> Gradients:
    return (g * y * number(y, math.log(2)),)


def _by_quotient(denominator: Callable[[UOp], UOp], sign: int = 1) -> GradientRule:
    """The rule of a function of x with the derivative `sign / denominator(x)`."""

    def rule(g: UOp, y: UOp) -> Gradients:
        quotient = g.alu(Ops.FDIV, denominator(y.src[0]))
        return (quotient if sign == 1 else quotient * number(g, sign),)

    return rule


def _one_minus_square(x: UOp) -> UOp:
    # not 1 - x * x, which is inaccurate near 1
    one = number(x, 1)
    return (one - x) * (one + x)


def _root_of_square_minus_one(x: UOp) -> UOp:
    # two roots are NaN below -1 too
    one = number(x, 1)
    return (x - one).alu(Ops.SQRT) * (x + one).alu(Ops.SQRT)


def _erf(g: UOp, y: UOp) -> Gradients:
    x = y.src[0]
    bell = (x * x * number(x, -1)).alu(Ops.EXP)
    return (g * (bell * number(x, 2 / math.sqrt(math.pi))),)


def _sqrt(g: UOp, y: UOp) -> Gradients:
    return (g.alu(Ops.FDIV, y * number(y, 2)),)


def _mul(g: UOp, y: UOp) -> Gradients:
    a, b = y.src
    return b * g, a * g


def _fdiv(g: UOp, y: UOp) -> Gradients:
    b = y.src[1]
    by_a = g.alu(Ops.FDIV, b)
    return by_a, by_a * y * number(y, -1)


def _mod(g: UOp, y: UOp) -> Gradients:
    a, b = y.src
    return g, g * a.alu(Ops.FDIV, b).alu(Ops.TRUNC) * number(y, -1)


def _pow(g: UOp, y: UOp) -> Gradients:
    base, exponent = y.src
    zero, one = number(y, 0), number(y, 1)
    # x ** 0 is 1 for all x, so its derivative is 0, even at 0
    slope = exponent * base.alu(Ops.POW, exponent - one)
    by_base = exponent.eq(zero).where(zero, slope) * g
    if exponent.op is Ops.CONST:
        return by_base, None
    at_zero = (exponent < zero).where(number(y, -math.inf), zero)
    growth = y * base.alu(Ops.LOG)
    return by_base, base.eq(zero).where(at_zero, growth) * g


def _max(g: UOp, y: UOp) -> Gradients:
    a, b = y.src
    zero = number(g, 0)
    # where one is NaN, so is the result, by both of them
    shared = a.eq(b).where(g * number(g, 0.5), g)
    return (a < b).where(zero, shared), (b < a).where(zero, shared)


def _where(g: UOp, y: UOp) -> Gradients:
    condition, zero = y.src[0], number(g, 0)
    return None, condition.where(g, zero), condition.where(zero, g)


def _mulacc(g: UOp, y: UOp) -> Gradients:
    a, b, _ = y.src
    return b * g, a * g, g


ELEMENTWISE_RULES: dict[Ops, GradientRule] = {
    **dict.fromkeys(STOPS, _none),
    Ops.CAST: _cast,
    Ops.RECIPROCAL: _reciprocal,
    Ops.TRUNC: _trunc,
    Ops.EXP2: _exp2,
    Ops.EXP: lambda g, y: (g * y,),
    Ops.EXPM1: lambda g, y: (g * y.src[0].alu(Ops.EXP),),
    Ops.LOG2: _log2,
    Ops.LOG: _by_quotient(lambda x: x),
    Ops.LOG1P: _by_quotient(lambda x: x + number(x, 1)),
    Ops.SIN: lambda g, y: (g * y.src[0].alu(Ops.COS),),
    Ops.COS: lambda g, y: (g * (y.src[0].alu(Ops.SIN) * number(y, -1)),),
    Ops.TAN: lambda g, y: (g * (y * y + number(y, 1)),),
    Ops.ASIN: _by_quotient(lambda x: _one_minus_square(x).alu(Ops.SQRT)),
    Ops.ACOS: _by_quotient(lambda x: _one_minus_square(x).alu(Ops.SQRT), -1),
    Ops.ATAN: _by_quotient(lambda x: x * x + number(x, 1)),
    Ops.SINH: lambda g, y: (g * y.src[0].alu(Ops.COSH),),
    Ops.COSH: lambda g, y: (g * y.src[0].alu(Ops.SINH),),
    Ops.TANH: lambda g, y: (g * _one_minus_square(y),),
    Ops.ASINH: _by_quotient(lambda x: (x * x + number(x, 1)).alu(Ops.SQRT)),
    Ops.ACOSH: _by_quotient(_root_of_square_minus_one),
    Ops.ATANH: _by_quotient(_one_minus_square),
    Ops.ERF: _erf,
    Ops.LOGISTIC: lambda g, y: (g * y * (number(y, 1) - y),),
    Ops.SOFTPLUS: lambda g, y: (g * y.src[0].alu(Ops.LOGISTIC),),
    Ops.SQRT: _sqrt,
    Ops.NEG: lambda g, y: (g * number(g, -1),),
    Ops.ADD: lambda g, y: (g, g),
    Ops.SUB: lambda g, y: (g, g * number(g, -1)),
    Ops.MUL: _mul,
    Ops.FDIV: _fdiv,
    Ops.MOD: _mod,
    Ops.POW: _pow,
    Ops.MAX: _max,
    Ops.WHERE: _where,
    Ops.MULACC: _mulacc,
}
