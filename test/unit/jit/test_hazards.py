"""Dependencies of launches by the bytes that they use."""

from __future__ import annotations

from tinygrad.device import Buffer
from tinygrad.dtype import dtypes
from tinygrad.runtime.support.hazards import Hazards


def test_a_launch_waits_for_the_last_writes_and_a_write_for_the_reads_since():
    a, b = (Buffer("NULL", 64, dtypes.uint8) for _ in range(2))
    first, second = a.view(32, dtypes.uint8, 0), a.view(32, dtypes.uint8, 32)
    hazards = Hazards()
    assert hazards.add([], [first]) == []
    assert hazards.add([], [second]) == [], "bytes of their own"
    assert hazards.add([a], [b]) == [0, 1]
    assert hazards.add([first], []) == [0], "two may read at the same time"
    assert hazards.add([], [first]) == [0, 2, 3], "a write waits for readers of the old content"
    assert hazards.add([first], []) == [4], "what a write replaced is not waited for again"
    assert hazards.add([a, b], [a, b]) == [1, 2, 4, 5]
    assert hazards.add([second], [b]) == [6]
