"""Values while a model runs: tensors, and small arrays that stay with Python.

Sizes, axes and positions decide what graph is built, so they must be known while it is built: what
a model computes from shapes and constants stays a numpy array, and no kernel runs for it. It
becomes a tensor, once, where an operator needs one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tinygrad.dtype import DType, dtypes, from_numpy_dtype, is_stored_as_bits
from tinygrad.execution.realize import capturing
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import DeviceLike

Array: TypeAlias = np.ndarray[Any, Any]

# what is larger is no shape
MAX_HOST_ELEMENTS = 1024
MAX_UPLOADED = 1024


@dataclass(frozen=True, eq=False)
class HostValue:
    """An array of the host. `stored` is its tensor, where the model keeps one in memory."""

    array: Array
    stored: Tensor | None = None

    def tensor(self, device: DeviceLike) -> Tensor:
        """The value as a tensor: the stored one, or a constant, or one that is on `device`."""
        return as_tensor(self.array, device) if self.stored is None else self.stored


Value: TypeAlias = Tensor | HostValue


def as_tensor(array: Array, device: DeviceLike) -> Tensor:
    """A tensor of an array's values, which must not be written to: equal ones take no memory, and
    others are put on `device` once, so that calls with equal shapes move nothing.
    """
    dtype, data = from_numpy_dtype(array.dtype), array.tobytes()
    if array.size == 0:
        return Tensor.full(array.shape, 0, dtype=dtype)
    # bytes tell zeros of different sign apart
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
    """What an operator gave, as a value; large arrays become tensors."""
    if isinstance(result, Tensor):
        return result
    array = np.asarray(result)
    if array.size > MAX_HOST_ELEMENTS:
        return as_tensor(array, device)
    return HostValue(array)


def as_array(value: Value, what: str) -> Array:
    """The value as an array of the host, computed if it is a tensor.

    Raises OnnxError while a TinyJit captures, which would keep this call's value for ever.
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
    """What was read of bfloat16 or fp8, float32, in a type of numpy that is of its width."""
    if not is_stored_as_bits(dtype):
        return array
    import ml_dtypes

    names = {dtypes.bfloat16: "bfloat16", dtypes.fp8e4m3: "float8_e4m3fn"}
    return array.astype(getattr(ml_dtypes, names.get(dtype, "float8_e5m2")))


def described(value: Value | None) -> str:
    """Dtype and shape, for messages."""
    if value is None:
        return "nothing"
    if isinstance(value, HostValue):
        return f"{from_numpy_dtype(value.array.dtype)} {value.array.shape}"
    return f"{value.dtype} {value.shape}"
