"""Activation functions of neural networks.

Input: tensors of any shape. Output: tensors of the same shape. Values and gradients are finite
where the input is.
"""

from __future__ import annotations

import math
from typing import Self

from tinygrad.errors import ArgumentError
from tinygrad.mixin.elementwise.unary import ElementwiseMixin
from tinygrad.mixin.precision import in_float32
from tinygrad.uop import Ops


class ActivationMixin(ElementwiseMixin):
    """`relu`, `sigmoid`, `gelu`, and other activation functions."""

    __slots__ = ()

    def relu(self) -> Self:
        """Rectified linear unit: `max(x, 0)`, NaN for NaN. Its gradient at 0 is 0.

        >>> Tensor([-1.0, 0.0, 2.0]).relu().tolist()
        [0.0, 0.0, 2.0]
        """
        return (self <= 0).where(0, self)

    def sigmoid(self) -> Self:
        """Logistic function: `1 / (1 + exp(-x))`.

        >>> Tensor([0.0]).sigmoid().tolist()
        [0.5]
        """
        return self._unary(Ops.LOGISTIC)

    @in_float32
    def logsigmoid(self) -> Self:
        """Logarithm of the sigmoid, without underflow.

        >>> Tensor([-200.0]).logsigmoid().tolist()
        [-200.0]
        """
        return self._as_float().neg()._unary(Ops.SOFTPLUS).neg()

    @in_float32
    def softplus(self, beta: float = 1.0) -> Self:
        """Smooth relu: `log(1 + exp(beta * x)) / beta`, without overflow (Dugas et al., 2000).

        >>> Tensor([200.0]).softplus().tolist()
        [200.0]
        """
        x = self._as_float()
        scaled = x * beta
        result = scaled._unary(Ops.SOFTPLUS) / beta
        if isinstance(beta, (int, float)) and abs(beta) <= 1:
            return result
        # the product overflows where the result is x
        return scaled.isinf(detect_negative=False).where(x, result)

    def relu6(self) -> Self:
        """Relu clipped at 6 (arXiv:1704.04861). Its gradient at 0 is 0.

        >>> Tensor([-1.0, 3.0, 9.0]).relu6().tolist()
        [0.0, 3.0, 6.0]
        """
        return self.relu().clip(0, 6)

    @in_float32
    def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
        """Piecewise linear sigmoid: `alpha * x + beta`, clipped to [0, 1].

        >>> Tensor([-3.0, 0.0, 3.0]).hardsigmoid().tolist()
        [0.0, 0.5, 1.0]
        """
        return (alpha * self + beta).clip(0, 1)

    @in_float32
    def hardswish(self) -> Self:
        """Piecewise linear swish: `x * relu6(x + 3) / 6` (arXiv:1905.02244).

        >>> Tensor([3.0, 6.0]).hardswish().tolist()
        [3.0, 6.0]
        """
        x = self._as_float()
        return x * ((x + 3).relu6() * (1 / 6))

    def hardtanh(self, min_val: float = -1, max_val: float = 1) -> Self:
        """Piecewise linear tanh: clipped to [min_val, max_val].

        >>> Tensor([-1.5, 0.5, 1.5]).hardtanh().tolist()
        [-1.0, 0.5, 1.0]
        """
        return self.clip(min_val, max_val)

    @in_float32
    def elu(self, alpha: float = 1.0) -> Self:
        """Exponential linear unit: `alpha * (exp(x) - 1)` for negative x (arXiv:1511.07289).

        >>> Tensor([0.0, 2.0]).elu().tolist()
        [0.0, 2.0]
        """
        return (self > 0).where(self, alpha * self._negative_part()._unary(Ops.EXPM1))

    def _negative_part(self) -> Self:
        """`min(x, 0)`, so that functions of the unused branch stay finite."""
        return (self > 0).where(0, self)

    @in_float32
    def celu(self, alpha: float = 1.0) -> Self:
        """Continuous elu: `alpha * (exp(x / alpha) - 1)` for negative x (arXiv:1704.07483).

        >>> Tensor([0.0, 2.0]).celu().tolist()
        [0.0, 2.0]
        """
        return (self > 0).where(self, alpha * (self._negative_part() / alpha)._unary(Ops.EXPM1))

    @in_float32
    def selu(self, alpha: float = 1.67326, gamma: float = 1.0507) -> Self:
        """Scaled elu: `gamma * elu(x, alpha)` (arXiv:1706.02515).

        >>> Tensor([0.0]).selu().tolist()
        [0.0]
        """
        return gamma * self.elu(alpha)

    @in_float32
    def leaky_relu(self, neg_slope: float = 0.01) -> Self:
        """Leaky relu: `neg_slope * x` for negative x.

        >>> Tensor([-2.0, 2.0]).leaky_relu(0.5).tolist()
        [-1.0, 2.0]
        """
        return (self > 0).where(self, neg_slope * self)

    @in_float32
    def swish(self) -> Self:
        """Swish: `x * sigmoid(x)` (arXiv:1710.05941).

        >>> Tensor([0.0]).swish().tolist()
        [0.0]
        """
        return self * self.sigmoid()

    def silu(self) -> Self:
        """Alias of `swish` (arXiv:1606.08415).

        >>> Tensor([0.0]).silu().tolist()
        [0.0]
        """
        return self.swish()

    @in_float32
    def gelu(self, approximate: str = "tanh") -> Self:
        """Gaussian error linear unit, in the tanh approximation (arXiv:1606.08415), or exact for
        `approximate="none"`. Raises ValueError for another one.

        >>> Tensor([0.0]).gelu().tolist()
        [0.0]
        """
        if approximate not in ("tanh", "none"):
            raise ArgumentError(f'gelu: approximate={approximate!r} is not "tanh" or "none"')
        x = self._as_float()
        if approximate == "none":
            return x * 0.5 * (1 + (x * math.sqrt(0.5)).erf())
        # (1 + tanh(u)) / 2 is the sigmoid of 2u; the cube does not overflow
        square = x * x
        square = (square > 1e3).where(1e3, square)
        return x * (2 * math.sqrt(2 / math.pi) * (x * (1 + 0.044715 * square))).sigmoid()

    @in_float32
    def quick_gelu(self) -> Self:
        """Gelu in the sigmoid approximation: `x * sigmoid(1.702 * x)`.

        >>> Tensor([0.0]).quick_gelu().tolist()
        [0.0]
        """
        return self * (self * 1.702).sigmoid()

    @in_float32
    def mish(self) -> Self:
        """Mish: `x * tanh(softplus(x))` (arXiv:1908.08681).

        >>> Tensor([0.0]).mish().tolist()
        [0.0]
        """
        return self * self.softplus().tanh()

    @in_float32
    def softsign(self) -> Self:
        """Softsign: `x / (1 + abs(x))`.

        >>> Tensor([-1.0, 3.0]).softsign().tolist()
        [-0.5, 0.75]
        """
        return self / (1 + self.abs())
