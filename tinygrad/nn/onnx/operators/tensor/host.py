"""Arithmetic on sizes and indices: operators that numpy computes while the graph is built.

Each has a tensor version with the same meaning. An operator whose result is too large to be a shape
returns NotImplemented.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad.dtype import is_stored_as_bits, to_numpy_dtype
from tinygrad.helpers import prod
from tinygrad.nn.onnx.element_types import dtype_of
from tinygrad.nn.onnx.operators.tensor.movement import (
    inserted_axes,
    reshaped_sizes,
    slices_of,
    split_sizes,
    squeezed_sizes,
)
from tinygrad.nn.onnx.registry import host_operator
from tinygrad.nn.onnx.values import MAX_HOST_ELEMENTS, Array

UNARY: dict[str, Callable[[Array], Any]] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Exp": np.exp,
    "Floor": np.floor,
    "Identity": lambda x: x,
    "Log": np.log,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": np.reciprocal,
    "Round": np.round,
    "Sign": np.sign,
    "Sqrt": np.sqrt,
}
BINARY: dict[str, Callable[[Array, Array], Any]] = {
    "Add": np.add,
    "And": np.logical_and,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Pow": lambda a, b: np.power(a, b).astype(a.dtype),
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}


def unary(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """An operator of one array; undefined results, such as the root of -1, are NaN."""

    def apply(x: Array) -> Any:
        with np.errstate(all="ignore"):
            return function(x)

    return apply


def binary(function: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Any]:
    """An operator of two arrays; integers wrap around."""

    def apply(a: Array, b: Array) -> Any:
        if prod(np.broadcast_shapes(a.shape, b.shape)) > MAX_HOST_ELEMENTS:
            return NotImplemented
        with np.errstate(all="ignore"):
            return function(a, b)

    return apply


def quotient(a: Array, b: Array) -> Any:
    """The quotient; of integers, rounded toward zero. Raises ZeroDivisionError for integers."""
    if a.dtype.kind == "f":
        return np.divide(a, b)
    if not b.all():
        raise ZeroDivisionError(f"division of {a.tolist()} by {b.tolist()}")
    rest = np.fmod(a, b)
    return (a - rest) // b


def modulo(a: Array, b: Array) -> Any:
    """The remainder of a division, with the sign of `b`."""
    if a.dtype.kind != "f" and not b.all():
        raise ZeroDivisionError(f"division of {a.tolist()} by {b.tolist()}")
    return np.mod(a, b)


for name, function in UNARY.items():
    host_operator(name)(unary(function))
for name, pair_function in (BINARY | {"Div": quotient}).items():
    host_operator(name)(binary(pair_function))


@host_operator("Mod")
def mod(a: Array, b: Array, *, fmod: int = 0) -> Any:
    return binary(np.fmod if fmod else modulo)(a, b)


@host_operator("Max")
def largest(*xs: Array) -> Any:
    return functools.reduce(binary(np.maximum), xs)


@host_operator("Min")
def smallest(*xs: Array) -> Any:
    return functools.reduce(binary(np.minimum), xs)


@host_operator("Where")
def where(condition: Array, x: Array, y: Array) -> Any:
    return np.where(condition, x, y)


@host_operator("Cast")
def cast(x: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    dtype = dtype_of(to, "to")
    if is_stored_as_bits(dtype):
        return NotImplemented
    with np.errstate(all="ignore"):
        return x.astype(to_numpy_dtype(dtype))


# ---- movement ----


@host_operator("Reshape")
def reshape(data: Array, shape: Array, *, allowzero: int = 0) -> Array:
    return data.reshape(reshaped_sizes(data.shape, shape, allowzero))


@host_operator("Squeeze")
def squeeze(data: Array, axes: Array | None = None) -> Array:
    return data.reshape(squeezed_sizes(data.shape, axes))


@host_operator("Unsqueeze")
def unsqueeze(data: Array, axes: Array) -> Array:
    return np.expand_dims(data, inserted_axes(data.ndim, axes))


@host_operator("Flatten")
def flatten(data: Array, *, axis: int = 1) -> Array:
    at = axis if axis >= 0 else axis + data.ndim
    return data.reshape((prod(data.shape[:at]), prod(data.shape[at:])))


@host_operator("Transpose")
def transpose(data: Array, *, perm: tuple[int, ...] = ()) -> Array:
    return data.transpose(perm or None)


@host_operator("Concat")
def concat(*xs: Array, axis: int) -> Any:
    if sum(x.size for x in xs) > MAX_HOST_ELEMENTS:
        return NotImplemented
    return np.concatenate(xs, axis)


@host_operator("Slice")
def slice_(
    data: Array,
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array:
    return data[slices_of(data.shape, starts, ends, axes, steps)]


@host_operator("Split")
def split(
    data: Array,
    split: Array | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    output_count: int,
) -> list[Array]:
    sizes = split_sizes(data.shape, axis, split, output_count)
    return np.split(data, np.cumsum(sizes)[:-1].tolist(), axis)


@host_operator("Gather")
def gather(data: Array, indices: Array, *, axis: int = 0) -> Any:
    if data.size // max(1, data.shape[axis]) * indices.size > MAX_HOST_ELEMENTS:
        return NotImplemented
    return np.take(data, indices, axis)


@host_operator("Expand")
def expand(data: Array, shape: Array) -> Any:
    sizes = np.broadcast_shapes(data.shape, tuple(shape.tolist()))
    if prod(sizes) > MAX_HOST_ELEMENTS:
        return NotImplemented
    return np.broadcast_to(data, sizes)


@host_operator("Tile")
def tile(data: Array, repeats: Array) -> Any:
    if data.size * prod(repeats.tolist()) > MAX_HOST_ELEMENTS:
        return NotImplemented
    return np.tile(data, repeats)


# ---- creation and reduction ----


@host_operator("ConstantOfShape")
def constant_of_shape(shape: Array, *, value: Array | None = None) -> Any:
    sizes = tuple(shape.tolist())
    if prod(sizes) > MAX_HOST_ELEMENTS or any(size < 0 for size in sizes):
        return NotImplemented
    fill = np.zeros(1, np.float32) if value is None else value
    return np.broadcast_to(fill.reshape(-1)[0], sizes)


@host_operator("Range")
def range_(start: Array, limit: Array, delta: Array) -> Any:
    step = delta.item()
    if step == 0 or abs((limit.item() - start.item()) / step) > MAX_HOST_ELEMENTS:
        return NotImplemented
    return np.arange(start.item(), limit.item(), step, dtype=start.dtype)


def reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that reduces axes to one."""

    def apply(
        data: Array,
        axes: Array | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Any:
        if data.size == 0:
            return NotImplemented
        names = None if axes is None or axes.size == 0 else tuple(axes.tolist())
        if names is None and noop_with_empty_axes:
            return data
        return function(data, axis=names, keepdims=bool(keepdims)).astype(data.dtype)

    return apply


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
}
for name, reduce_function in REDUCTIONS.items():
    host_operator(name)(reduction(reduce_function))
