"""Images and signals of another size.

In: (..., *sizes). Out: (..., *new sizes), each new element interpolated between the nearest old
ones, one axis after the other.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.dtype import dtypes
from tinygrad.mixin.gather import GatherMixin

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
            if mode == "linear":
                x = x._interpolated(axis, new, align_corners)
            else:
                x = x._picked({axis: _nearest(x, x.shape[axis], new, mode)})
        return x.cast(self.dtype)

    def _interpolated(self, axis: int, new: int, align_corners: bool) -> Self:
        old = int(self.shape[axis])
        place = self.arange(new, dtype=dtypes.float32)
        if align_corners:
            place = place * ((old - 1) / max(1, new - 1))
        else:
            place = ((place + 0.5) * (old / new) - 0.5).clip(0, old - 1)
        below = place.floor()
        shape = tuple(new if i == axis else 1 for i in range(self.ndim))
        weight = (place - below).reshape(shape)
        first = below.cast(dtypes.int32)
        second = (first + 1).clip(0, old - 1)
        a, b = (self._picked({axis: index}) for index in (first, second))
        if not self.is_floating_point():
            a, b = a.cast(dtypes.float32), b.cast(dtypes.float32)
        result = a + (b - a) * weight
        return result if self.is_floating_point() else result.round()


def _nearest(x: Any, old: int, new: int, mode: str) -> Any:
    """The position of the nearest old element, computed in integers so that it is exact."""
    place = x.arange(new)
    if mode == "nearest":
        return place * old // new
    return (2 * place + 1) * old // (2 * new)
