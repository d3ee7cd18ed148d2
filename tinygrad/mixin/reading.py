"""Values of tensors as numbers of Python and arrays of numpy: here computation is waited for.

In: tensors anywhere. Out: numbers, lists, arrays of the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tinygrad.dtype import dtypes, to_numpy_dtype
from tinygrad.mixin.placement import PlacementMixin
from tinygrad.mixin.reduce import ReduceMixin
from tinygrad.mixin.storage import StorageMixin
from tinygrad.sharding import Sharding
from tinygrad.storage.host_values import bound_size, read_array

if TYPE_CHECKING:
    import numpy


class ReadingMixin(ReduceMixin, StorageMixin, PlacementMixin):
    """`numpy`, `item`, `tolist`, `data`."""

    __slots__ = ()

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """A copy of the value as an array; bfloat16 and fp8 come as float32.

        >>> Tensor([1, 2]).numpy()
        array([1, 2], dtype=int32)
        """
        import numpy as np

        shape = tuple(bound_size(size) for size in self.shape)
        if 0 in shape:
            bits = self.dtype in (dtypes.bfloat16, *dtypes.fp8s)
            return np.empty(shape, np.float32 if bits else to_numpy_dtype(self.dtype))
        x = self.to("CPU") if isinstance(self.device, Sharding) else self
        x.realize()
        array = read_array(x.uop)
        # reading copies the buffer once; a repeated or reordered view of it is copied again
        return array if array.flags.owndata else np.array(array, order="C")

    def data(self) -> memoryview:
        """The value as a memoryview of its shape. Raises TypeError for types Python has not.

        >>> Tensor([1, 2]).data().tolist()
        [1, 2]
        """
        if self.dtype.fmt is None:
            raise TypeError(f"a memoryview has no elements of {self.dtype}; cast to float32 first")
        array = self.numpy()
        return memoryview(array if array.flags.c_contiguous else array.copy())  # type: ignore[arg-type]

    def item(self) -> Any:
        """The value of a tensor of one element, as a Python number. Raises ValueError of others.

        >>> Tensor(42).item()
        42
        """
        if self.numel() != 1:
            raise ValueError(f"item() is of one element; this tensor has shape {self.shape}")
        return self.numpy().item()

    def tolist(self) -> Any:
        """The value as nested lists of Python numbers; of a tensor without axes, the number.

        >>> Tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        return self.numpy().tolist()

    def allclose(
        self, other: Self, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> bool:
        """Whether all elements are close, see `isclose`; computes at once.

        >>> Tensor([1.0, 2.0]).allclose(Tensor([1.0, 2.0 + 1e-7]))
        True
        """
        return bool(self.isclose(other, rtol=rtol, atol=atol, equal_nan=equal_nan).all().item())

    def __bool__(self) -> bool:
        """Raises TypeError: whether all or any elements count has to be said."""
        raise TypeError("a tensor is neither true nor false; use .item(), .any() or .all()")
