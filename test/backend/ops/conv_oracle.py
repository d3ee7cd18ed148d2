"""References in numpy and float64 for convolution, pooling, interpolation, and their gradients.

A table maps each element of each window to an element of the flattened source, or to -1 in the
padding. Values are gathered by the table, and gradients scattered by it. Interpolation is one
matrix per axis, and its gradient the transpose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tinygrad import Tensor

Array = np.ndarray[Any, Any]
Pairs = tuple[tuple[int, int], ...]


def array(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def integers(*shape: int, seed: int = 0, dtype: Any = np.int32) -> Array:
    """Small integers."""
    return np.random.default_rng(seed).integers(-8, 8, shape).astype(dtype)


def close(actual: Tensor, expected: Any, tolerance: float = 2e-5) -> None:
    """The tensor has the shape and the values of a reference."""
    found = actual.numpy()
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found, np.asarray(expected), rtol=tolerance, atol=tolerance)


def in_full(value: int | Sequence[int], count: int) -> tuple[int, ...]:
    """One number for each of `count` axes."""
    return (value,) * count if isinstance(value, int) else tuple(value)


def pairs_of(padding: int | Sequence[int], count: int) -> Pairs:
    """Padding in any form that the API takes, as (before, after) for each axis."""
    if isinstance(padding, int) or len(padding) == count:
        return tuple((p, p) for p in in_full(padding, count))
    return tuple(reversed(list(zip(padding[::2], padding[1::2], strict=True))))


@dataclass(frozen=True)
class Windows:
    """Windows over the last axes of an array, whose sizes are `sizes`."""

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    dilation: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] = 0
    ceil_mode: bool = False

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The number of windows along each axis."""
        return tuple(len(positions) for positions in self.positions)

    @cached_property
    def positions(self) -> list[Array]:
        """For each axis (windows, kernel): the position of the element, negative in leading
        padding.
        """
        count = len(self.sizes)
        full = (in_full(self.stride, count), in_full(self.dilation, count))
        return [
            self._axis_positions(*arguments)
            for arguments in zip(
                self.sizes, self.kernel, *full, pairs_of(self.padding, count), strict=True
            )
        ]

    def _axis_positions(
        self, size: int, kernel: int, stride: int, dilation: int, pair: tuple[int, int]
    ) -> Array:
        rest = (size + sum(pair) - dilation * (kernel - 1) - 1) / stride
        windows = (math.ceil(rest) if self.ceil_mode else math.floor(rest)) + 1
        if self.ceil_mode and (windows - 1) * stride >= size + pair[0]:
            windows -= 1
        return np.arange(windows)[:, None] * stride + np.arange(kernel) * dilation - pair[0]

    @cached_property
    def table(self) -> Array:
        """(windows, kernel), both flattened: the position in the flattened source, or -1."""
        table = np.zeros((1, 1), int)
        for size, positions in zip(self.sizes, self.positions, strict=True):
            inside = (positions >= 0) & (positions < size)
            index = np.where(inside, positions, -1)[None, :, None, :]
            outer = table[:, None, :, None]
            joined = np.where((index < 0) | (outer < 0), -1, outer * size + index)
            table = joined.reshape(joined.shape[0] * joined.shape[1], -1)
        return table

    def elements(self, with_padding: bool) -> Array:
        """The number of elements of each window, (*counts), without those that `ceil_mode` adds."""
        total = np.ones((1,) * len(self.sizes))
        pairs = pairs_of(self.padding, len(self.sizes))
        for axis, (size, positions, (before, after)) in enumerate(
            zip(self.sizes, self.positions, pairs, strict=True)
        ):
            low, high = (-before, size + after) if with_padding else (0, size)
            held = ((positions >= low) & (positions < high)).sum(1)
            total = total * held.reshape([-1 if i == axis else 1 for i in range(len(self.sizes))])
        return total

    def read(self, x: Array, fill: float = 0.0) -> Array:
        """(..., *sizes) to (..., windows, kernel)."""
        flat = x.reshape(*x.shape[: x.ndim - len(self.sizes)], -1).astype(np.float64)
        return np.where(self.table < 0, fill, flat[..., self.table])

    def add_back(self, values: Array) -> Array:
        """(..., windows, kernel) to (..., *sizes): the transpose of reading."""
        leading = values.shape[:-2]
        result = np.zeros((math.prod(leading), math.prod(self.sizes) + 1))
        # the padding is added to an extra element, which is dropped
        for row, value in zip(result, values.reshape(-1, *self.table.shape), strict=True):
            np.add.at(row, self.table, value)
        return result[:, :-1].reshape(*leading, *self.sizes)


# ---- convolution ----


def conv(x: Array, w: Array, windows: Windows, groups: int = 1) -> Array:
    """(batch, in, *sizes) and (out, in // groups, *kernel) to (batch, out, *counts)."""
    result = np.einsum("bgcwk,gock->bgow", _patches(x, windows, groups), _by_group(w, groups))
    return result.reshape(len(x), len(w), *windows.counts)


def conv_gradients(
    x: Array, w: Array, windows: Windows, above: Array, groups: int = 1
) -> tuple[Array, Array]:
    """The gradients of the sum of `conv(...) * above` by `x` and by `w`."""
    each = above.reshape(len(x), groups, len(w) // groups, -1)
    by_x = np.einsum("bgow,gock->bgcwk", each, _by_group(w, groups))
    by_w = np.einsum("bgow,bgcwk->gock", each, _patches(x, windows, groups))
    flat = by_x.reshape(len(x), -1, *windows.table.shape)
    return windows.add_back(flat), by_w.reshape(w.shape)


def conv_transpose(x: Array, w: Array, windows: Windows, groups: int = 1) -> Array:
    """The gradient of a convolution by its input: `windows` are those of the result.

    Windows of the result beyond those of `x` receive zero.
    """
    image = np.zeros((len(x), w.shape[1] * groups, *windows.sizes))
    return conv_gradients(image, w, windows, _as_windows(x, windows), groups)[0]


def conv_transpose_gradients(
    x: Array, w: Array, windows: Windows, above: Array, groups: int = 1
) -> tuple[Array, Array]:
    """The gradients of the sum of `conv_transpose(...) * above` by `x` and by `w`."""
    by_x = conv(above, w, windows, groups)[(..., *(slice(n) for n in x.shape[2:]))]
    return by_x, conv_gradients(above, w, windows, _as_windows(x, windows), groups)[1]


def _as_windows(x: Array, windows: Windows) -> Array:
    more = [(0, n - size) for n, size in zip(windows.counts, x.shape[2:], strict=True)]
    return np.pad(x, [(0, 0), (0, 0), *more])


def _patches(x: Array, windows: Windows, groups: int) -> Array:
    read = windows.read(x)
    return read.reshape(len(x), groups, x.shape[1] // groups, *windows.table.shape)


def _by_group(w: Array, groups: int) -> Array:
    return w.astype(np.float64).reshape(groups, len(w) // groups, w.shape[1], -1)


# ---- pooling ----


def avg_pool(x: Array, windows: Windows, with_padding: bool) -> Array:
    """The mean of each window."""
    total = windows.read(x).sum(-1)
    return total.reshape(*total.shape[:-1], *windows.counts) / windows.elements(with_padding)


def avg_pool_gradient(windows: Windows, above: Array, with_padding: bool) -> Array:
    """The gradient of the sum of `avg_pool(...) * above` by the source."""
    each = (above / windows.elements(with_padding)).reshape(*_leading(above, windows), -1, 1)
    return windows.add_back(np.broadcast_to(each, (*each.shape[:-1], windows.table.shape[1])))


def max_pool(x: Array, windows: Windows) -> tuple[Array, Array]:
    """The maximum of each window, and its first position in the flattened source; NaN is the
    maximum.
    """
    values = windows.read(x, -np.inf)
    largest = values.max(-1)
    chosen = (values == largest[..., None]) | np.isnan(values)
    position = np.argmax(chosen & (windows.table >= 0), -1)
    positions = windows.table[np.arange(len(windows.table)), position]
    shape = (*_leading(x, windows), *windows.counts)
    return largest.reshape(shape), positions.reshape(shape)


def max_pool_gradient(x: Array, windows: Windows, above: Array) -> Array:
    """The gradient of the sum of `max_pool(...)[0] * above`; equal elements share it."""
    values = windows.read(x, -np.inf)
    largest = values == values.max(-1, keepdims=True)
    each = above.reshape(*_leading(above, windows), -1, 1)
    return windows.add_back(each * largest / largest.sum(-1, keepdims=True))


def max_unpool(values: Array, indices: Array, leading: tuple[int, ...], sizes: Any) -> Array:
    """Each element at its index, zeros elsewhere."""
    result = np.zeros((math.prod(leading), math.prod(sizes)))
    rows = values.reshape(len(result), -1)
    np.put_along_axis(result, indices.reshape(rows.shape), rows, 1)
    return result.reshape(*leading, *sizes)


def _leading(x: Array, windows: Windows) -> tuple[int, ...]:
    return x.shape[: x.ndim - len(windows.sizes)]


# ---- interpolation ----


def interpolation(old: int, new: int, mode: str, align_corners: bool = False) -> Array:
    """(new, old): the weight of each old element in each new one."""
    out = np.arange(new)
    if mode == "nearest":
        return np.eye(old)[out * old // new]
    if mode == "nearest-exact":
        return np.eye(old)[(2 * out + 1) * old // (2 * new)]
    if align_corners:
        place = out * ((old - 1) / max(1, new - 1))
    else:
        place = np.clip((out + 0.5) * old / new - 0.5, 0, old - 1)
    below = np.minimum(np.floor(place).astype(int), old - 1)
    above = np.minimum(below + 1, old - 1)
    weight = (place - below)[:, None]
    return np.eye(old)[below] * (1 - weight) + np.eye(old)[above] * weight


def along_last_axes(x: Array, matrices: Sequence[Array]) -> Array:
    """Applies the matrices (new, old) to the last axes, in order."""
    result = x.astype(np.float64)
    for i, matrix in enumerate(matrices):
        axis = x.ndim - len(matrices) + i
        result = np.moveaxis(np.tensordot(matrix, result, (1, axis)), 0, axis)
    return result
