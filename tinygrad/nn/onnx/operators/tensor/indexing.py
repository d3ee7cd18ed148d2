"""Gather by index tensors; negative indices count from the end."""

from __future__ import annotations

import numpy as np

from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.operators.tensor.movement import axis_of
from tinygrad.nn.onnx.registry import operator
from tinygrad.nn.onnx.values import Array, HostValue, Value
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import DeviceLike


def from_the_front(indices: Tensor, size: int) -> Tensor:
    """Indices as non-negative int64."""
    place = indices.cast(dtypes.int64)
    return (place < 0).where(place + size, place)


@operator("Gather")
def gather(data: Tensor, indices: Value, *, axis: int = 0, device: DeviceLike) -> Tensor:
    """Gather slices along an axis; the axes of `indices` replace it."""
    at = axis_of(axis, data.ndim)
    before, after = data.shape[:at], data.shape[at + 1 :]
    if not isinstance(indices, HostValue):
        return data[(slice(None),) * at + (indices,)]
    positions, size = indices.array, int(data.shape[at])
    if positions.size and not (-size <= positions.min() and positions.max() < size):
        raise OnnxError(f"positions {positions.tolist()} are not within axis {axis} of {size}")
    if positions.size != 1:
        return data[(slice(None),) * at + (indices.tensor(device),)]
    place = int(positions.item()) % size
    part = data.shrink((*(None for _ in before), (place, place + 1), *(None for _ in after)))
    return part.reshape((*before, *positions.shape, *after))


@operator("GatherElements")
def gather_elements(data: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return data.gather(axis, from_the_front(indices, data.shape[axis]))


@operator("GatherND")
def gather_nd(data: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Gather slices by index tuples, the last axis of `indices`."""
    numbers, count = flat_rows(data, indices, batch_dims)
    width = int(indices.shape[-1])
    rest = data.shape[batch_dims + width :]
    table = data.reshape((count, *rest))
    return table[numbers].reshape((*indices.shape[:-1], *rest))


def flat_rows(data: Tensor, indices: Tensor, batch_dims: int = 0) -> tuple[Tensor, int]:
    """Index tuples, the last axis of `indices`, as flat indices; and the size of the flattened
    axes.
    """
    width = int(indices.shape[-1])
    if batch_dims + width > data.ndim:
        raise OnnxError(f"indices of shape {indices.shape} name {width} axes of {data.shape}")
    sizes = tuple(int(size) for size in data.shape[batch_dims : batch_dims + width])
    batch = prod(data.shape[:batch_dims])
    number = Tensor.arange(batch, dtype=dtypes.int64)
    number = number.reshape((*data.shape[:batch_dims], *(1,) * (indices.ndim - 1 - batch_dims)))
    for i, size in enumerate(sizes):
        number = number * size + from_the_front(indices[..., i], size)
    return number.expand(indices.shape[:-1]), batch * prod(sizes)


# ---- data-dependent sizes ----


@operator("NonZero")
def non_zero(x: Array) -> Array:
    """The indices of non-zero elements: (axes, count). Reads the values."""
    return np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64)


@operator("Compress")
def compress(data: Tensor, condition: Array, *, axis: int | None = None) -> Tensor:
    """The slices along an axis, or of the flat tensor, where the condition is true. Reads it."""
    x = data.flatten() if axis is None else data
    at = 0 if axis is None else axis_of(axis, data.ndim)
    chosen = np.flatnonzero(condition)
    return x[(slice(None),) * at + (Tensor(chosen.astype(np.int32), device=x.device),)]


@operator("Unique")
def unique(
    x: Array, *, axis: int | None = None, sorted: int = 1
) -> tuple[Array, Array, Array, Array]:
    """Unique elements, their first indices, the inverse indices, and the counts."""
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        rank = np.argsort(order)
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)
