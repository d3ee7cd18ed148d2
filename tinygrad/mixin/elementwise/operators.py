"""Python operators on tensors, such as `+` and `<`: each calls the method of its name.

Input: a tensor, and a tensor or a number on either side. Output: a tensor.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.mixin.core import TensorCore
from tinygrad.mixin.elementwise.comparison import ComparisonMixin
from tinygrad.uop import Ops


class OperatorMixin(ComparisonMixin):
    """`+ - * / // % ** & | ^ ~ << >> < <= > >= == !=`, `divmod()`."""

    __slots__ = ()

    def __neg__(self) -> Self:
        return self.neg()

    def __pos__(self) -> Self:
        return self._derive(self.uop)

    def __invert__(self) -> Self:
        return self.bitwise_not()

    def __add__(self, x: Any) -> Self:
        return self._binary(Ops.ADD, x)

    def __radd__(self, x: Any) -> Self:
        return self._binary(Ops.ADD, x, True)

    def __sub__(self, x: Any) -> Self:
        return self.sub(x)

    def __rsub__(self, x: Any) -> Self:
        return self.sub(x, True)

    def __mul__(self, x: Any) -> Self:
        return self._binary(Ops.MUL, x)

    def __rmul__(self, x: Any) -> Self:
        return self._binary(Ops.MUL, x, True)

    def __truediv__(self, x: Any) -> Self:
        return self.div(x)

    def __rtruediv__(self, x: Any) -> Self:
        return self.div(x, True)

    def __floordiv__(self, x: Any) -> Self:
        return self.div(x, rounding_mode="floor")

    def __rfloordiv__(self, x: Any) -> Self:
        return self.div(x, True, rounding_mode="floor")

    def __mod__(self, x: Any) -> Self:
        return self.mod(x)

    def __rmod__(self, x: Any) -> Self:
        return self.mod(x, True)

    def __divmod__(self, x: Any) -> tuple[Self, Self]:
        return self // x, self % x

    def __rdivmod__(self, x: Any) -> tuple[Self, Self]:
        return x // self, x % self

    def __pow__(self, x: Any) -> Self:
        return self.pow(x)

    def __rpow__(self, x: Any) -> Self:
        return self.pow(x, True)

    def __and__(self, x: Any) -> Self:
        return self.bitwise_and(x)

    def __rand__(self, x: Any) -> Self:
        return self.bitwise_and(x, True)

    def __or__(self, x: Any) -> Self:
        return self.bitwise_or(x)

    def __ror__(self, x: Any) -> Self:
        return self.bitwise_or(x, True)

    def __xor__(self, x: Any) -> Self:
        return self.bitwise_xor(x)

    def __rxor__(self, x: Any) -> Self:
        return self.bitwise_xor(x, True)

    def __lshift__(self, x: Any) -> Self:
        return self.lshift(x)

    def __rlshift__(self, x: Any) -> Self:
        return self.lshift(x, True)

    def __rshift__(self, x: Any) -> Self:
        return self.rshift(x)

    def __rrshift__(self, x: Any) -> Self:
        return self.rshift(x, True)

    def __lt__(self, x: Any) -> Self:
        return self._compare(Ops.CMPLT, x)

    def __gt__(self, x: Any) -> Self:
        return self._compare(Ops.CMPLT, x, True)

    def __le__(self, x: Any) -> Self:
        return self._less_equal(x, False)

    def __ge__(self, x: Any) -> Self:
        return self._less_equal(x, True)

    def __eq__(self, x: object) -> Self:  # type: ignore[override]
        return self._compare(Ops.CMPEQ, x)

    def __ne__(self, x: object) -> Self:  # type: ignore[override]
        return self._compare(Ops.CMPNE, x)

    # a class that defines `==` loses the inherited hash
    __hash__ = TensorCore.__hash__
