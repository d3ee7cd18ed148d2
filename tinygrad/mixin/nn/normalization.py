"""Layer and batch normalization, and Newton-Schulz orthogonalization.

Input: tensors. Output: tensors of the same shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.errors import ArgumentError
from tinygrad.helpers import prod
from tinygrad.mixin.elementwise.arithmetic import binary, difference
from tinygrad.mixin.linalg.matmul import MatmulMixin
from tinygrad.mixin.precision import in_float32
from tinygrad.mixin.reduction.reduce import Axis
from tinygrad.uop import Ops
from tinygrad.uop.arguments import integer_argument, number_argument
from tinygrad.uop.sint import same_size


class NormalizationMixin(MatmulMixin):
    """`layernorm`, `batchnorm`, `normalize`, `newton_schulz`."""

    __slots__ = ()

    @in_float32
    def layernorm(self, axis: Axis = -1, eps: float = 1e-05) -> Self:
        """Layer normalization: mean 0 and (biased) variance 1 over `axis` (arXiv:1607.06450).

        >>> Tensor([1.0, 1.0]).layernorm().tolist()
        [0.0, 0.0]
        """
        x, axes = self, self._axes(axis)
        if not x.is_floating_point():
            x = x.cast(least_upper_dtype(x.dtype, dtypes.float32))
        centered = difference(x.uop, self.mean(axes, keepdim=True).uop)
        variance = self._derive(self._mean_node(centered.alu(Ops.MUL, centered), axes))
        scale = (variance + eps).uop.alu(Ops.SQRT).alu(Ops.RECIPROCAL)
        return self._derive(binary(Ops.MUL, centered, scale))

    @in_float32
    def batchnorm(
        self,
        weight: Self | None,
        bias: Self | None,
        mean: Self,
        invstd: Self,
        axis: int | tuple[int, ...] = 1,
    ) -> Self:
        """Batch normalization: `(self - mean) * invstd * weight + bias` (arXiv:1502.03167).

        Statistics and parameters have the sizes of the axes `axis`; `invstd` may also have the
        shape of `self`. Raises ValueError for other sizes.

        >>> x, one = Tensor([[1.0], [3.0]]), Tensor([1.0])
        >>> x.batchnorm(one, one, Tensor([2.0]), one).tolist()
        [[0.0], [2.0]]
        """
        axes = self._axes(axis)
        shape = tuple(s if i in axes else 1 for i, s in enumerate(self.shape))
        for x in (weight, bias, mean):
            if x is not None and not same_size(x.numel(), prod(shape)):
                raise ArgumentError(
                    f"batchnorm: {x.shape} does not fit axes {axes} of shape {self.shape}; weight, "
                    f"bias and mean have {prod(shape)} elements"
                )
        centered = self - mean.reshape(shape)
        if weight is not None:
            centered = centered * weight.reshape(shape)
        scale = invstd.reshape(shape) if invstd.ndim == len(axes) else invstd
        result = centered.mul(scale)
        return result if bias is None else result + bias.reshape(shape)

    @in_float32
    def normalize(self, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Self:
        """Vectors along `dim`, divided by their p-norm, or by `eps` if that is larger.

        `p` is a nonnegative number or infinity. Raises ValueError for another one.

        >>> Tensor([[3.0, 4.0], [0.0, 0.0]]).normalize().tolist()
        [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
        """
        p = number_argument("normalize", "p", p)
        if not p >= 0:
            raise ArgumentError(f"normalize: p={p} must be nonnegative")
        x = self._as_float()
        return x / x._norm(float(p), dim).maximum(eps)

    def _norm(self, p: float, dim: int) -> Self:
        """The p-norms of vectors along an axis, which is kept; the gradient of a norm of 0 is 0."""
        if p == 0:
            return self.ne(0).cast(self.dtype).sum(dim, keepdim=True)
        size = self.abs()
        if p == math.inf:
            return size.max(dim, keepdim=True)
        if p == 1:
            return size.sum(dim, keepdim=True)
        if p == 2:
            return self.square().sum(dim, keepdim=True)._power_of_positive(0.5)
        return size._power_of_positive(p).sum(dim, keepdim=True)._power_of_positive(1 / p)

    def _power_of_positive(self, exponent: float) -> Self:
        """A power of nonnegative numbers whose gradient at 0 is 0 instead of infinite."""
        is_zero = self.eq(0)
        return is_zero.where(0, is_zero.where(1, self).pow(exponent))

    def newton_schulz(self, steps: int, params: tuple[float, ...], eps: float = 1e-07) -> Self:
        """Newton-Schulz iteration: matrices of the last two axes approach orthogonal ones.

        `params` are the coefficients of x, x**3, x**5, ... Raises ValueError for fewer than two
        axes, and without coefficients.

        >>> Tensor([[2.0, 0.0], [0.0, 2.0]]).newton_schulz(1, (2.0, -1.5, 0.5)).shape
        (2, 2)
        """
        if self.ndim < 2:
            raise ArgumentError(f"newton_schulz takes matrices, not shape {self.shape}")
        steps = integer_argument("newton_schulz", "steps", steps)
        if not isinstance(params, Sequence):
            raise TypeError(f"newton_schulz: params={params!r} must be a sequence of coefficients")
        if not params:
            raise ArgumentError("newton_schulz: params=() has no coefficients of x, x**3, ...")
        x = self._divided_by_norm(eps)
        wide = x.shape[-2] <= x.shape[-1]
        x = x if wide else x.transpose(-2, -1)
        for _ in range(steps):
            x = x._odd_polynomial(params)
        return x if wide else x.transpose(-2, -1)

    @in_float32
    def _divided_by_norm(self, eps: float) -> Self:
        return self / (self.square().sum((-2, -1), keepdim=True).sqrt() + eps)

    def _odd_polynomial(self, params: tuple[float, ...]) -> Self:
        square = self @ self.transpose(-2, -1)
        power = self
        total = power * params[0]
        for factor in params[1:]:
            power = square @ power
            total = total + power * factor
        return total
