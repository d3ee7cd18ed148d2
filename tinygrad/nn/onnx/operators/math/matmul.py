"""Products of matrices."""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.nn.onnx.registry import operator
from tinygrad.tensor import Tensor


@operator("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return a.matmul(b, dtype=None if a.is_floating_point() else a.dtype)


@operator("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """`alpha * a @ b + beta * c`, with the matrices transposed first if requested."""
    product = matmul(a.transpose() if transA else a, b.transpose() if transB else b)
    product = product if alpha == 1 else product.mul(alpha).cast(a.dtype)
    if c is None or beta == 0:
        return product
    return product.add(c if beta == 1 else (c * beta).cast(c.dtype))


@operator("Einsum")
def einsum(*inputs: Tensor, equation: str) -> Tensor:
    return Tensor.einsum(equation, *inputs)


@operator("Det")
def determinant(x: Tensor) -> Tensor:
    """The determinant of square matrices in the last axes, by elimination with partial pivoting."""
    n = int(x.shape[-1])
    result = Tensor.ones(*x.shape[:-2], dtype=x.dtype)
    rows = Tensor.arange(n, dtype=dtypes.int32)
    for k in range(n):
        column = (rows < k).where(-1, x[..., k].abs())
        best = column.argmax(-1, keepdim=True)
        # swap the top row with the pivot row
        source = rows.eq(k).where(best, rows.eq(best).where(k, rows))
        x = x.gather(-2, source.unsqueeze(-1).expand(x.shape))
        pivot = x[..., k, k]
        result = result * best.squeeze(-1).eq(k).where(pivot, -pivot)
        factor = (x[..., k] / pivot.eq(0).where(1, pivot).unsqueeze(-1)).unsqueeze(-1)
        below = (rows > k).reshape((n, 1))
        x = below.where(x - factor * x[..., k : k + 1, :], x).contiguous()
    return result
