"""The memory planner: places buffers with disjoint lifetimes in one arena.

Input: the lifetime and size of each buffer. Output: an offset for each and the size of the arena.
Invariant: buffers with overlapping lifetimes do not overlap in memory, offsets are multiples of
`ALIGNMENT`, and the arena is never larger than all buffers together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tinygrad.helpers import round_up

if TYPE_CHECKING:
    import numpy

    Integers = numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.int64]]

ALIGNMENT = 64


@dataclass(frozen=True)
class Lifetime:
    """A buffer of `nbytes` in use from step `first` to step `last`, both included."""

    first: int
    last: int
    nbytes: int


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offsets, in the order of the lifetimes, and the size of the arena in bytes."""

    offsets: tuple[int, ...]
    total: int


class _Placed:
    """The buffers placed so far, sorted by offset, after an empty one that is always in use."""

    def __init__(self, count: int, steps: int) -> None:
        import numpy as np

        # columns: first step, last step, begin, end
        self.table: Integers = np.zeros((4, count + 1), np.int64)
        self.table[1] = steps
        self.count = 1

    def place(self, first: int, last: int, nbytes: int) -> int:
        """Takes the smallest gap that is large enough, else the end; returns the offset."""
        table, count = self.table, self.count
        firsts, lasts, begins, ends = table[:, :count]
        alive = (firsts <= last) & (lasts >= first)
        offset = _smallest_gap(begins[alive], ends[alive], nbytes)
        index = int(begins.searchsorted(offset, "right"))
        table[:, index + 1 : count + 1] = table[:, index:count].copy()
        table[:, index] = (first, last, offset, offset + nbytes)
        self.count += 1
        return offset


def plan_memory(lifetimes: Sequence[Lifetime]) -> MemoryPlan:
    """Places each buffer, the largest first, in the smallest gap among those alive with it.

    Largest first with best fit is the "greedy by size" of Pisarchyk and Lee, Efficient Memory
    Management for Deep Neural Net Inference (2020). Of equal sizes the longest-lived is first, so
    that the short-lived ones of all layers share the gaps above those that stay. Raises
    ValueError for a lifetime that ends before it begins.
    """
    for lifetime in lifetimes:
        if lifetime.last < lifetime.first or lifetime.nbytes < 0:
            raise ValueError(f"{lifetime} ends before it begins, or has a negative size")
    offsets = [0] * len(lifetimes)
    placed = _Placed(len(lifetimes), max((x.last for x in lifetimes), default=0))
    total = 0

    def largest_longest_first(index: int) -> tuple[int, int]:
        lifetime = lifetimes[index]
        return -lifetime.nbytes, lifetime.first - lifetime.last

    for index in sorted(range(len(lifetimes)), key=largest_longest_first):
        lifetime = lifetimes[index]
        nbytes = round_up(lifetime.nbytes, ALIGNMENT)
        if nbytes:
            offsets[index] = placed.place(lifetime.first, lifetime.last, nbytes)
            total = max(total, offsets[index] + nbytes)
    return MemoryPlan(tuple(offsets), total)


def _smallest_gap(begins: Integers, ends: Integers, nbytes: int) -> int:
    """Where the smallest gap of at least `nbytes` starts, between intervals sorted by `begins`, of
    which the first is empty and begins at 0.
    """
    import numpy as np

    # how far the intervals up to each of them reach
    reached = np.maximum.accumulate(ends)
    gaps = begins[1:] - reached[:-1]
    fitting = (gaps >= nbytes).nonzero()[0]
    if not len(fitting):
        return int(reached[-1])
    return int(reached[fitting[gaps[fitting].argmin()]])
