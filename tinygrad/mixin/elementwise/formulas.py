"""Formulas on float nodes with a gradient of their own.

Input: nodes of a float dtype. Output: nodes of the same dtype and shape.
"""

from __future__ import annotations

from tinygrad.dtype import DType, dtypes
from tinygrad.gradient import with_gradient
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import const_node
from tinygrad.uop.ops import UOp

# of logarithms, and of the divisor in the gradient, of a binary cross entropy
MIN_LOGARITHM = -100.0
MIN_DIVISOR = 1e-12


def times(node: UOp, number: float) -> UOp:
    """`node * number`, of the dtype of `node`."""
    return node.alu(Ops.MUL, const_node(number, node.dtype))


def plus(node: UOp, number: float) -> UOp:
    """`node + number`, of the dtype of `node`."""
    return node.alu(Ops.ADD, const_node(number, node.dtype))


def binary_cross_entropy(x: UOp, target: UOp) -> UOp:
    """The binary cross entropy of probabilities; finite, with its gradient, also at 0 and 1."""

    def logarithm(op: Ops, node: UOp) -> UOp:
        return node.alu(op).alu(Ops.MAX, const_node(MIN_LOGARITHM, x.dtype))

    def rule(g: UOp, y: UOp, x: UOp, target: UOp) -> tuple[UOp, UOp]:
        product = x * plus(times(x, -1), 1)
        min_divisor = max(MIN_DIVISOR, smallest_subnormal(x.dtype))
        divisor = product.alu(Ops.MAX, const_node(min_divisor, x.dtype))
        by_target = logarithm(Ops.LOG1P, times(x, -1)) + times(logarithm(Ops.LOG, x), -1)
        return g * (x + times(target, -1)).alu(Ops.FDIV, divisor), g * by_target

    yes, no = logarithm(Ops.LOG, x), logarithm(Ops.LOG1P, times(x, -1))
    node = times(target * yes + plus(times(target, -1), 1) * no, -1)
    return with_gradient(node, rule, x, target)


def smallest_subnormal(dtype: DType) -> float:
    """The smallest positive number of a float dtype."""
    exponent_bits, mantissa_bits = dtypes.finfo(dtype)
    return 2.0 ** (2 - (1 << exponent_bits - 1) - mantissa_bits)
