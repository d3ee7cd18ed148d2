"""Kernels written by hand, as programs of the search call them."""

from __future__ import annotations

from tinygrad import Tensor, UOp
from tinygrad.uop.ops import AxisType, Ops


def affine(y: UOp, x: UOp) -> UOp:
    """`2 * x + 1`."""
    i, j = UOp.range(x.shape[0], 0), UOp.range(x.shape[1], 1)
    return y[i, j].store(x[i, j] * 2 + 1).end(i, j).sink()


def affine_gradient(gradient: UOp, kernel: UOp) -> tuple[UOp | None, ...]:
    return None, (Tensor(gradient) * 2).uop


def matmul(c: UOp, a: UOp, b: UOp) -> UOp:
    """`a @ b`."""
    i, j = UOp.range(c.shape[0], 0), UOp.range(c.shape[1], 1)
    k = UOp.range(a.shape[1], 2, axis_type=AxisType.REDUCE)
    return c[i, j].store((a[i, k] * b[k, j]).reduce(k, arg=Ops.ADD)).end(i, j).sink()


def matmul_gradient(gradient: UOp, kernel: UOp) -> tuple[UOp | None, ...]:
    _, a, b = kernel.src
    return None, (Tensor(gradient) @ Tensor(b).T).uop, (Tensor(a).T @ Tensor(gradient)).uop


def largest(y: UOp, x: UOp) -> UOp:
    """The largest of each row."""
    i, j = UOp.range(x.shape[0], 0), UOp.range(x.shape[1], 1, axis_type=AxisType.REDUCE)
    return y[i].store(x[i, j].reduce(j, arg=Ops.MAX)).end(i).sink()
