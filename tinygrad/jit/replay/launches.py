"""Launches: groups of captured items that run at the same time.

Input: items in order. Output: launches, lists of items that run one list after the other.
Invariants: an item is in a later launch than every earlier item that uses the same memory, unless
both only read it. Messages to and from other processes start in order, and an item that uses their
memory is in a later launch than all earlier messages; so no two processes wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tinygrad.device import Buffer
from tinygrad.execution.realize import BufferCopy, ScheduleItem

# an item is hoisted by at most this many launches, so that what it reads is still in cache
MAX_HOIST = 8
MAX_LAUNCH_ITEMS = 64
# what reads received memory runs this many launches later where other items are ready before
MESSAGE_LAUNCHES = 2


def split_messages(items: Iterable[ScheduleItem]) -> list[ScheduleItem]:
    """The items, with each local message of a round as its own item. Messages with an end in other
    processes stay together: one item for those received, one for those sent.
    """
    found: list[ScheduleItem] = []
    for item in items:
        if not isinstance(item, BufferCopy) or item.reduction is not None:
            found.append(item)
            continue
        found += [BufferCopy(item.collective, item.number, (pair,)) for pair in item.pairs]
        received = tuple(m for m in item.remote if not m.is_sent)
        sent = tuple(m for m in item.remote if m.is_sent)
        halves = [half for half in (received, sent) if half]
        found += [BufferCopy(item.collective, item.number, (), half) for half in halves]
    return found


def is_remote(item: ScheduleItem) -> bool:
    """Whether an item is messages to or from other processes."""
    return isinstance(item, BufferCopy) and bool(item.remote)


def group_launches(items: Sequence[ScheduleItem]) -> list[list[ScheduleItem]]:
    """The items grouped into launches, each item in the earliest launch that it can run in."""
    grouping, round_ = _Grouping(), list[BufferCopy]()
    for item in items:
        if isinstance(item, BufferCopy) and item.remote:
            if round_ and not _are_one_round(round_[0], item):
                grouping.add_round(round_)
                round_ = []
            round_.append(item)
            continue
        grouping.add_round(round_)
        round_ = []
        grouping.use(item, grouping.put(item))
    grouping.add_round(round_)
    return [launch for launch in grouping.launches if launch]


def _are_one_round(one: BufferCopy, other: BufferCopy) -> bool:
    return one.collective is other.collective and one.number == other.number


class _Grouping:
    """The launches so far, and the uses of memory in them."""

    def __init__(self) -> None:
        self.launches: list[list[ScheduleItem]] = []
        self._memory: dict[Buffer, _MemoryUses] = {}
        # the launches of the last messages that were received and sent
        self._last = {False: 0, True: 0}

    def put(self, item: ScheduleItem, first: int = 0) -> int:
        """Add an item to the earliest launch that it can run in, from `first`; returns the number
        of that.
        """
        written = set(item.written)
        touched = self._touched(item)
        number = max(len(self.launches) - MAX_HOIST, 0)
        for uses, _ in touched:
            uses.forget_before(number)
        number = max(number, first)
        for uses, buffer in touched:
            number = max(number, uses.first_free(buffer, buffer in written))
        while number < len(self.launches) and len(self.launches[number]) >= MAX_LAUNCH_ITEMS:
            number += 1
        while number >= len(self.launches):
            self.launches.append([])
        self.launches[number].append(item)
        return number

    def use(self, item: ScheduleItem, number: int) -> None:
        """An item uses its memory until this launch."""
        written = set(item.written)
        for uses, buffer in self._touched(item):
            uses.add(buffer, buffer in written, number)

    def add_round(self, halves: Sequence[BufferCopy]) -> None:
        """Add the messages of a round: what is received, and what is sent."""
        for half in halves:
            is_sent = half.remote[0].is_sent
            self._last[is_sent] = self.put(half, self._last[is_sent])
        for half in halves:
            delay = 0 if half.remote[0].is_sent else MESSAGE_LAUNCHES
            self.use(half, max(self._last.values()) + delay)

    def _touched(self, item: ScheduleItem) -> list[tuple[_MemoryUses, Buffer]]:
        return [(self._memory.setdefault(b.base or b, _MemoryUses()), b) for b in item.bufs]


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
