"""Random draws of a capture: memory that the host fills before each replay.

Input: the recorded draws of a capture, and its items. Output: the items over memory of their own
for keys and counters, and `advance()`. Invariant: a replay draws the numbers that the function
would draw, and values that were drawn in the captured call keep theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from tinygrad.device import Buffer
from tinygrad.dtype import dtypes
from tinygrad.execution.realize import BufferCopy, ScheduleItem
from tinygrad.storage.random_generator import WORDS, DrawRecord, packed_words, random_generator

# for the memory of each draw, the buffer that takes its place, and the first byte in that
_Places: TypeAlias = dict[Buffer, tuple[Buffer, int]]


class ReplayedDraws:
    """The `count` numbers that a captured function draws, and its `items`. The draws on one device
    share a buffer, so that one copy fills it.
    """

    def __init__(self, record: DrawRecord, items: Sequence[ScheduleItem]) -> None:
        self.count = record.count
        used = {b.base or b for item in items for b in item.bufs}
        drawn: dict[str, list[tuple[Buffer, int]]] = {}
        for draw in record.draws:
            for buffer in draw.buffers:
                if buffer in used:
                    drawn.setdefault(buffer.device, []).append((buffer, draw.offset))
        # the buffers to fill, by the offsets of their draws
        self._memory: dict[tuple[int, ...], list[Buffer]] = {}
        places: _Places = {}
        for device, found in drawn.items():
            whole = Buffer(device, WORDS * len(found), dtypes.uint64).allocate()
            self._memory.setdefault(tuple(offset for _, offset in found), []).append(whole)
            for number, (buffer, _) in enumerate(found):
                places[buffer] = (whole, number * buffer.nbytes)
        self.items = [_moved_item(item, places) for item in items]

    @property
    def memory(self) -> set[Buffer]:
        """The memory that is filled before each replay."""
        return {buffer for buffers in self._memory.values() for buffer in buffers}

    def advance(self) -> None:
        """Draw the numbers of a replay."""
        key, start = random_generator.advance(self.count)
        for offsets, buffers in self._memory.items():
            content = packed_words([x for offset in offsets for x in (key, start + offset)])
            for buffer in buffers:
                buffer.copyin(content)


def _moved_item(item: ScheduleItem, places: _Places) -> ScheduleItem:
    if places.keys().isdisjoint(b.base or b for b in item.bufs):
        return item
    if isinstance(item, BufferCopy):
        pairs = tuple((d, _moved(s, places)) for d, s in item.pairs)
        remote = tuple(m._replace(buffer=_moved(m.buffer, places)) for m in item.remote)
        return replace(item, pairs=pairs, remote=remote)
    return replace(item, bufs=tuple(_moved(b, places) for b in item.bufs))


def _moved(buffer: Buffer, places: _Places) -> Buffer:
    whole, start = places.get(buffer.base or buffer, (None, 0))
    if whole is None:
        return buffer
    return whole.view(buffer.size, buffer.dtype, start + buffer.offset)
