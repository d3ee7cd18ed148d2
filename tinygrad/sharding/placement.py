"""Placements: what one mesh dimension does to an array, and the ranges of a sharded axis.

A mesh dimension shards an axis into blocks (an int), shards it into shifted or overlapping ranges
(`Interval`), replicates the array (None), or holds partial values (`Partial`). A `Span` describes
the ranges of all devices along one axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from tinygrad.errors import ArgumentError

MAX_SHOWN_RANGES: Final = 4
"""The number of listed ranges that the text of a layout shows."""

REDUCE_OPS: Final = ("ADD", "MAX", "MUL", "MIN")


class ShardingError(ArgumentError):
    """A layout is invalid or does not fit a shape. The message names the values and the fix."""


@dataclass(frozen=True)
class Partial:
    """The placement of a partial value: the `op`-reduction over the mesh dimension is still
    pending.

    `op` is the name of a reduce op: "ADD", "MAX", "MUL" or "MIN".
    """

    op: str

    def __post_init__(self) -> None:
        if self.op not in REDUCE_OPS:
            raise ShardingError(
                f"Partial: op {self.op!r} is not a reduction; use one of {', '.join(REDUCE_OPS)}"
            )

    def __str__(self) -> str:
        return f"Partial({self.op})"


@dataclass(frozen=True)
class Interval:
    """The placement of shifted or overlapping ranges, such as blocks with halos.

    Along the mesh dimension, device number c holds the elements of tensor axis `axis` that are in
    its range of a `Span`. Elements outside the array are unspecified.
    """

    axis: int
    first: int
    step: int
    size: int
    stride: int = 1
    bounds: tuple[tuple[int, int], ...] = ()

    @classmethod
    def listed(cls, axis: int, bounds: tuple[tuple[int, int], ...]) -> Interval:
        """Ranges without a common step, listed by their bounds."""
        size = max(stop - start for start, stop in bounds)
        return cls(axis, bounds[0][0], 1, size, 1, bounds)

    def __str__(self) -> str:
        if self.bounds:
            shown = [f"{start}:{stop}" for start, stop in self.bounds[:MAX_SHOWN_RANGES]]
            rest = ", ..." if len(self.bounds) > MAX_SHOWN_RANGES else ""
            return f"{self.axis}[{', '.join(shown)}{rest}]"
        scaled = "" if self.stride == 1 else f"/{self.stride}"
        return f"{self.axis}[{self.first}+{self.step}c:+{self.size}]{scaled}"


Placement: TypeAlias = int | Interval | Partial | None
"""Per mesh dimension: the tensor axis that it shards (an int), shifted ranges of one (`Interval`),
replicated (None), or a partial value on each device (`Partial`)."""


class Span(NamedTuple):
    """Ranges of an axis. Range number c holds the elements i with
    `first + c * step <= i * stride < first + c * step + size`.

    Every third element of blocks of 4 is `(0, 4, 4, 3)`: elements 0 and 1 of the result, 2, 3, and
    so on. With `stride` 1, all ranges are equally long. `bounds` lists the start and stop of each
    range instead.
    """

    first: int
    step: int
    size: int
    stride: int = 1
    bounds: tuple[tuple[int, int], ...] = ()

    @property
    def reduced(self) -> Span:
        """The same ranges with the smallest `stride`."""
        factor = math.gcd(self.step, self.stride)
        if factor == 1:
            return self
        first, end = -(-self.first // factor), -(-(self.first + self.size) // factor)
        return Span(first, self.step // factor, end - first, self.stride // factor)

    @property
    def length(self) -> int:
        """The maximum length of a range."""
        span = self.reduced
        return span.size if span.stride == 1 else -(-span.size // span.stride)

    def start(self, number: int) -> int:
        """The first element of a range."""
        if self.bounds:
            return self.bounds[number][0]
        return -(-(self.first + number * self.step) // self.stride)

    def stop(self, number: int) -> int:
        """The end of a range, excluded."""
        if self.bounds:
            return self.bounds[number][1]
        return -(-(self.first + number * self.step + self.size) // self.stride)

    def start_bounds(self, count: int) -> tuple[int, int]:
        """The minimum and the maximum start of `count` ranges."""
        starts = [start for start, _ in self.bounds] or [self.start(0), self.start(count - 1)]
        return min(starts), max(starts)

    @property
    def is_disjoint(self) -> bool:
        """Whether no element is in two ranges."""
        if self.bounds:
            filled = sorted(pair for pair in self.bounds if pair[0] < pair[1])
            return all(stop <= start for (_, stop), (start, _) in pairwise(filled))
        return self.size <= abs(self.step)


def placement_axis(placement: Placement) -> int | None:
    """The tensor axis that a placement shards, or None."""
    return (
        placement.axis
        if isinstance(placement, Interval)
        else (placement if isinstance(placement, int) else None)
    )


def on_axis(placement: Placement, axis: int) -> Placement:
    """A placement that shards an axis, moved to another axis."""
    return replace(placement, axis=axis) if isinstance(placement, Interval) else axis
