"""Interpolation: images and signals resampled to other sizes.

Input: (..., *sizes). Output: (..., *new sizes), each new element interpolated between its nearest
old ones, one axis after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from tinygrad.dtype import DType, dtypes, least_upper_dtype
from tinygrad.errors import ArgumentError
from tinygrad.gradient import with_gradient
from tinygrad.mixin.indexing.gather import GatherMixin
from tinygrad.mixin.precision import in_float32
from tinygrad.mixin.sharding.known_rows import MAX_KNOWN_ROWS, gather_known
from tinygrad.uop.arguments import integer_argument
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import shard_count
from tinygrad.uop.sint import index_dtype

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
            raise ArgumentError(f"interpolate: mode {mode!r} is not one of {', '.join(_MODES)}")
        if align_corners and mode != "linear":
            raise ArgumentError("interpolate: align_corners needs mode='linear'")
        rounds = mode == "linear" and not self.is_floating_point()
        x = self
        if rounds:
            x = self.cast(dtypes.float32 if self.element_size() < 4 else dtypes.float64)
        for i, new in enumerate(size):
            axis = self.ndim - len(size) + i
            x = x._resize_axis(axis, new, mode, align_corners)
        return x.round().cast(self.dtype) if rounds else x

    def _resize_axis(self, axis: int, new: int, mode: str, align_corners: bool) -> Self:
        """Resample one axis."""
        old = int(self.shape[axis])
        if mode == "nearest":
            return self._select(axis, _Positions(new, old, 0, new))
        if mode == "nearest-exact":
            return self._select(axis, _Positions(new, 2 * old, old, 2 * new))
        if align_corners:
            return self._interpolate_linear(axis, _Positions(new, old - 1, 0, max(1, new - 1)))
        centers = _Positions(new, 2 * old, old - new, 2 * new, 0, (old - 1) * 2 * new)
        return self._interpolate_linear(axis, centers)

    def _interpolate_linear(self, axis: int, positions: _Positions) -> Self:
        """Linear interpolation along `axis` between the elements around each position."""
        around = (positions, positions.next_to(int(self.shape[axis]) - 1))
        wide = least_upper_dtype(self.dtype, dtypes.float32)
        weight = positions.fraction(self, wide)
        found = self._gather_known(axis, around)
        if found is not None:
            return found._between(weight)._move_first_axis(axis)
        shape = tuple(positions.count if i == axis else 1 for i in range(self.ndim))
        a, b = (self._index_select({axis: p.index(self)}) for p in around)
        result: Self = (a + (b - a) * weight.reshape(shape)).cast(self.dtype)
        return result

    def _between(self, weight: Self) -> Self:
        """Elements (n, ...) between pairs (n, 2, ...), by the weight (n,) of the second. The
        gradient is a product of all pairs, so that it is exchanged before it is multiplied.
        """
        count, _, *rest = self.shape
        weight = weight.reshape((count, *(1 for _ in rest)))
        a, b = (self._slice_axis(1, i, i + 1).squeeze(1) for i in range(2))
        found: Self = (a + (b - a) * weight).cast(self.dtype)
        weights = (1 - weight).unsqueeze(1).cat(weight.unsqueeze(1), dim=1).cast(self.dtype)

        def rule(g: UOp, node: UOp, source: UOp) -> tuple[UOp]:
            both = g.reshape((count, 1, *rest)).expand(source.shape)
            return (both * weights.uop.expand(source.shape),)

        with_gradient(found.uop, rule, self.uop)
        return found

    def _select(self, axis: int, positions: _Positions) -> Self:
        """The element of `axis` at or before each position."""
        found = self._gather_known(axis, (positions,))
        if found is not None:
            return found.squeeze(1)._move_first_axis(axis)
        return self._index_select({axis: positions.index(self)})

    def _move_first_axis(self, axis: int) -> Self:
        """The first axis as axis number `axis`."""
        return self.permute((*range(1, axis + 1), 0, *range(axis + 1, self.ndim)))

    def _gather_known(self, axis: int, positions: tuple[_Positions, ...]) -> Self | None:
        """The elements of a sharded axis at or before positions, in axes (n, len(positions), ...);
        None where another way sends less.
        """
        if shard_count(self.uop, axis) == 1 or positions[0].count > MAX_KNOWN_ROWS:
            return None
        first, *others = (p.index(self) for p in positions)
        index = first.stack(others, dim=1)
        numbers = list(zip(*(p.numbers() for p in positions), strict=True))
        node = gather_known(self.uop, axis, index.uop, numbers)
        return None if node is None else self._derive(node)


@dataclass(frozen=True)
class _Positions:
    """Positions `i * step + first`, from `low` to `high`, of `count` numbers i, in units of
    `1 / unit` elements. They are integers, so that every kernel rounds them to the same element.
    """

    count: int
    step: int
    first: int
    unit: int
    low: int = 0
    high: int | None = None

    def next_to(self, last: int) -> _Positions:
        """The positions one element further, up to element `last`."""
        low, high = self.low + self.unit, self.high
        limit = last * self.unit
        high = limit if high is None else min(high + self.unit, limit)
        return replace(self, first=self.first + self.unit, low=min(low, limit), high=high)

    def index(self, x: Any) -> Any:
        """The number of the element at or before each position, as a tensor of the kind of `x`."""
        return self._tensor(x).idiv(self.unit)

    def fraction(self, x: Any, dtype: DType) -> Any:
        """The distance of each position from the element before it."""
        position = self._tensor(x)
        return (position - position.idiv(self.unit) * self.unit).cast(dtype) / self.unit

    def _tensor(self, x: Any) -> Any:
        """The positions, in an integer dtype that holds them."""
        limit = self.count * self.step + abs(self.first)
        position = x.arange(self.count, dtype=index_dtype(limit))
        position = position * self.step + self.first
        return position if self.high is None else position.clip(self.low, self.high)

    def numbers(self) -> list[int]:
        """The number of the element at or before each position."""
        positions = (i * self.step + self.first for i in range(self.count))
        high = self.count * self.step + abs(self.first) if self.high is None else self.high
        return [min(max(p, self.low), high) // self.unit for p in positions]
