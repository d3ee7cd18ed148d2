"""Random draws of a capture: memory that the host fills before each replay.

Input: the recorded draws of a capture, and its items. Output: the items over memory of their own
for keys and counters, and `advance()`. Invariant: a replay draws the numbers that the function
would draw, and values that were drawn in the captured call keep theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinygrad.device import Buffer
from tinygrad.dtype import dtypes
from tinygrad.execution.realize import BufferCopy, ScheduleItem
from tinygrad.storage.random_generator import WORDS, DrawRecord, packed_words, random_generator


class ReplayedDraws:
    """The draws that captured items read. Those on one device share a buffer, so that one copy
    fills it.
    """

    def __init__(self, record: DrawRecord, items: Sequence[ScheduleItem]) -> None:
        self.count = record.count
        used = {b.base or b for item in items for b in item.bufs}
        drawn: dict[str, list[tuple[Buffer, int]]] = {}
        for draw in record.draws:
            for buffer in draw.buffers:
                if buffer in used:
                    drawn.setdefault(buffer.device, []).append((buffer, draw.offset))
        self._places: dict[Buffer, tuple[Buffer, int]] = {}
        # the buffers to fill, by the offsets of their draws
        self._memory: dict[tuple[int, ...], list[Buffer]] = {}
        for device, found in drawn.items():
            whole = Buffer(device, WORDS * len(found), dtypes.uint64).allocate()
            self._memory.setdefault(tuple(offset for _, offset in found), []).append(whole)
            for number, (buffer, _) in enumerate(found):
                self._places[buffer] = (whole, number * buffer.nbytes)
        self.items = [self._item(item) for item in items]

    def advance(self) -> None:
        """Draw the numbers of a replay."""
        key, start = random_generator.advance(self.count)
        for offsets, buffers in self._memory.items():
            content = packed_words([x for offset in offsets for x in (key, start + offset)])
            for buffer in buffers:
                buffer.copyin(content)

    def _item(self, item: ScheduleItem) -> ScheduleItem:
        if self._places.keys().isdisjoint(b.base or b for b in item.bufs):
            return item
        if isinstance(item, BufferCopy):
            return replace(item, pairs=tuple((d, self._buffer(s)) for d, s in item.pairs))
        return replace(item, bufs=tuple(map(self._buffer, item.bufs)))

    def _buffer(self, buffer: Buffer) -> Buffer:
        whole, offset = self._places.get(buffer.base or buffer, (None, 0))
        if whole is None:
            return buffer
        return whole.view(buffer.size, buffer.dtype, offset + buffer.offset)
