"""Interpolation: images and signals resampled to other sizes.

Input: (..., *sizes). Output: (..., *new sizes), each new element interpolated between its nearest
old ones, one axis after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.errors import ArgumentError
from tinygrad.mixin.indexing.gather import GatherMixin
from tinygrad.mixin.precision import in_float32
from tinygrad.uop.arguments import integer_argument
from tinygrad.uop.reshard import even_shard_count

_MODES = ("linear", "nearest", "nearest-exact")


class InterpolationMixin(GatherMixin):
    """`interpolate`."""

    __slots__ = ()

    @in_float32
    def interpolate(
        self, size: tuple[int, ...], mode: str = "linear", align_corners: bool = False
    ) -> Self:
        """Resample the last axes, as many as `size` has, to these sizes.

        `mode` is "linear", "nearest" or "nearest-exact". `align_corners`, for linear mode, keeps
        the first and last elements in place. Integers are rounded once, at the end. Raises
        TypeError for a size that is not a sequence, ValueError for other modes and for sizes that
        do not fit.

        >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).interpolate((1, 1)).tolist()
        [[2.5]]
        """
        if not isinstance(size, Sequence):
            raise TypeError(
                f"interpolate: size={size!r} must be a sequence, one per axis: ({size!r},)"
            )
        size = tuple(integer_argument("interpolate", "size", s) for s in size)
        if not 0 < len(size) <= self.ndim or any(s <= 0 for s in size):
            raise ArgumentError(f"interpolate: sizes {size} do not fit shape {self.shape}")
        if mode not in _MODES:
            raise ArgumentError(f"interpolate: mode {mode!r} is none of {', '.join(_MODES)}")
        if align_corners and mode != "linear":
            raise ArgumentError("interpolate: align_corners needs mode='linear'")
        rounds = mode == "linear" and not self.is_floating_point()
        x = self
        if rounds:
            x = self.cast(dtypes.float32 if self.element_size() < 4 else dtypes.float64)
        for i, new in enumerate(size):
            axis = self.ndim - len(size) + i
            parts = 1 if align_corners else even_shard_count(x.uop, axis, new)
            if parts > 1:
                x = x._resize_shards(axis, new, mode, parts)
            else:
                x = x._resize_axis(axis, new, mode, align_corners)
        return x.round().cast(self.dtype) if rounds else x

    def _resize_axis(self, axis: int, new: int, mode: str, align_corners: bool) -> Self:
        """Resample one axis."""
        old = int(self.shape[axis])
        if mode != "linear":
            return self._index_select({axis: _nearest_positions(self, old, new, mode)})
        if align_corners:
            unit = max(1, new - 1)
            return self._interpolate_linear(
                axis, _exact_arange(self, old * new, new) * (old - 1), unit
            )
        return self._interpolate_linear(
            axis, _center_positions(self, old, new).clip(0, (old - 1) * 2 * new), 2 * new
        )

    def _resize_shards(self, axis: int, new: int, mode: str, parts: int) -> Self:
        """As `_resize_axis`, for a sharded axis: each shard is resampled by itself, with a halo of
        one element on either side in linear mode.
        """
        block, made = int(self.shape[axis]) // parts, new // parts
        x = self.unflatten(axis, (parts, block))
        last = x.ndim - 1
        x = x.permute((*range(axis + 1), *range(axis + 2, x.ndim), axis + 1))
        if mode == "linear":
            position = _center_positions(self, block, made) + 2 * made
            x = x._with_halo(axis)._interpolate_linear(last, position, 2 * made)
        else:
            x = x._resize_axis(last, made, mode, False)
        return x.permute((*range(axis + 1), last, *range(axis + 1, last))).flatten(axis, axis + 1)

    def _with_halo(self, axis: int) -> Self:
        """Shards (..., parts, ..., block) with one element before and after each; at the ends of
        the axis, the outermost element is repeated.
        """
        last = self.ndim - 1
        parts, block = int(self.shape[axis]), int(self.shape[last])
        number = self.arange(parts).reshape(
            tuple(parts if i == axis else 1 for i in range(last + 1))
        )
        first, final = self._slice_axis(last, 0, 1), self._slice_axis(last, block - 1, block)

        def shifted(x: Self, by: int) -> Self:
            return x._padded(tuple((by, -by) if i == axis else (0, 0) for i in range(x.ndim)))

        before = number.eq(0).where(first, shifted(final, 1))
        after = number.eq(parts - 1).where(final, shifted(first, -1))
        return before.cat(self, after, dim=last)

    def _interpolate_linear(self, axis: int, position: Self, unit: int) -> Self:
        """Linear interpolation along `axis` at positions `position / unit`.

        Positions are integers, so that every kernel rounds them to the same element.
        """
        first = position.idiv(unit)
        shape = tuple(position.shape[0] if i == axis else 1 for i in range(self.ndim))
        rest = (position - first * unit).cast(least_upper_dtype(self.dtype, dtypes.float32))
        weight = (rest / unit).reshape(shape)
        second = (first + 1).clip(0, int(self.shape[axis]) - 1)
        a, b = (self._index_select({axis: index}) for index in (first, second))
        return (a + (b - a) * weight).cast(self.dtype)


def _center_positions(x: Any, old: int, new: int) -> Any:
    """The positions of the centers of `new` elements in units of `1 / (2 * new)` old elements,
    relative to the center of the first old one. At the ends, they are outside of the old centers.
    """
    return (2 * _exact_arange(x, 2 * old * new, new) + 1) * old - new


def _exact_arange(x: Any, limit: int, count: int) -> Any:
    """0, 1, ..., count - 1, in an integer dtype that holds `limit`."""
    return x.arange(count, dtype=dtypes.int32 if limit < 2**31 else dtypes.int64)


def _nearest_positions(x: Any, old: int, new: int, mode: str) -> Any:
    """The indices of the nearest old elements, computed in integers, which is exact."""
    position = _exact_arange(x, 2 * old * new, new)
    if mode == "nearest":
        return position * old // new
    return (2 * position + 1) * old // (2 * new)
