"""Which rows of a table the devices read, for an index whose numbers are known.

Input: the numbers of an index, and the size of the sharded axis that it selects from. Output: for
each device, the range of the table that its block of the result reads, and the range of the result
that reads its block of the table. Invariant: with these ranges, a gather and its gradient need no
elements of other devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from tinygrad.caches import cached_function

Bounds: TypeAlias = tuple[tuple[int, int], ...]

MAX_LISTED_RANGES = 64
"""The number of shards whose ranges are listed one by one."""


class RowRanges(NamedTuple):
    """For each device, a range of the table that contains what its block of the result reads
    (`read`), and a range of the result that contains what reads its block of the table (`readers`).
    """

    read: Bounds
    readers: Bounds


@cached_function(1024)
def row_ranges(index: tuple[tuple[int, int], ...], rows: int, count: int) -> RowRanges | None:
    """The ranges of `count` shards of a table of `rows` rows, for an index with these lowest and
    highest numbers along its first axis. None for too many shards.
    """
    if count > MAX_LISTED_RANGES:
        return None
    block, held = -(-len(index) // count), -(-rows // count)
    parts = (index[c * block : (c + 1) * block] for c in range(count))
    read = tuple(_hull([(low, high + 1) for low, high in part]) for part in parts)
    readers: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for number, (low, high) in enumerate(index):
        for holder in range(low // held, high // held + 1):
            readers[holder].append((number, number + 1))
    return RowRanges(read, tuple(map(_hull, readers)))


def is_monotone(index: Bounds) -> bool:
    """Whether an index of one axis, as bounds, never decreases, or never increases: then each block
    of the table holds the rows of one range of the index.
    """
    if any(low != high for low, high in index):
        return False
    pairs = list(pairwise(index))
    return all(a <= b for a, b in pairs) or all(a >= b for a, b in pairs)


def _hull(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    if not ranges:
        return 0, 0
    return min(start for start, _ in ranges), max(stop for _, stop in ranges)
