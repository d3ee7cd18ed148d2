"""Which of some launches must wait for which, by the bytes that they read and write."""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.device import Buffer


@dataclass(frozen=True)
class _Use:
    start: int
    stop: int
    number: int
    is_write: bool


class Hazards:
    """The dependencies of launches that are added in order."""

    def __init__(self) -> None:
        self._uses: dict[Buffer, list[_Use]] = {}
        self._count = 0

    def add(self, read: list[Buffer], written: list[Buffer]) -> list[int]:
        """Adds a launch. Returns the numbers of those that it must wait for, counted from 0."""
        number, self._count = self._count, self._count + 1
        found: set[int] = set()
        for is_write, buffers in ((False, read), (True, written)):
            for buffer in buffers:
                uses = self._uses.setdefault(buffer.base or buffer, [])
                start, stop = buffer.offset, buffer.offset + buffer.nbytes
                overlapping = [use for use in uses if use.start < stop and start < use.stop]
                found.update(use.number for use in overlapping if is_write or use.is_write)
                if is_write:
                    # who waits for this write waits for all that it waited for
                    covered = {
                        use for use in overlapping if start <= use.start and use.stop <= stop
                    }
                    uses[:] = [use for use in uses if use not in covered]
                uses.append(_Use(start, stop, number, is_write))
        return sorted(found - {number})
