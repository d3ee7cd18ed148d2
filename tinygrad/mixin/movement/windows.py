"""Pieces and windows: split, chunk, unfold, and the windows of pooling and convolution.

Input: a tensor, axes and sizes. Output: views of pieces of it, or windows, which overlap and so are
a movement op of their own where no reshape makes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Self

from tinygrad.errors import ArgumentError
from tinygrad.helpers import all_int, flatten
from tinygrad.mixin.movement.reshape import MovementMixin, checked_sizes
from tinygrad.uop.arguments import integer_argument
from tinygrad.uop.ops import WindowArg, sint
from tinygrad.uop.reshard import shard_count


class WindowMixin(MovementMixin):
    """`split`, `chunk` and `unfold`."""

    __slots__ = ()

    def split(self, sizes: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Split axis `dim` into parts of `sizes`, or of one size, where the last may be smaller.

        Raises ValueError if a list of sizes does not add up to the axis.

        >>> [x.tolist() for x in Tensor.arange(5).split(2)]
        [[0, 1], [2, 3], [4]]
        """
        axis = self._with_axes("split")._axis(dim)
        size = self._known_size("split", axis)
        if not isinstance(sizes, Sequence):
            sizes = integer_argument("split", "sizes", sizes)
            if sizes < 0 or (sizes == 0 and size):
                raise ArgumentError(f"split: parts of {sizes} elements do not add up to {size}")
            sizes = [min(sizes, size - i) for i in range(0, max(1, size), max(1, sizes))]
        sizes = [int(part) for part in checked_sizes("split", tuple(sizes))]
        if sum(sizes) != size:
            raise ArgumentError(f"split sizes {list(sizes)} add up to {sum(sizes)}, not to {size}")
        stops = list(itertools.accumulate(sizes))
        return tuple(
            self.shrink(tuple((a, b) if i == axis else None for i in range(self.ndim)))
            for a, b in zip([0, *stops], stops, strict=False)
        )

    def chunk(self, chunks: int, dim: int = 0) -> list[Self]:
        """Split axis `dim` into at most `chunks` parts of equal size; the last may be smaller.

        >>> [x.tolist() for x in Tensor.arange(5).chunk(3)]
        [[0, 1], [2, 3], [4]]
        """
        chunks = integer_argument("chunk", "chunks", chunks)
        if chunks <= 0:
            raise ArgumentError(f"chunks={chunks} must be positive")
        size = self._with_axes("chunk")._known_size("chunk", self._axis(dim))
        return list(self.split(-(-size // chunks) if size else [0] * chunks, dim))

    def unfold(self, dim: int, size: sint, step: int) -> Self:
        """Sliding windows of `size` elements along `dim`, every `step`; they are the new last axis.

        >>> Tensor.arange(5).unfold(0, 3, 2).tolist()
        [[0, 1, 2], [2, 3, 4]]
        """
        axis = self._with_axes("unfold")._axis(dim)
        length = self._known_size("unfold", axis)
        size, step = (
            integer_argument("unfold", name, x) for name, x in (("size", size), ("step", step))
        )
        if not 0 <= int(size) <= length or step <= 0:
            raise ArgumentError(
                f"unfold(size={size}, step={step}): needs 0 <= size <= {length} and step > 0"
            )
        return self._windows((axis,), (size,), (step,), (1,))

    def _windows(
        self,
        axes: tuple[int, ...],
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        dilations: tuple[int, ...],
    ) -> Self:
        """Sliding windows over `axes`, whose sizes become the counts; windows are the last axes."""
        if not all_int(tuple(self.shape[axis] for axis in axes)):
            return self._symbolic_windows(axes, sizes, strides, dilations)
        are_disjoint = all(
            k <= s and (d == 1 or k == 1) for k, s, d in zip(sizes, strides, dilations)
        )
        if are_disjoint and all(map(self._has_whole_strides, axes, strides)):
            return self._disjoint_windows(axes, sizes, strides)
        shape, count = self.shape, self.ndim
        wide = self.reshape((*shape, *(1,) * len(sizes))).expand((*shape, *sizes))
        windows = tuple(
            (axis, count + i, (int(shape[axis]) - d * (k - 1) - 1) // s + 1, s, d)
            for i, (axis, k, s, d) in enumerate(zip(axes, sizes, strides, dilations))
        )
        return self._derive(wide.uop.window(WindowArg(windows)))

    def _has_whole_strides(self, axis: int, stride: int) -> bool:
        """Whether each shard of an axis is a multiple of `stride`, so that a reshape to groups of
        that many elements moves none of them.
        """
        shards = shard_count(self.uop, axis)
        return shards == 1 or int(self.shape[axis]) % (shards * stride) == 0

    def _symbolic_windows(
        self,
        axes: tuple[int, ...],
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        dilations: tuple[int, ...],
    ) -> Self:
        """The windows of axes of symbolic size: of all in their maximum, those within the size."""
        upper = [size if isinstance(size, int) else int(size.vmax) for size in self.shape]
        wide = [upper[i] if i in axes else size for i, size in enumerate(self.shape)]
        padded = self._padded(tuple((0, w - size) for w, size in zip(wide, self.shape)))
        found = padded._windows(axes, sizes, strides, dilations)
        kept = list(found.shape)
        for axis, k, s, d in zip(axes, sizes, strides, dilations):
            kept[axis] = (self.shape[axis] - d * (k - 1) - 1) // s + 1
        return found.shrink_to(tuple(kept))

    def _disjoint_windows(
        self, axes: tuple[int, ...], sizes: tuple[int, ...], strides: tuple[int, ...]
    ) -> Self:
        """Windows that do not overlap, by reshape: axes are split by stride, and cropped."""
        ends: list[sint] = list(self.shape)
        cut: list[tuple[sint, ...]] = [(size,) for size in self.shape]
        kept: list[tuple[sint, ...]] = [(size,) for size in self.shape]
        for axis, k, s in zip(axes, sizes, strides):
            windows = (int(self.shape[axis]) - k) // s + 1
            ends[axis] = windows * s
            cut[axis], kept[axis] = (windows, s), (windows, k)
        pairs = tuple((0, end - size) for end, size in zip(ends, self.shape))
        apart = self._padded(pairs).reshape(tuple(flatten(cut))).shrink_to(tuple(flatten(kept)))
        starts = list(itertools.accumulate((len(sizes) for sizes in cut), initial=0))
        return apart.permute(tuple(starts[:-1]) + tuple(starts[axis] + 1 for axis in axes))
