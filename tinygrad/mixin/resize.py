"""Images and signals of another size.

In: (..., *sizes). Out: (..., *new sizes), each new element interpolated between the nearest old
ones, one axis after the other.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.mixin.gather import GatherMixin
from tinygrad.sharding import Sharding

_MODES = ("linear", "nearest", "nearest-exact")


class ResizeMixin(GatherMixin):
    """`interpolate`."""

    __slots__ = ()

    def interpolate(
        self, size: tuple[int, ...], mode: str = "linear", align_corners: bool = False
    ) -> Self:
        """The last axes, as many as `size` has, brought to these sizes.

        `mode` is "linear", "nearest" or "nearest-exact". `align_corners`, of linear mode, puts the
        first and last elements where they were. Raises TypeError for a size that is no sequence,
        ValueError for other modes, and sizes that do not fit.

        >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).interpolate((1, 1)).tolist()
        [[2.5]]
        """
        if isinstance(size, int):
            raise TypeError(f"interpolate: size={size} must have one number an axis: ({size},)")
        if not 0 < len(size) <= self.ndim or any(s <= 0 for s in size):
            raise ValueError(f"interpolate: sizes {size} do not fit shape {self.shape}")
        if mode not in _MODES:
            raise ValueError(f"interpolate: mode {mode!r} is none of {', '.join(_MODES)}")
        if align_corners and mode != "linear":
            raise ValueError("interpolate: align_corners is of linear mode")
        x = self
        for i, new in enumerate(size):
            axis = self.ndim - len(size) + i
            parts = 1 if align_corners else x._blocks_resized_alike(axis, new)
            if parts > 1:
                x = x._resized_in_blocks(axis, new, mode, parts)
            else:
                x = x._resized(axis, new, mode, align_corners)
        return x.cast(self.dtype)

    def _resized(self, axis: int, new: int, mode: str, align_corners: bool) -> Self:
        """One axis of another size."""
        old = int(self.shape[axis])
        if mode != "linear":
            return self._picked({axis: _nearest(self, old, new, mode)})
        if align_corners:
            unit = max(1, new - 1)
            return self._between(axis, _steps(self, old * new, new) * (old - 1), unit)
        return self._between(axis, _centers(self, old, new).clip(0, (old - 1) * 2 * new), 2 * new)

    def _blocks_resized_alike(self, axis: int, new: int) -> int:
        """The number of equal blocks that become equal blocks, if an axis is split into those."""
        layout = self.uop.device
        parts = layout.shards(axis) if isinstance(layout, Sharding) else 1
        return parts if self.shape[axis] % parts == 0 and new % parts == 0 else 1

    def _resized_in_blocks(self, axis: int, new: int, mode: str, parts: int) -> Self:
        """As `_resized`, for a split axis: each block is resized, with an element on either side of
        it if need be.
        """
        block, made = int(self.shape[axis]) // parts, new // parts
        x = self.unflatten(axis, (parts, block))
        last = x.ndim - 1
        x = x.permute((*range(axis + 1), *range(axis + 2, x.ndim), axis + 1))
        if mode == "linear":
            place = _centers(self, block, made) + 2 * made
            x = x._with_neighbours(axis)._between(last, place, 2 * made)
        else:
            x = x._resized(last, made, mode, False)
        return x.permute((*range(axis + 1), last, *range(axis + 1, last))).flatten(axis, axis + 1)

    def _with_neighbours(self, axis: int) -> Self:
        """Blocks (..., parts, ..., block) of an axis with the elements before and behind each; at
        the ends, the outermost ones are repeated.
        """
        last = self.ndim - 1
        parts, block = int(self.shape[axis]), int(self.shape[last])
        number = self.arange(parts).reshape(
            tuple(parts if i == axis else 1 for i in range(last + 1))
        )
        first, final = self._along(last, 0, 1), self._along(last, block - 1, block)

        def shifted(x: Self, by: int) -> Self:
            return x._padded(tuple((by, -by) if i == axis else (0, 0) for i in range(x.ndim)))

        before = number.eq(0).where(first, shifted(final, 1))
        after = number.eq(parts - 1).where(final, shifted(first, -1))
        return before.cat(self, after, dim=last)

    def _between(self, axis: int, place: Self, unit: int) -> Self:
        """The values at `place`, in parts of an element along an axis, `unit` of which are one,
        between those before and after.

        Integers, so that the element before is the same in every kernel that asks for it.
        """
        first = place.idiv(unit)
        shape = tuple(place.shape[0] if i == axis else 1 for i in range(self.ndim))
        rest = (place - first * unit).cast(least_upper_dtype(self.dtype, dtypes.float32))
        weight = (rest / unit).reshape(shape)
        second = (first + 1).clip(0, int(self.shape[axis]) - 1)
        a, b = (self._picked({axis: index}) for index in (first, second))
        if not self.is_floating_point():
            a, b = a.cast(dtypes.float32), b.cast(dtypes.float32)
        result = a + (b - a) * weight
        return result if self.is_floating_point() else result.round()


def _centers(x: Any, old: int, new: int) -> Any:
    """Where the centers of `new` elements lie, from the center of the first old one on, in parts of
    an old element, 2 new of which are one; at the ends, outside.
    """
    return (2 * _steps(x, 2 * old * new, new) + 1) * old - new


def _steps(x: Any, limit: int, count: int) -> Any:
    """0, 1, ..., as integers that hold `limit`."""
    return x.arange(count, dtype=dtypes.int32 if limit < 2**31 else dtypes.int64)


def _nearest(x: Any, old: int, new: int, mode: str) -> Any:
    """The position of the nearest old element, computed in integers so that it is exact."""
    place = _steps(x, 2 * old * new, new)
    if mode == "nearest":
        return place * old // new
    return (2 * place + 1) * old // (2 * new)
