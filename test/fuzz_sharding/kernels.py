"""Custom kernels that random programs call."""

from __future__ import annotations

from test.backend.codegen.custom_kernels import largest, loop, matmul, matmul_gradient
from tinygrad import Tensor, UOp

__all__ = ["affine", "affine_gradient", "largest", "matmul", "matmul_gradient"]


def affine(y: UOp, x: UOp) -> UOp:
    """`2 * x + 1`."""
    i, j = loop(x.shape[0], 0), loop(x.shape[1], 1)
    return y[i, j].store(x[i, j] * 2 + 1).end(i, j).sink()


def affine_gradient(gradient: UOp, kernel: UOp) -> tuple[UOp | None, ...]:
    return None, (Tensor(gradient) * 2).uop
