"""In-place operators: `x += y` assigns `x + y` to `x`.

Input: a tensor, and a tensor or a number. Output: the same tensor. Its views see the new content,
as after `assign`. Raises ValueError if the result has another shape or dtype.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.errors import ArgumentError
from tinygrad.mixin.linalg.matmul import MatmulMixin
from tinygrad.mixin.memory.storage import StorageMixin


class InplaceMixin(MatmulMixin, StorageMixin):
    """`+= -= *= /= //= %= **= @= &= |= ^= <<= >>=`."""

    __slots__ = ()

    def _updated(self, result: Self) -> Self:
        """This tensor with `result` as its new content."""
        if result.shape != self.shape or result.dtype != self.dtype:
            raise ArgumentError(
                f"in place: {result.dtype} of shape {result.shape} does not fit {self.dtype} of "
                f"shape {self.shape}; cast or reshape it first"
            )
        return self.assign(result)

    def __iadd__(self, x: Any) -> Self:
        return self._updated(self + x)

    def __isub__(self, x: Any) -> Self:
        return self._updated(self - x)

    def __imul__(self, x: Any) -> Self:
        return self._updated(self * x)

    def __itruediv__(self, x: Any) -> Self:
        return self._updated(self / x)

    def __ifloordiv__(self, x: Any) -> Self:
        return self._updated(self // x)

    def __imod__(self, x: Any) -> Self:
        return self._updated(self % x)

    def __ipow__(self, x: Any) -> Self:
        return self._updated(self**x)

    def __imatmul__(self, x: Self) -> Self:
        return self._updated(self @ x)

    def __iand__(self, x: Any) -> Self:
        return self._updated(self & x)

    def __ior__(self, x: Any) -> Self:
        return self._updated(self | x)

    def __ixor__(self, x: Any) -> Self:
        return self._updated(self ^ x)

    def __ilshift__(self, x: Any) -> Self:
        return self._updated(self << x)

    def __irshift__(self, x: Any) -> Self:
        return self._updated(self >> x)
