"""Launches: captured items that run at the same time, since none depends on another.

Input: items in order. Output: launches, lists of items, each of which runs after the ones before
it. Invariant: an item is in a later launch than every earlier item that uses the same memory,
unless both only read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tinygrad.device import Buffer
from tinygrad.execution.realize import BufferCopy, ScheduleItem

# an item is hoisted by at most this many launches, so that what it reads is still in cache
MAX_HOIST = 8
MAX_LAUNCH_ITEMS = 64


def split_messages(items: Iterable[ScheduleItem]) -> list[ScheduleItem]:
    """The items, with each message of a round as an item of its own."""
    found: list[ScheduleItem] = []
    for item in items:
        if isinstance(item, BufferCopy):
            found += [BufferCopy(item.collective, item.number, (pair,)) for pair in item.pairs]
        else:
            found.append(item)
    return found


def group_launches(items: Sequence[ScheduleItem]) -> list[list[ScheduleItem]]:
    """The items grouped into launches, each item in the earliest launch that it can run in."""
    launches: list[list[ScheduleItem]] = []
    memory: dict[Buffer, _MemoryUses] = {}
    for item in items:
        written = set(item.written)
        touched = [(memory.setdefault(b.base or b, _MemoryUses()), b) for b in item.bufs]
        number = max(len(launches) - MAX_HOIST, 0)
        for uses, _ in touched:
            uses.forget_before(number)
        for uses, buffer in touched:
            number = max(number, uses.first_free(buffer, buffer in written))
        while number < len(launches) and len(launches[number]) >= MAX_LAUNCH_ITEMS:
            number += 1
        if number == len(launches):
            launches.append([])
        launches[number].append(item)
        for uses, buffer in touched:
            uses.add(buffer, buffer in written, number)
    return launches


@dataclass
class _RangeUses:
    """The last launches that read and wrote a byte range."""

    read: int = -1
    written: int = -1


class _MemoryUses:
    """The byte ranges of one base buffer that recent launches used."""

    def __init__(self) -> None:
        self._ranges: dict[tuple[int, int], _RangeUses] = {}

    def forget_before(self, launch: int) -> None:
        """Drop uses in launches before this one."""
        old = [key for key, uses in self._ranges.items() if max(uses.read, uses.written) < launch]
        for key in old:
            del self._ranges[key]

    def first_free(self, buffer: Buffer, is_written: bool) -> int:
        """The first launch that may use a buffer."""
        start, stop = _byte_range(buffer)
        found = 0
        for (first, last), uses in self._ranges.items():
            if first < stop and start < last:
                found = max(found, uses.written + 1, uses.read + 1 if is_written else 0)
        return found

    def add(self, buffer: Buffer, is_written: bool, launch: int) -> None:
        """A launch uses a buffer."""
        uses = self._ranges.setdefault(_byte_range(buffer), _RangeUses())
        if is_written:
            uses.written = max(uses.written, launch)
        else:
            uses.read = max(uses.read, launch)


def _byte_range(buffer: Buffer) -> tuple[int, int]:
    return buffer.offset, buffer.offset + buffer.nbytes
