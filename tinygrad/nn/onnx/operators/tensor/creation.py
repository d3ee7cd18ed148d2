"""Creation of tensors: constants, ranges, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad.dtype import DType, dtypes, from_numpy_dtype
from tinygrad.nn.onnx.element_types import dtype_of
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.operators.tensor.movement import Ints, fixed_shape
from tinygrad.nn.onnx.registry import operator
from tinygrad.nn.onnx.values import Array, HostValue, Value
from tinygrad.tensor import Tensor


@operator("ConstantOfShape")
def constant_of_shape(shape: Array, *, value: Array | None = None) -> Tensor:
    sizes = tuple(shape.tolist())
    if any(size < 0 for size in sizes):
        raise OnnxError(f"the shape {sizes} has negative sizes")
    fill = np.zeros(1, np.float32) if value is None else value
    return Tensor.full(sizes, fill.item(), dtype=from_numpy_dtype(fill.dtype))


@operator("Range")
def range_(start: Array, limit: Array, delta: Array) -> Tensor:
    numbers = (start.item(), limit.item(), delta.item())
    return Tensor.arange(*numbers, dtype=from_numpy_dtype(start.dtype))


@operator("EyeLike")
def eye_like(x: Value, *, dtype: int | None = None, k: int = 0) -> Tensor:
    """Ones on a diagonal, of the shape of `x`."""
    rows, columns = fixed_shape(x)
    row = Tensor.arange(rows).reshape((rows, 1))
    return (Tensor.arange(columns) - row).eq(k).cast(dtype_like(x, dtype))


def dtype_like(x: Value, code: int | None) -> DType:
    """The dtype of a code, or that of `x`."""
    if code is not None:
        return dtype_of(code, "dtype")
    return from_numpy_dtype(x.array.dtype) if isinstance(x, HostValue) else x.dtype


@operator("OneHot")
def one_hot(indices: Tensor, depth: Array, values: Tensor, *, axis: int = -1) -> Tensor:
    """`values[1]` at each index along a new axis, `values[0]` elsewhere."""
    count = int(depth.item())
    at = axis if axis >= 0 else axis + indices.ndim + 1
    sizes = tuple(count if i == at else 1 for i in range(indices.ndim + 1))
    place = indices.cast(dtypes.int64)
    place = (place < 0).where(place + count, place).unsqueeze(at)
    return (
        Tensor.arange(count, dtype=dtypes.int64)
        .reshape(sizes)
        .eq(place)
        .where(values[1], values[0])
    )


# ---- random numbers ----


def random_dtype(code: int | None, x: Value | None = None) -> DType:
    """The requested float type, that of `x`, or float32."""
    if code is not None:
        return dtype_of(code, "dtype")
    return dtypes.float32 if x is None else dtype_like(x, None)


@operator("RandomUniform")
def random_uniform(
    *,
    shape: Ints,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Tensor:
    return Tensor.uniform(*shape, low=low, high=high, dtype=random_dtype(dtype))


@operator("RandomUniformLike")
def random_uniform_like(
    x: Value,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Tensor:
    return Tensor.uniform(*fixed_shape(x), low=low, high=high, dtype=random_dtype(dtype, x))


@operator("RandomNormal")
def random_normal(
    *,
    shape: Ints,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:
    return Tensor.normal(*shape, mean=mean, std=scale, dtype=random_dtype(dtype))


@operator("RandomNormalLike")
def random_normal_like(
    x: Value,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:
    return Tensor.normal(*fixed_shape(x), mean=mean, std=scale, dtype=random_dtype(dtype, x))


@operator("Bernoulli")
def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    """1 with the probability of each element."""
    return (Tensor.rand(*x.shape, device=x.device) < x).cast(dtype_like(x, dtype))


@operator("Dropout")
def dropout(
    data: Tensor,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    is_test: int | None = None,
) -> tuple[Tensor, Any]:
    """The data, and the mask of kept elements: all, unless the model is in training mode."""
    rate = 0.5 if ratio is None else float(ratio.item())
    if training_mode is None or not training_mode.item() or rate == 0:
        return data, Tensor.full(data.shape, True)
    kept = Tensor.rand(*data.shape, device=data.device) >= rate
    return kept.where(data / (1 - rate), 0).cast(data.dtype), kept
