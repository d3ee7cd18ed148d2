"""Which captured items run at the same time: they wait for each other only where they must.

In: items in order. Out: groups of them, of which each runs when those before are done. Always true:
an item is in a later group than those before it that touch the same memory, unless both only read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tinygrad.device import Buffer
from tinygrad.execution.realize import BufferCopy, ScheduleItem

# an item moves up by so many groups at most, so that it stays near what was just written
REACH = 8
MAX_MEMBERS = 64


def single_messages(items: Iterable[ScheduleItem]) -> list[ScheduleItem]:
    """The items, each message of a round by itself."""
    found: list[ScheduleItem] = []
    for item in items:
        if isinstance(item, BufferCopy):
            found += [BufferCopy(item.collective, item.number, (pair,)) for pair in item.pairs]
        else:
            found.append(item)
    return found


def groups_of(items: Sequence[ScheduleItem]) -> list[list[ScheduleItem]]:
    """The items in groups, each item as early as it can be."""
    groups: list[list[ScheduleItem]] = []
    memory: dict[Buffer, _Memory] = {}
    for item in items:
        written = set(item.written)
        touched = [(memory.setdefault(b.base or b, _Memory()), b) for b in item.bufs]
        number = max(len(groups) - REACH, 0)
        for place, _ in touched:
            place.forget(number)
        for place, buffer in touched:
            number = max(number, place.free_from(buffer, buffer in written))
        while number < len(groups) and len(groups[number]) >= MAX_MEMBERS:
            number += 1
        if number == len(groups):
            groups.append([])
        groups[number].append(item)
        for place, buffer in touched:
            place.note(buffer, buffer in written, number)
    return groups


@dataclass
class _Uses:
    """The last groups that read and wrote a range of bytes."""

    read: int = -1
    written: int = -1


class _Memory:
    """The ranges of a piece of memory that groups touched lately."""

    def __init__(self) -> None:
        self.ranges: dict[tuple[int, int], _Uses] = {}

    def forget(self, group: int) -> None:
        """What was done before this group is of no interest any more."""
        old = [key for key, uses in self.ranges.items() if max(uses.read, uses.written) < group]
        for key in old:
            del self.ranges[key]

    def free_from(self, buffer: Buffer, is_written: bool) -> int:
        """The first group that may touch a buffer."""
        start, stop = _range(buffer)
        found = 0
        for (first, last), uses in self.ranges.items():
            if first < stop and start < last:
                found = max(found, uses.written + 1, uses.read + 1 if is_written else 0)
        return found

    def note(self, buffer: Buffer, is_written: bool, group: int) -> None:
        """A group touches a buffer."""
        uses = self.ranges.setdefault(_range(buffer), _Uses())
        if is_written:
            uses.written = max(uses.written, group)
        else:
            uses.read = max(uses.read, group)


def _range(buffer: Buffer) -> tuple[int, int]:
    return buffer.offset, buffer.offset + buffer.nbytes
