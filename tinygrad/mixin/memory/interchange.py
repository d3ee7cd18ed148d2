"""Exchange with other libraries without a copy: DLPack and the numpy array protocol.

Input: a tensor in memory that the CPU addresses. Output: a DLPack capsule or a numpy array; and
back. Shared memory follows each library's own rules: a write on one side is visible on the other
once it has run, and lazy values read the content at the time they are computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tinygrad.device import Device
from tinygrad.dtype import is_stored_as_bits, to_numpy_dtype
from tinygrad.errors import ArgumentError
from tinygrad.execution.capture import check_readable
from tinygrad.mixin.memory.conversion import ConversionMixin
from tinygrad.sharding import Sharding
from tinygrad.storage.element_layout import strided_array
from tinygrad.storage.host import dlpack
from tinygrad.storage.host.arrays import shared_node
from tinygrad.storage.host.values import view_array
from tinygrad.storage.realization import own_memory
from tinygrad.uop.device_value import DeviceLike

# numpy's functions that Python's operators call, by the name of the method
_OPERATORS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "truediv",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "divmod": "divmod",
    "power": "pow",
    "matmul": "matmul",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "left_shift": "lshift",
    "right_shift": "rshift",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "equal": "eq",
    "not_equal": "ne",
}
_REFLECTED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


class InterchangeMixin(ConversionMixin):
    """`from_dlpack`, `__dlpack__`, `__array__`."""

    __slots__ = ()

    @classmethod
    def from_dlpack(cls, x: Any, device: DeviceLike = None, copy: bool | None = None) -> Self:
        """Import an array of another library, or a DLPack capsule, in the same memory.

        The tensor is on the CPU, or is copied to `device`. Memory that has gaps or is read-only is
        copied; with `copy=True`, all memory is. Raises TypeError for objects without DLPack;
        BufferError if `copy=False` is impossible, for arrays on other devices and for unknown
        dtypes.

        >>> array = numpy.zeros(2, dtype=numpy.float32)
        >>> x = Tensor.from_dlpack(array)
        >>> x += 1
        >>> x.realize() is x and array.tolist()
        [1.0, 1.0]
        """
        stored, dtype = dlpack.from_capsule(_capsule_of(x))
        new = cls._created(shared_node(stored, dtype, copy), device)
        new._own_memory()
        return new

    def __dlpack__(
        self,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export a DLPack capsule of the realized value, in the same memory.

        It is copied with `copy=True`, and if the tensor is an expanded or flipped view. Raises
        BufferError if `copy=False` is impossible, and for memory that is not the CPU's.
        """
        if stream is not None:
            raise BufferError(f"CPU tensors have no streams; leave out stream={stream!r}")
        if dl_device is not None and tuple(map(int, dl_device)) != dlpack.CPU:
            raise BufferError(
                f"a tensor is exported to DLPack's device {dlpack.CPU}, the CPU, not {dl_device}; "
                "leave out dl_device and copy it there"
            )
        stored = self._stored_array()
        usable = _has_dlpack_strides(stored)
        if copy is False and not usable:
            raise BufferError(f"{self!r} repeats or reverses memory; use .contiguous() first")
        own = stored.copy() if copy or not usable else stored
        return dlpack.to_capsule(own, self.dtype, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's device, the CPU. Raises BufferError for tensors on other devices."""
        self._check_addressable()
        return dlpack.CPU

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """A numpy function of elements: a tensor for one that is a Python operator, which computes
        as that; else an array. `array += x` writes the array.
        """
        name = _OPERATORS.get(ufunc.__name__)
        if method == "__call__" and name and not kwargs:
            first, *others = inputs
            if isinstance(first, InterchangeMixin):
                return getattr(first, f"__{name}__")(*others)
            return getattr(self, f"__{_REFLECTED.get(name, f'r{name}')}__")(first)
        return getattr(ufunc, method)(*_as_arrays(inputs), **_as_arrays(kwargs))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """A numpy function, such as `np.mean(x)` and `np.stack([x, y])`, of arrays."""
        return function(*_as_arrays(args), **_as_arrays(kwargs))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Convert to a numpy array, as `numpy()`, with another dtype if given.

        With `copy=False`, the array shares memory; raises ValueError if the dtype differs or the
        memory is not the CPU's.
        """
        if copy is not False:
            array = self.numpy()
            return array if dtype is None else array.astype(dtype, copy=False)
        own = to_numpy_dtype(self.dtype)
        if is_stored_as_bits(self.dtype) or dtype not in (None, own):
            raise ArgumentError(
                f"{self!r} cannot share its memory as an array of {dtype or 'float32'}; "
                "leave out copy=False"
            )
        try:
            return self._stored_array()
        except BufferError as error:
            raise ArgumentError(f"{error}, or leave out copy=False") from error

    def _stored_array(self) -> Array:
        """The realized elements in memory. Raises BufferError if that is not the CPU's."""
        import numpy as np

        self._check_addressable()
        if 0 in self.shape:
            return np.empty(self.shape, to_numpy_dtype(self.dtype))
        check_readable(self.uop)
        own_memory(self, for_outside=True)
        found = strided_array(self.uop)
        return view_array(self.realize().uop) if found is None else found

    def _check_addressable(self) -> None:
        device = self.device
        if isinstance(device, Sharding) or not Device[device].allocator.addressable:
            raise BufferError(
                f"a tensor on {device} is not in one buffer of the CPU; "
                "copy it there first: .to('CPU')"
            )


def _as_arrays(value: Any) -> Any:
    """Tensors in tuples, lists and dicts as arrays."""
    if isinstance(value, InterchangeMixin):
        return value.numpy()
    if isinstance(value, (tuple, list)):
        return type(value)(map(_as_arrays, value))
    if isinstance(value, dict):
        return {key: _as_arrays(x) for key, x in value.items()}
    return value


def _capsule_of(x: Any) -> Any:
    if type(x).__name__ == "PyCapsule":
        return x
    if not hasattr(x, "__dlpack__"):
        raise TypeError(
            f"from_dlpack takes an array that has __dlpack__, not {x!r} of type "
            f"{type(x).__name__}; use Tensor(...)"
        )
    device_type, number = x.__dlpack_device__()
    if int(device_type) != dlpack.CPU[0]:
        raise BufferError(
            f"from_dlpack: the array is on DLPack's device ({int(device_type)}, {number}), not "
            "on the CPU; copy it to the CPU first"
        )
    try:
        return x.__dlpack__(max_version=dlpack.VERSION)
    except TypeError:
        # a library that predates DLPack versions
        return x.__dlpack__()


def _has_dlpack_strides(array: Array) -> bool:
    """Whether all strides are positive, so that no element repeats and no axis is reversed."""
    pairs = zip(array.shape, array.strides, strict=True)
    return all(size <= 1 or step > 0 for size, step in pairs)
