"""Elementwise functions of one tensor: roots, exponentials, trigonometry, rounding.

Input: tensors; integers become the default float type where the function needs floats. Output:
tensors of the same shape. Accuracy is stated in `docs/numerics.md`.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tinygrad.dtype import dtypes, least_upper_float
from tinygrad.errors import ArgumentError
from tinygrad.gradient import with_gradient
from tinygrad.mixin.elementwise.division import floor_of
from tinygrad.mixin.elementwise.operators import OperatorMixin
from tinygrad.mixin.precision import in_float32
from tinygrad.uop import Ops
from tinygrad.uop.arguments import integer_argument
from tinygrad.uop.broadcast import fits_dtype
from tinygrad.uop.ops import UOp

MAX_DECIMALS = 37
"""10 to the power of this is a float32."""


class ElementwiseMixin(OperatorMixin):
    """Elementwise functions of one tensor."""

    __slots__ = ()

    def _float_node(self) -> UOp:
        """The node cast to float: unchanged, or in the default float type."""
        node = self.uop
        dtype = least_upper_float(node.dtype)
        return node if node.dtype is dtype else node.cast(dtype)

    def _as_float(self) -> Self:
        """This tensor cast to float, so that further arithmetic does not wrap around."""
        return self._derive(self._float_node())

    def _unary(self, op: Ops) -> Self:
        return self._derive(self._float_node().alu(op))

    # ---- powers and roots ----

    def square(self) -> Self:
        """Square: `self * self`.

        >>> Tensor([-1.0, 2.0]).square().tolist()
        [1.0, 4.0]
        """
        return self * self

    def sqrt(self) -> Self:
        """Square root; NaN for negative numbers.

        >>> Tensor([1.0, 4.0]).sqrt().tolist()
        [1.0, 2.0]
        """
        return self._unary(Ops.SQRT)

    @in_float32
    def rsqrt(self) -> Self:
        """Reciprocal of the square root.

        >>> Tensor([1.0, 4.0]).rsqrt().tolist()
        [1.0, 0.5]
        """
        return self.sqrt().reciprocal()

    def reciprocal(self) -> Self:
        """Reciprocal: `1 / x`.

        >>> Tensor([1.0, 4.0]).reciprocal().tolist()
        [1.0, 0.25]
        """
        return self._unary(Ops.RECIPROCAL)

    # ---- exponentials and logarithms ----

    def exp(self) -> Self:
        """Exponential: e to the power of each element.

        >>> Tensor([0.0, -float("inf")]).exp().tolist()
        [1.0, 0.0]
        """
        return self._unary(Ops.EXP)

    def exp2(self) -> Self:
        """Base-2 exponential: 2 to the power of each element.

        >>> Tensor([0.0, 3.0]).exp2().tolist()
        [1.0, 8.0]
        """
        return self._unary(Ops.EXP2)

    def log(self) -> Self:
        """Natural logarithm; -inf at 0, NaN for negative numbers.

        >>> Tensor([1.0, 0.0]).log().tolist()
        [0.0, -inf]
        """
        return self._unary(Ops.LOG)

    def log2(self) -> Self:
        """Base-2 logarithm.

        >>> Tensor([1.0, 8.0]).log2().tolist()
        [0.0, 3.0]
        """
        return self._unary(Ops.LOG2)

    @in_float32
    def log10(self) -> Self:
        """Base-10 logarithm.

        >>> Tensor([1.0, 1000.0]).log10().tolist()
        [0.0, 3.0]
        """
        return self.log() * math.log10(math.e)

    @in_float32
    def logaddexp(self, other: Any) -> Self:
        """Logarithm of the sum of exponentials of both, without overflow.

        >>> Tensor([-200.0]).logaddexp(-300.0).tolist()
        [-200.0]
        """
        x = self._as_float()
        # inf - inf is NaN
        distance = x.eq(other).where(0, x - other).abs()
        return x.maximum(other) + distance.neg()._unary(Ops.SOFTPLUS)

    # ---- trigonometry ----

    def sin(self) -> Self:
        """Sine of radians; NaN for infinities.

        >>> Tensor([0.0]).sin().tolist()
        [0.0]
        """
        return self._unary(Ops.SIN)

    def cos(self) -> Self:
        """Cosine of radians; NaN for infinities.

        >>> Tensor([0.0]).cos().tolist()
        [1.0]
        """
        return self._unary(Ops.COS)

    def tan(self) -> Self:
        """Tangent of radians.

        >>> Tensor([0.0]).tan().tolist()
        [0.0]
        """
        return self._unary(Ops.TAN)

    def asin(self) -> Self:
        """Inverse sine, in [-pi/2, pi/2]; NaN outside [-1, 1].

        >>> Tensor([0.0]).asin().tolist()
        [0.0]
        """
        return self._unary(Ops.ASIN)

    def acos(self) -> Self:
        """Inverse cosine, in [0, pi]; NaN outside [-1, 1].

        >>> Tensor([1.0]).acos().tolist()
        [0.0]
        """
        return self._unary(Ops.ACOS)

    def atan(self) -> Self:
        """Inverse tangent, in [-pi/2, pi/2].

        >>> Tensor([0.0]).atan().tolist()
        [0.0]
        """
        return self._unary(Ops.ATAN)

    def sinh(self) -> Self:
        """Hyperbolic sine.

        >>> round(Tensor([1.0]).sinh().item(), 4)
        1.1752
        """
        return self._unary(Ops.SINH)

    def cosh(self) -> Self:
        """Hyperbolic cosine.

        >>> Tensor([0.0]).cosh().tolist()
        [1.0]
        """
        return self._unary(Ops.COSH)

    def tanh(self) -> Self:
        """Hyperbolic tangent.

        >>> Tensor([0.0]).tanh().tolist()
        [0.0]
        """
        return self._unary(Ops.TANH)

    def asinh(self) -> Self:
        """Inverse hyperbolic sine.

        >>> Tensor([0.0]).asinh().tolist()
        [0.0]
        """
        return self._unary(Ops.ASINH)

    def acosh(self) -> Self:
        """Inverse hyperbolic cosine; NaN below 1.

        >>> Tensor([1.0]).acosh().tolist()
        [0.0]
        """
        return self._unary(Ops.ACOSH)

    def atanh(self) -> Self:
        """Inverse hyperbolic tangent; infinite at -1 and 1, NaN outside.

        >>> Tensor([0.0]).atanh().tolist()
        [0.0]
        """
        return self._unary(Ops.ATANH)

    def erf(self) -> Self:
        """Error function.

        >>> Tensor([float("inf")]).erf().tolist()
        [1.0]
        """
        return self._unary(Ops.ERF)

    # ---- sign and rounding ----

    def abs(self) -> Self:
        """Absolute value. Its gradient at 0 is 0.

        >>> Tensor([-1.5, 2.0]).abs().tolist()
        [1.5, 2.0]
        """
        if dtypes.is_unsigned(self.dtype) or self.dtype is dtypes.bool:
            return self._derive(self.uop)
        return self.maximum(self.neg())

    def __abs__(self) -> Self:
        return self.abs()

    def sign(self) -> Self:
        """Sign: -1, 0 or 1, and NaN for NaN. Its gradient is 0.

        >>> Tensor([-3.0, 0.0, 2.0]).sign().tolist()
        [-1.0, 0.0, 1.0]
        """
        if not dtypes.is_float(self.dtype) and not dtypes.min(self.dtype):
            return (self > 0).cast(self.dtype)
        x = self.detach()
        sign = (x < 0).where(-1, (x > 0).where(1, x)).cast(self.dtype)
        node = with_gradient(sign.uop, lambda g, y, x: (x.const_like(0),), self.uop)
        return self._derive(node)

    def trunc(self) -> Self:
        """Round toward zero. The gradient of this and other rounding is 0.

        >>> Tensor([-1.5, 2.7]).trunc().tolist()
        [-1.0, 2.0]
        """
        return self._derive(self.uop.alu(Ops.TRUNC)) if self.is_floating_point() else self

    @in_float32
    def floor(self) -> Self:
        """Round down.

        >>> Tensor([-1.5, 2.7]).floor().tolist()
        [-2.0, 2.0]
        """
        return self._derive(floor_of(self.uop)) if self.is_floating_point() else self

    @in_float32
    def ceil(self) -> Self:
        """Round up.

        >>> Tensor([-1.5, 2.2]).ceil().tolist()
        [-1.0, 3.0]
        """
        whole = self.trunc()
        return (whole < self).where(whole + 1, whole) if self.is_floating_point() else self

    @in_float32
    def round(self, decimals: int = 0) -> Self:
        """Round to the nearest integer, or to a number of decimals, ties to even.

        >>> Tensor([-1.5, 0.5, 2.5, 2.7]).round().tolist()
        [-2.0, 0.0, 2.0, 3.0]
        >>> Tensor([1.25, 12.5]).round(1).tolist()
        [1.2000000476837158, 12.5]
        """
        decimals = integer_argument("round", "decimals", decimals)
        if abs(decimals) > MAX_DECIMALS:
            raise ArgumentError(f"round: {decimals} decimals are not within +-{MAX_DECIMALS}")
        if decimals:
            return self._round_to(decimals)
        if not self.is_floating_point():
            return self
        whole = self.trunc()
        rest = self.detach() - whole
        half = whole * 0.5
        is_odd = half.trunc().ne(half)
        away = (rest.abs() > 0.5) | (rest.abs().eq(0.5) & is_odd)
        # a sum with 0 would be 0.0 for -0.0
        return away.where(whole + rest.sign(), whole)

    @in_float32
    def _round_to(self, decimals: int) -> Self:
        if self.is_floating_point():
            scale = 10.0 ** abs(decimals)
            if decimals > 0:
                return (self * scale).round() / scale
            return (self / scale).round() * scale
        return (
            self if decimals > 0 else self.cast(dtypes.float64)._round_to(decimals).cast(self.dtype)
        )

    def __round__(self, ndigits: int | None = None) -> Self:
        return self.round(ndigits or 0)

    # ---- predicates ----

    def isnan(self) -> Self:
        """Whether each element is NaN.

        >>> Tensor([1.0, float("nan")]).isnan().tolist()
        [False, True]
        """
        return self != self

    def isinf(self, detect_positive: bool = True, detect_negative: bool = True) -> Self:
        """Whether each element is infinite, of the selected signs.

        >>> Tensor([1.0, float("inf"), -float("inf")]).isinf().tolist()
        [False, True, True]
        """
        if not self.is_floating_point():
            return self.isnan()
        positive = self.eq(math.inf) & detect_positive
        return positive | (self.eq(-math.inf) & detect_negative)

    def isfinite(self) -> Self:
        """Whether each element is neither infinite nor NaN.

        >>> Tensor([1.0, float("inf"), float("nan")]).isfinite().tolist()
        [True, False, False]
        """
        return (self.isinf() | self.isnan()).logical_not()

    def isclose(
        self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> Self:
        """Whether `abs(self - other) <= atol + rtol * abs(other)`; equal infinities are close.

        >>> Tensor([1.0, 1.0]).isclose(Tensor([1.0 + 1e-6, 1.1])).tolist()
        [True, False]
        """
        x = self.ufix(other if fits_dtype(other, self.dtype) else float(other))
        distance = self.maximum(x) - self.minimum(x)
        if distance.dtype in dtypes.sints:
            # a difference that wrapped around is right modulo the range
            unsigned = dtypes.uints[dtypes.sints.index(distance.dtype)]
            distance = distance._derive(distance.uop.cast(unsigned))
        near = distance <= atol + rtol * x._as_float().abs()
        close = (near & self.isfinite() & x.isfinite()) | self.eq(x)
        return close | (self.isnan() & x.isnan()) if equal_nan else close
