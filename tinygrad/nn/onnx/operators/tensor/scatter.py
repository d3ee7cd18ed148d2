"""Scatter by index tensors."""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.operators.tensor.indexing import flat_rows, from_the_front
from tinygrad.nn.onnx.registry import operator
from tinygrad.tensor import Tensor

REDUCTIONS = {"none": None, "add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def scatter_axis(
    data: Tensor, axis: int, indices: Tensor, updates: Tensor, reduction: str
) -> Tensor:
    """Scatter updates along an axis, combined with the data by `reduction`."""
    if reduction not in REDUCTIONS:
        raise OnnxError(f"reduction is {reduction!r}, none of {', '.join(REDUCTIONS)}")
    kind = REDUCTIONS[reduction]
    if kind is None:
        return data.scatter(axis, indices, updates)
    return data.scatter_reduce(axis, indices, updates, kind).cast(data.dtype)


@operator("ScatterElements")
def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    return scatter_axis(data, axis, from_the_front(indices, data.shape[axis]), updates, reduction)


@operator("ScatterND")
def scatter_nd(
    data: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none"
) -> Tensor:
    """Scatter slices to index tuples, the last axis of `indices`."""
    numbers, count = flat_rows(data, indices)
    rest = data.shape[int(indices.shape[-1]) :]
    table = data.reshape((count, prod(rest)))
    rows = numbers.reshape((-1, 1)).expand((-1, prod(rest)))
    parts = updates.reshape((prod(indices.shape[:-1]), prod(rest)))
    return scatter_axis(table, 0, rows, parts, reduction).reshape(data.shape)


@operator("TensorScatter")
def tensor_scatter(
    past_cache: Tensor,
    update: Tensor,
    write_indices: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    """A cache with an update written along an axis, starting at a position of each batch."""
    at = axis % past_cache.ndim
    size = past_cache.shape[at]
    steps = Tensor.arange(update.shape[at], dtype=dtypes.int64)
    steps = steps.reshape(tuple(-1 if i == at else 1 for i in range(update.ndim)))
    if write_indices is not None:
        steps = steps + write_indices.reshape((-1, *(1,) * (update.ndim - 1)))
    if mode == "circular":
        steps = steps % size
    return past_cache.scatter(at, steps.expand(update.shape), update)
