"""Geometry of pooling and convolution windows: padding, strides, dilations and counts.

Input: sizes and window arguments, as users write them. Output: one number or pair for each spatial
axis, checked. Pure arithmetic on ints and symbolic sizes, without tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tinygrad.errors import ArgumentError
from tinygrad.helpers import make_tuple
from tinygrad.uop.arguments import is_integer
from tinygrad.uop.ops import sint
from tinygrad.uop.sint import smax, smin

Sizes: TypeAlias = int | Sequence[int]
Pairs: TypeAlias = tuple[tuple[int, int], ...]


def spatial_pairs(padding: Sizes, count: int) -> Pairs:
    """Padding as (before, after) for each of `count` spatial axes.

    One number applies to all sides, `count` numbers to both sides of each axis, and twice as many
    are (left, right, top, bottom, ...), the last axis first. Raises ValueError for other lengths,
    TypeError for anything but integers.
    """
    padding = _integers(padding, "padding")
    if isinstance(padding, int):
        return ((padding, padding),) * count
    if len(padding) == count:
        return tuple((p, p) for p in padding)
    if len(padding) == 2 * count:
        return tuple(zip(padding[::2], padding[1::2], strict=True))[::-1]
    raise ArgumentError(
        f"padding {tuple(padding)} has {len(padding)} numbers for {count} spatial axes; "
        f"give 1, {count} or {2 * count}"
    )


def spatial_tuple(value: Sizes, count: int, name: str, minimum: int = 1) -> tuple[int, ...]:
    """One number for each of `count` spatial axes. Raises ValueError for other counts and values,
    TypeError for anything but integers.
    """
    result = make_tuple(_integers(value, name), count)
    if len(result) != count or any(x < minimum for x in result):
        raise ArgumentError(f"{name}={value} must be {count} numbers of at least {minimum}, or one")
    return result


def kernel_tuple(value: Sizes) -> tuple[int, ...]:
    """The size of the kernel along each spatial axis; one number is that of two axes."""
    return make_tuple(_integers(value, "kernel_size"), 2)


def _integers(value: Sizes, name: str) -> Sizes:
    """The argument with numpy's integers as Python's."""
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    if not all(map(is_integer, numbers)):
        raise TypeError(f"{name}={value!r} must be an integer, or one for each spatial axis")
    return tuple(map(int, numbers)) if numbers is value else int(numbers[0])


@dataclass(frozen=True)
class PoolWindows:
    """Windows over the last axes: one entry per axis; padding as given, without ceil_mode."""

    sizes: tuple[sint, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: Pairs
    ceil_mode: bool = False

    @property
    def padded_sizes(self) -> tuple[sint, ...]:
        """The sizes of the padded axes."""
        pairs = zip(self.sizes, self.padding, strict=True)
        return tuple(size + before + after for size, (before, after) in pairs)

    @property
    def spans(self) -> tuple[int, ...]:
        """The extent of a window along each axis, from its first to its last element."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def counts(self) -> tuple[sint, ...]:
        """The number of windows along each axis."""
        rest = [p - span for p, span in zip(self.padded_sizes, self.spans, strict=True)]
        if not self.ceil_mode:
            return tuple(r // s + 1 for r, s in zip(rest, self.stride, strict=True))
        found = []
        for r, s, size, (before, _) in zip(
            rest, self.stride, self.sizes, self.padding, strict=True
        ):
            # a window may not start in the padding at the end
            last = (r + s - 1) // s
            starts_before = (size + before - 1) // s
            found.append(smax(last, smin(last, starts_before) + 1))
        return tuple(found)

    @property
    def all_padding(self) -> Pairs:
        """The padding with which every window is complete, in ceil_mode too; of a symbolic size,
        for every value.
        """
        if not self.ceil_mode:
            return self.padding
        result = []
        for (before, after), size, count, stride, span in zip(
            self.padding, self.padded_sizes, self.counts, self.stride, self.spans, strict=True
        ):
            if isinstance(size, int) and isinstance(count, int):
                missing = max(0, stride * (count - 1) + span - size)
            else:
                missing = stride - 1
            result.append((before, after + missing))
        return tuple(result)

    def equal_elements(self, axis: int, with_padding: bool) -> int | None:
        """The number of elements in each window along `axis`; None where it may differ."""
        if not self.ceil_mode and (with_padding or self.padding[axis] == (0, 0)):
            return self.kernel[axis]
        low, high = self.bounds(axis, with_padding)
        count = self.counts[axis]
        if not (isinstance(count, int) and isinstance(high, int)):
            return None
        starts = [o * self.stride[axis] for o in range(count)]
        reach = [k * self.dilation[axis] for k in range(self.kernel[axis])]
        found = {sum(low <= start + k < high for k in reach) for start in starts}
        return found.pop() if len(found) == 1 else None

    def bounds(self, axis: int, with_padding: bool) -> tuple[int, sint]:
        """The range of elements that count, in padded positions."""
        before, size = self.padding[axis][0], self.sizes[axis]
        return (0, self.padded_sizes[axis]) if with_padding else (before, before + size)
