"""In-place operators: `x += y` assigns `x + y` to `x`.

Input: a tensor, and a tensor or a number. Output: the same tensor. Its views see the new content,
as after `assign`. Raises ValueError if the result has another shape or dtype. Invariant: what the
gradient of the operation needs of the overwritten content is kept, as in PyTorch.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.errors import ArgumentError
from tinygrad.mixin.linalg.matmul import MatmulMixin
from tinygrad.mixin.memory.storage import StorageMixin
from tinygrad.storage.aliases import whole_value
from tinygrad.storage.gradients.grad_mode import Leaf, gradients_disabled
from tinygrad.storage.live_tensors import TensorBase
from tinygrad.storage.placement import in_own_memory
from tinygrad.storage.views import is_whole_memory, view_base, written_target
from tinygrad.uop import Ops


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

    def _kept_for(self, x: Any) -> Self:
        """This tensor; a copy of it if the gradient by `x` needs its content in memory, which is
        about to be overwritten.
        """
        is_needed = isinstance(x, TensorBase) and x._requires_grad and self.is_floating_point()
        if not is_needed or isinstance(self._requires_grad, Leaf) or gradients_disabled():
            return self
        is_row_copy = view_base(self.uop).op is Ops.GATHER  # `x[[0, 2]] *= y` writes it back to `x`
        if not (is_row_copy or is_whole_memory(written_target(whole_value(self)))):
            return self
        return self._derive(in_own_memory(self.uop))

    def __iadd__(self, x: Any) -> Self:
        return self._updated(self + x)

    def __isub__(self, x: Any) -> Self:
        return self._updated(self - x)

    def __imul__(self, x: Any) -> Self:
        return self._updated(self._kept_for(x) * x)

    def __itruediv__(self, x: Any) -> Self:
        return self._updated(self._kept_for(x) / x)

    def __ifloordiv__(self, x: Any) -> Self:
        return self._updated(self // x)

    def __imod__(self, x: Any) -> Self:
        return self._updated(self._kept_for(x) % x)

    def __ipow__(self, x: Any) -> Self:
        return self._updated(self._kept_for(x) ** x)

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
