"""What the rules of differentiation are made of.

A rule takes the gradient of the result of a node, and the node. It returns the gradient by each
source of the node, None for a source without one.
"""

from __future__ import annotations

from collections.abc import Callable

from tinygrad.dtype import sum_acc_dtype
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Gradients = tuple[UOp | None, ...]
GradientRule = Callable[[UOp, UOp], Gradients]


def number(like: UOp, value: float) -> UOp:
    """A constant of the dtype of a node."""
    return UOp.const(like.dtype, value)


def total(x: UOp, axes: tuple[int, ...]) -> UOp:
    """The sum over axes, in the accumulation dtype."""
    return x.cast(sum_acc_dtype(x.dtype)).r(Ops.ADD, axes).cast(x.dtype)
