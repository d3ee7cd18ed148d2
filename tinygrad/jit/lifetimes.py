"""Lifetimes of inputs: when captured items last use an input, and when they first write memory.

Input: launches in order, and the inputs of a capture. Output: `Lifetimes`. Invariant: an input
whose memory is first written after its last use may be that memory, as the result of an earlier
replay is.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.device import Buffer
from tinygrad.execution.realize import ScheduleItem
from tinygrad.jit.inputs import Inputs


@dataclass
class Lifetimes:
    """The uses of memory, by the number of the launch.

    `first_write` is by memory that is not an input, `last_use` by the number of the input.
    """

    first_write: dict[Buffer, int]
    last_use: list[int]

    def end_before_write(self, number: int, buffer: Buffer) -> bool:
        """Whether the last use of input `number`, if in `buffer`, is before the first write to
        `buffer`.
        """
        written = self.first_write.get(buffer.base or buffer)
        return written is None or written > self.last_use[number]


def input_lifetimes(launches: list[list[ScheduleItem]], inputs: Inputs) -> Lifetimes:
    """The lifetimes of `inputs` in these launches."""
    numbers = inputs.numbers
    found = Lifetimes({}, [-1] * len(inputs.buffers))
    for position, launch in enumerate(launches):
        for item in launch:
            written = {b.base or b for b in item.written}
            for root in {b.base or b for b in item.bufs}:
                if root in numbers:
                    found.last_use[numbers[root]] = position
                elif root in written:
                    found.first_write.setdefault(root, position)
    return found
