"""Other element types: converted values, or the same bits.

Floats round to nearest, ties to even, and keep subnormals; one too large becomes infinite, or of 8
bits the largest there is. float64 goes to bfloat16 and to 8 bits by way of float32. A float becomes
an integer toward zero. What does not fit wraps around as long as int32 holds it, or int64 for
uint32 and wider types; what becomes of others, of infinities and of NaN is the device's own.

The names are those of the types, so nothing else is in this class: its own names hide Python's.
"""

from __future__ import annotations

from typing import Self

from tinygrad.dtype import DType, dtypes, to_dtype
from tinygrad.mixin.core import TensorCore


class CastMixin(TensorCore):
    """`float`, `half`, `int`, and the like, and `bitcast`."""

    __slots__ = ()

    def bitcast(self, dtype: DType | str) -> Self:
        """The same bits as another type; one of another size changes the last axis.

        Raises RuntimeError if the bytes of the last axis are no whole number of elements.

        >>> Tensor([-1], dtype=dtypes.int32).bitcast(dtypes.uint32).tolist()
        [4294967295]
        """
        wanted = to_dtype(dtype)
        if self.dtype is wanted:
            return self
        own, new = self.dtype.itemsize, wanted.itemsize
        if own != new and (not self.ndim or self.shape[-1] * own % new):
            raise RuntimeError(
                f"bitcast of {self.dtype} {self.shape} to {wanted}: sizes do not fit"
            )
        return self._derive(self.uop.bitcast(wanted))

    def float(self) -> Self:
        """The values as float32.

        >>> Tensor([1]).float().dtype
        dtypes.float
        """
        return self.cast(dtypes.float32)

    def half(self) -> Self:
        """The values as float16.

        >>> Tensor([1]).half().dtype
        dtypes.half
        """
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """The values as bfloat16.

        >>> Tensor([1]).bfloat16().dtype
        dtypes.bfloat16
        """
        return self.cast(dtypes.bfloat16)

    def double(self) -> Self:
        """The values as float64.

        >>> Tensor([1]).double().dtype
        dtypes.double
        """
        return self.cast(dtypes.float64)

    def short(self) -> Self:
        """The values as int16.

        >>> Tensor([1.5]).short().dtype
        dtypes.short
        """
        return self.cast(dtypes.int16)

    def int(self) -> Self:
        """The values as int32.

        >>> Tensor([1.5]).int().tolist()
        [1]
        """
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """The values as int64.

        >>> Tensor([1.5]).long().dtype
        dtypes.long
        """
        return self.cast(dtypes.int64)

    def bool(self) -> Self:
        """Whether the values are not zero.

        >>> Tensor([1, 0]).bool().tolist()
        [True, False]
        """
        return self.cast(dtypes.bool)
