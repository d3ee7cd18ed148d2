"""Values while a model runs: tensors, small host arrays, sequences and empty optionals.

Sizes, axes and indices determine the graph, so they must be known while it is built: values derived
from shapes and constants stay numpy arrays, and no kernel runs for them. They become a tensor,
once, when an operator needs one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tinygrad.dtype import DType, dtypes, from_numpy_dtype, is_stored_as_bits
from tinygrad.execution.capture import capturing
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import DeviceLike

Array: TypeAlias = np.ndarray[Any, Any]

# a shape is not larger
MAX_HOST_ELEMENTS = 1024
MAX_UPLOADED = 1024


@dataclass(frozen=True, eq=False)
class HostValue:
    """A host array. `stored` is its tensor, if the model has one in memory."""

    array: Array
    stored: Tensor | None = None

    def tensor(self, device: DeviceLike) -> Tensor:
        """The value as a tensor: the stored one, a constant, or one on `device`."""
        return as_tensor(self.array, device) if self.stored is None else self.stored


Value: TypeAlias = Tensor | HostValue


@dataclass(frozen=True, eq=False)
class SequenceValue:
    """A sequence; its length is known while the graph is built."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class EmptyOptional:
    """An optional without an element; one with an element is the element itself."""


AnyValue: TypeAlias = Tensor | HostValue | SequenceValue | EmptyOptional


def checked_tensor(value: AnyValue | None, what: str) -> Value:
    """The value. Raises OnnxError if it is a sequence or an empty optional."""
    if value is None or isinstance(value, (SequenceValue, EmptyOptional)):
        raise OnnxError(f"{what} is {described(value)}, and must be a tensor")
    return value


def as_tensor(array: Array, device: DeviceLike) -> Tensor:
    """A read-only tensor of an array's values: uniform ones are constants, and others are cached on
    `device`, so that calls with equal shapes move nothing.
    """
    dtype, data = from_numpy_dtype(array.dtype), array.tobytes()
    if array.size == 0:
        return Tensor.full(array.shape, 0, dtype=dtype)
    # bytes distinguish zeros of different sign
    if data == data[: array.itemsize] * array.size:
        return Tensor.full(array.shape, array.flat[0].item(), dtype=dtype)
    return uploaded(data, array.dtype, array.shape, device)


@functools.lru_cache(MAX_UPLOADED)
def uploaded(
    data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], device: DeviceLike
) -> Tensor:
    """A tensor in memory, of the bytes of its elements."""
    return Tensor(np.frombuffer(data, dtype).reshape(shape), device=device).realize()


def as_value(result: Tensor | Array, device: DeviceLike) -> Value:
    """The result of an operator as a value; large arrays become tensors."""
    if isinstance(result, Tensor):
        return result
    array = np.asarray(result)
    if array.size > MAX_HOST_ELEMENTS:
        return as_tensor(array, device)
    return HostValue(array)


def as_array(value: Value, what: str) -> Array:
    """The value as a host array, computed if it is a tensor.

    Raises OnnxError while a TinyJit captures, as the value would be frozen into the capture.
    """
    if isinstance(value, HostValue):
        return value.array
    if capturing():
        raise OnnxError(
            f"{what} is a tensor, {described(value)}, whose value decides what is computed; under "
            "TinyJit it must be a constant of the model or follow from shapes. "
            "Run the model without TinyJit, or make this input an initializer"
        )
    return as_own_type(value.numpy(), value.dtype)


def as_own_type(array: Array, dtype: DType) -> Array:
    """A float32 array of bfloat16 or fp8 values, in the numpy type of their width."""
    if not is_stored_as_bits(dtype):
        return array
    import ml_dtypes

    # the names in C are those of numpy, but for two
    names = {dtypes.bfloat16: "bfloat16", dtypes.fp8e4m3: "float8_e4m3fn"}
    return array.astype(getattr(ml_dtypes, names.get(dtype, dtype.name)))


def described(value: AnyValue | None) -> str:
    """Dtype and shape, for messages."""
    if value is None:
        return "nothing"
    if isinstance(value, EmptyOptional):
        return "an empty optional"
    if isinstance(value, SequenceValue):
        return f"a sequence of {len(value.items)}"
    if isinstance(value, HostValue):
        return f"{from_numpy_dtype(value.array.dtype)} {value.array.shape}"
    return f"{value.dtype} {value.shape}"
