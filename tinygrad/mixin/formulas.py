"""Formulas on float nodes that several elementwise functions share.

Input: nodes of a float dtype. Output: nodes of the same dtype and shape.
"""

from __future__ import annotations

import math

from tinygrad.dtype import DType, dtypes
from tinygrad.gradient import with_gradient
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import const_node
from tinygrad.uop.ops import UOp

# Abramowitz and Stegun, 4.4.46 (error 2e-8) and 7.1.26 (error 1.5e-7)
ARCSINE = (
    *(-0.0012624911, 0.0066700901, -0.0170881256, 0.0308918810),
    *(-0.0501743046, 0.0889789874, -0.2145988016, 1.5707963050),
)
ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0)


def times(node: UOp, number: float) -> UOp:
    """`node * number`, of the dtype of `node`."""
    return node.alu(Ops.MUL, const_node(number, node.dtype))


def plus(node: UOp, number: float) -> UOp:
    """`node + number`, of the dtype of `node`."""
    return node.alu(Ops.ADD, const_node(number, node.dtype))


def exponential(x: UOp) -> UOp:
    """The exponential of floats, with its gradient rule."""
    node = times(x, 1 / math.log(2)).alu(Ops.EXP2)
    return with_gradient(node, lambda g, y, _: (g * y,), x)


# of logarithms, and of the divisor in the gradient, of a binary cross entropy
MIN_LOGARITHM = -100.0
MIN_DIVISOR = 1e-12


def binary_cross_entropy(x: UOp, target: UOp) -> UOp:
    """The binary cross entropy of probabilities; finite, with its gradient, also at 0 and 1."""

    def logarithm(node: UOp) -> UOp:
        return times(node.alu(Ops.LOG2), math.log(2)).alu(
            Ops.MAX, const_node(MIN_LOGARITHM, x.dtype)
        )

    def rule(g: UOp, y: UOp, x: UOp, target: UOp) -> tuple[UOp, UOp]:
        product = x * plus(times(x, -1), 1)
        least = max(MIN_DIVISOR, smallest_subnormal(x.dtype))
        divisor = product.alu(Ops.MAX, const_node(least, x.dtype))
        by_target = logarithm(plus(times(x, -1), 1)) + times(logarithm(x), -1)
        return g * (x + times(target, -1)).alu(Ops.FDIV, divisor), g * by_target

    yes, no = logarithm(x), logarithm(plus(times(x, -1), 1))
    node = times(target * yes + plus(times(target, -1), 1) * no, -1)
    return with_gradient(node, rule, x, target)


def smallest_subnormal(dtype: DType) -> float:
    """The smallest positive number of a float dtype."""
    exponent_bits, mantissa_bits = dtypes.finfo(dtype)
    return 2.0 ** (2 - (1 << exponent_bits - 1) - mantissa_bits)


def polynomial(x: UOp, coefficients: tuple[float, ...]) -> UOp:
    """The polynomial with these coefficients, highest power first."""
    total = const_node(coefficients[0], x.dtype)
    for coefficient in coefficients[1:]:
        total = plus(x * total, coefficient)
    return total


def logistic(x: UOp) -> UOp:
    """The logistic function `1 / (1 + exp(-x))`; 0 and 1 at the infinities."""
    y = plus(times(x, -1 / math.log(2)).alu(Ops.EXP2), 1).alu(Ops.RECIPROCAL)
    # the derivative of the graph is inf * 0 for large negative x
    return with_gradient(y, lambda g, y, _: (g * y * plus(times(y, -1), 1),), x)
