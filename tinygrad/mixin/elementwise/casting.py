"""Casts to other dtypes, and bitcasts.

Floats round to nearest, ties to even, and keep subnormals. Overflow gives infinity, in 8-bit floats
the maximum. float64 is cast to bfloat16 and to 8-bit floats by way of float32. Floats are cast to
integers toward zero; values out of range saturate, and NaN becomes 0, on every device. Integers are
cast to narrower ones modulo their range.

The methods have the names of the dtypes, and would hide Python's in other methods of the class:
nothing else is in it.
"""

from __future__ import annotations

from typing import Self

from tinygrad.dtype import DTypeLike, dtypes, to_dtype
from tinygrad.errors import ArgumentError
from tinygrad.mixin.core import TensorCore
from tinygrad.uop import Ops


class CastMixin(TensorCore):
    """`float`, `half`, `int`, `bool`, ..., and `bitcast`."""

    __slots__ = ()

    def bitcast(self, dtype: DTypeLike) -> Self:
        """Reinterpret the bits as `dtype`; a different itemsize changes the size of the last axis.

        Raises RuntimeError if the bytes of the last axis are not a multiple of the new itemsize,
        and for a tensor that requires a gradient, since bits have none.

        >>> Tensor([-1], dtype=dtypes.int32).bitcast(dtypes.uint32).tolist()
        [4294967295]
        """
        wanted = to_dtype(dtype)
        if self.dtype is wanted:
            return self
        if self._requires_grad:
            raise ArgumentError(f"bitcast to {wanted} has no gradient; use detach() first")
        own, new = self.dtype.itemsize, wanted.itemsize
        if own != new and (not self.ndim or self.shape[-1] * own % new):
            raise ArgumentError(
                f"bitcast of {self.dtype} {self.shape} to {wanted}: sizes do not fit"
            )
        return self._view(self.uop.bitcast(wanted), Ops.BITCAST, wanted)

    def float(self) -> Self:
        """Cast to float32.

        >>> Tensor([1]).float().dtype
        dtypes.float
        """
        return self.cast(dtypes.float32)

    def half(self) -> Self:
        """Cast to float16.

        >>> Tensor([1]).half().dtype
        dtypes.half
        """
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast to bfloat16.

        >>> Tensor([1]).bfloat16().dtype
        dtypes.bfloat16
        """
        return self.cast(dtypes.bfloat16)

    def double(self) -> Self:
        """Cast to float64.

        >>> Tensor([1]).double().dtype
        dtypes.double
        """
        return self.cast(dtypes.float64)

    def short(self) -> Self:
        """Cast to int16.

        >>> Tensor([1.5]).short().dtype
        dtypes.short
        """
        return self.cast(dtypes.int16)

    def int(self) -> Self:
        """Cast to int32.

        >>> Tensor([1.5]).int().tolist()
        [1]
        """
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """Cast to int64.

        >>> Tensor([1.5]).long().dtype
        dtypes.long
        """
        return self.cast(dtypes.int64)

    def bool(self) -> Self:
        """Cast to bool: whether each element is nonzero.

        >>> Tensor([1, 0]).bool().tolist()
        [True, False]
        """
        return self.cast(dtypes.bool)
