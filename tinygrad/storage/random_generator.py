"""The random number generator: a key, and a position in the sequence of numbers under that key.

Input: how many numbers a tensor needs. Output: the counter of its first number and the key, as a
graph. Number `i` is Threefry-2x32 of counter `i` under a key derived from the seed (Salmon et al.,
2011). Invariant: values depend on the seed and on the order of draws, not on devices or layouts.

Key and position are on the host. Each draw has a BUFFER of its own that holds both as they were,
and that nothing writes: a drawn number is a pure function of it, whenever it is computed. Draws of
one shape are equal but for that BUFFER, so they share their kernels. A captured function records
its draws, and its replays fill other memory with the key and the positions of that time.
"""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tinygrad.device import Buffer, Device
from tinygrad.dtype import dtypes
from tinygrad.errors import ArgumentError
from tinygrad.execution.buffers import bind_buffers
from tinygrad.sharding import Sharding
from tinygrad.uop.device_value import TensorDevice
from tinygrad.uop.ops import UOp

WORDS = 2
"""The uint64 words of a draw: the key, and the counter of its first number."""


MAX_NUMBERS = 1 << 64
"""The numbers under one key: those that its counters tell apart."""


@dataclass(frozen=True)
class Draw:
    """One draw of a recording: its memory on each device, and the numbers drawn before it."""

    buffers: tuple[Buffer, ...]
    offset: int


@dataclass
class DrawRecord:
    """The draws of one thread during a block: `count` numbers; `is_seeded` if it set the seed."""

    draws: list[Draw] = field(default_factory=list)
    count: int = 0
    is_seeded: bool = False


class _Records(threading.local):
    def __init__(self) -> None:
        self.active: list[DrawRecord] = []


class RandomGenerator:
    """The key and the position, which all devices and threads share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records = _Records()
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Restart the sequence under the key of `seed`. Numbers drawn before keep their values."""
        digest = hashlib.sha256(str(seed).encode()).digest()
        with self._lock:
            self._key, self._position = int.from_bytes(digest[:8], "little"), 0
        for record in self._records.active:
            record.is_seeded = True

    def advance(self, count: int) -> tuple[int, int]:
        """Take the next `count` numbers: the key, and the counter of the first.

        Raises ValueError past the end of the sequence.
        """
        with self._lock:
            start = self._position
            if start + count > MAX_NUMBERS:
                raise ArgumentError(
                    f"there are no {count} random numbers after the first {start} of a seed; draw "
                    "fewer"
                )
            self._position += count
            return self._key, start

    def draw(self, device: TensorDevice, count: int) -> tuple[UOp, UOp]:
        """Draw `count` numbers on `device`: the counter of the first and the key, of shape (1,).

        They are on the default device if `device` runs no kernels.
        """
        if isinstance(device, Sharding):
            device = device.replicated()
        elif not Device[device].runs_kernels:
            device = Device.DEFAULT
        names = device.devices if isinstance(device, Sharding) else (device,)
        content = packed_words(self.advance(count))
        parts = tuple([Buffer.from_memoryview(d, dtypes.uint64, content) for d in names])
        for record in self._records.active:
            record.draws.append(Draw(parts, record.count))
            record.count += count
        node = bind_buffers(UOp.new_buffer(device, (WORDS,), dtypes.uint64), parts)
        return node.shrink(((1, 2),)), node.shrink(((0, 1),))

    @contextmanager
    def record(self) -> Iterator[DrawRecord]:
        """Record the draws of this thread in this block."""
        record = DrawRecord()
        self._records.active.append(record)
        try:
            yield record
        finally:
            self._records.active.remove(record)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Restore the key and the position after this block."""
        with self._lock:
            before = self._key, self._position
        try:
            yield
        finally:
            with self._lock:
                self._key, self._position = before


random_generator = RandomGenerator()


def packed_words(words: Sequence[int]) -> memoryview:
    """Keys and counters as the bytes of uint64 elements."""
    return memoryview(array("Q", words))
