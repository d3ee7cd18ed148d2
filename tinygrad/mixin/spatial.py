"""Where windows lie on the last axes of an array: padding, strides, and how many windows there are.

In: sizes, and the arguments that pooling and convolution share, as users write them. Out: one
number or pair for each spatial axis, checked. Pure arithmetic: nothing here knows tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tinygrad.helpers import ceildiv, make_tuple

Sizes: TypeAlias = int | Sequence[int]
Pairs: TypeAlias = tuple[tuple[int, int], ...]


def spatial_pairs(padding: Sizes, count: int) -> Pairs:
    """Padding as (before, after) of each of `count` spatial axes.

    One number is for all sides, `count` numbers are for both sides of each axis, and twice as many
    are (left, right, top, bottom, ...): the last axis first. Raises ValueError for other lengths,
    TypeError for what are no whole numbers.
    """
    _check_whole(padding, "padding")
    if isinstance(padding, int):
        return ((padding, padding),) * count
    if len(padding) == count:
        return tuple((p, p) for p in padding)
    if len(padding) == 2 * count:
        return tuple(zip(padding[::2], padding[1::2], strict=True))[::-1]
    raise ValueError(
        f"padding {tuple(padding)} has {len(padding)} numbers for {count} spatial axes; "
        f"give 1, {count} or {2 * count}"
    )


def spatial_tuple(value: Sizes, count: int, name: str, least: int = 1) -> tuple[int, ...]:
    """One number for each of `count` spatial axes. Raises ValueError for other counts and sizes,
    TypeError for what are no whole numbers.
    """
    _check_whole(value, name)
    result = make_tuple(value, count)
    if len(result) != count or any(x < least for x in result):
        raise ValueError(f"{name}={value} must be {count} numbers of at least {least}, or one")
    return result


def _check_whole(value: Sizes, name: str) -> None:
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    if not all(isinstance(x, int) for x in numbers):
        raise TypeError(f"{name}={value} must be a whole number, or one for each spatial axis")


@dataclass(frozen=True)
class PoolWindows:
    """How windows lie on the last axes: one entry an axis, padding without what ceil_mode adds."""

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: Pairs
    ceil_mode: bool = False

    @property
    def padded_sizes(self) -> tuple[int, ...]:
        """The sizes of the axes with padding."""
        pairs = zip(self.sizes, self.padding, strict=True)
        return tuple(size + before + after for size, (before, after) in pairs)

    @property
    def spans(self) -> tuple[int, ...]:
        """How far a window reaches along each axis."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of windows along each axis."""
        rest = [p - span for p, span in zip(self.padded_sizes, self.spans, strict=True)]
        if not self.ceil_mode:
            return tuple(r // s + 1 for r, s in zip(rest, self.stride, strict=True))
        found = []
        for r, s, size, (before, _) in zip(
            rest, self.stride, self.sizes, self.padding, strict=True
        ):
            last = ceildiv(r, s)
            # a window that would start behind the elements is left out
            found.append(last if last * s >= size + before else last + 1)
        return tuple(found)

    @property
    def all_padding(self) -> Pairs:
        """The padding that makes every window whole."""
        result = []
        for (before, after), size, count, stride, span in zip(
            self.padding, self.padded_sizes, self.counts, self.stride, self.spans, strict=True
        ):
            result.append((before, after + max(0, stride * (count - 1) + span - size)))
        return tuple(result)

    def elements(self, axis: int, with_padding: bool) -> list[int]:
        """How many elements each window along `axis` holds."""
        low, high = self.bounds(axis, with_padding)
        starts = [o * self.stride[axis] for o in range(self.counts[axis])]
        reach = [k * self.dilation[axis] for k in range(self.kernel[axis])]
        return [sum(low <= start + k < high for k in reach) for start in starts]

    def bounds(self, axis: int, with_padding: bool) -> tuple[int, int]:
        """The first element, and the first behind the last, among padded ones."""
        before, size = self.padding[axis][0], self.sizes[axis]
        return (0, self.padded_sizes[axis]) if with_padding else (before, before + size)
