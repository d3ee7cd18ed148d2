"""Lifetimes of inputs: which inputs a replay may overwrite, so that they need not be copied.

The argument of a call may be the result of an earlier replay, in memory that this replay writes. It
need not be copied if its last use is before the first write. Input: launches in order, and the
inputs of a capture. Output: `Lifetimes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.device import Buffer
from tinygrad.execution.realize import ScheduleItem
from tinygrad.jit.inputs import Inputs


@dataclass
class Lifetimes:
    """The launch that first writes each buffer other than inputs, and that last uses each input."""

    first_write: dict[Buffer, int]
    last_use: list[int]

    def end_before_write(self, number: int, buffer: Buffer) -> bool:
        """Whether input `number` may be in `buffer`, as its last use precedes all writes to it."""
        written = self.first_write.get(buffer.base or buffer)
        return written is None or written > self.last_use[number]


def input_lifetimes(launches: list[list[ScheduleItem]], inputs: Inputs) -> Lifetimes:
    """The lifetimes of `inputs` in these launches."""
    numbers = inputs.numbers
    found = Lifetimes({}, [-1] * len(inputs.buffers))
    items = [(position, item) for position, launch in enumerate(launches) for item in launch]
    for position, item in items:
        written = {b.base or b for b in item.written}
        for root in {b.base or b for b in item.bufs}:
            if root in numbers:
                found.last_use[numbers[root]] = position
            elif root in written:
                found.first_write.setdefault(root, position)
    return found
