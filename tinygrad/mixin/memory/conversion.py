"""Conversion to numpy and Python values; these methods realize the tensor.

Input: tensors on any device. Output: numbers, lists, numpy arrays, memoryviews.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tinygrad.dtype import dtypes, to_numpy_dtype
from tinygrad.errors import ArgumentError
from tinygrad.execution.capture import check_readable
from tinygrad.mixin.memory.storage import StorageMixin
from tinygrad.mixin.reduction.reduce import ReduceMixin
from tinygrad.sharding import Sharding
from tinygrad.storage.files import as_range_of_file
from tinygrad.storage.host.values import bound_size, read_array
from tinygrad.storage.views import is_constant, is_in_memory
from tinygrad.uop.device_value import is_file
from tinygrad.uop.sint import same_size

if TYPE_CHECKING:
    import numpy


class ConversionMixin(ReduceMixin, StorageMixin):
    """`numpy`, `data`, `item`, `tolist`, `allclose`, `float()`, `int()`, `bool()`, `format()`."""

    __slots__ = ()

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """Copy to a numpy array; bfloat16 and fp8 become float32.

        >>> Tensor([1, 2]).numpy()
        array([1, 2], dtype=int32)
        """
        import numpy as np

        shape = tuple(bound_size(size) for size in self.shape)
        if 0 in shape:
            bits = self.dtype in (dtypes.bfloat16, *dtypes.fp8s)
            return np.empty(shape, np.float32 if bits else to_numpy_dtype(self.dtype))
        if not is_constant(self.uop):
            check_readable(self.uop)
        x = self
        if is_file(self.device):
            x = self._new(as_range_of_file(self.uop))
        elif isinstance(self.device, Sharding):
            has_whole = self.device.is_replicated and is_in_memory(self.uop)
            x = self if has_whole else self.to("CPU")
        x.realize()
        array = read_array(x.uop)
        # read_array copies the buffer; a view of that copy is copied again, to be contiguous
        return array if array.flags.owndata else np.array(array, order="C")

    def data(self) -> memoryview:
        """A memoryview of the value, in its shape. Raises TypeError for dtypes without a format.

        >>> Tensor([1, 2]).data().tolist()
        [1, 2]
        """
        if self.dtype.fmt is None:
            raise TypeError(f"a memoryview cannot hold {self.dtype}; cast to float32 first")
        array = self.numpy()
        return memoryview(array if array.flags.c_contiguous else array.copy())  # type: ignore[arg-type]

    def item(self) -> Any:
        """The value of a one-element tensor as a Python number. Raises ValueError for other sizes.

        >>> Tensor(42).item()
        42
        """
        if not same_size(self.numel(), 1):
            raise ArgumentError(
                f"item() needs a tensor of one element, not shape {self.shape}; call tolist(), or "
                "item() of one element"
            )
        return self.numpy().item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers; one number for a tensor without axes.

        >>> Tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        return self.numpy().tolist()

    def allclose(
        self, other: Self, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> bool:
        """Whether all elements are close, as `isclose`.

        >>> Tensor([1.0, 2.0]).allclose(Tensor([1.0, 2.0 + 1e-7]))
        True
        """
        return bool(self.isclose(other, rtol=rtol, atol=atol, equal_nan=equal_nan).all().item())

    def __bool__(self) -> bool:
        """Whether the only element is not zero. Raises TypeError for other sizes."""
        if not same_size(self.numel(), 1):
            raise TypeError(
                "the truth value of a tensor is ambiguous; use .item(), .any() or .all()"
            )
        return bool(self.item())

    def __int__(self) -> int:
        """The only element, truncated toward zero. Raises ValueError for other sizes."""
        return int(self.item())

    __trunc__ = __int__

    def __index__(self) -> int:
        """The number of an integer tensor without axes, as for `range` and positions in lists.

        Raises TypeError for any other tensor.
        """
        if self.shape or not dtypes.is_int(self.dtype):
            raise TypeError(
                f"a tensor of {self.dtype} and shape {self.shape} is not an integer; an integer "
                "tensor without axes is one"
            )
        return int(self.item())

    def __float__(self) -> float:
        """The only element. Raises ValueError for other sizes."""
        return float(self.item())

    def __format__(self, spec: str) -> str:
        """The only element in a format, as in `f"{loss:.3f}"`; without a format, as `str`.

        Raises ValueError for other sizes.
        """
        return format(self.item(), spec) if spec else str(self)
