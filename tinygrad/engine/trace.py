"""`CommTrace`: every movement of data between devices, as records."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType

from tinygrad.uop.args import Reason


@dataclass(frozen=True)
class CommRecord:
    """One movement: what kind, between which layouts, the bytes that crossed, and the user's
    line.
    """

    kind: str
    source: str
    destination: str
    nbytes: int
    line: str


@dataclass
class CommTrace:
    """Collects what moves between devices: `with CommTrace() as trace: ...; trace.records`."""

    records: list[CommRecord] = field(default_factory=list)

    def __enter__(self) -> CommTrace:
        _active.append(self)
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _active.remove(self)

    @property
    def nbytes(self) -> int:
        """The bytes of all records."""
        return sum(r.nbytes for r in self.records)

    def kinds(self) -> dict[str, int]:
        """The bytes of each kind of movement."""
        totals: dict[str, int] = {}
        for r in self.records:
            totals[r.kind] = totals.get(r.kind, 0) + r.nbytes
        return totals


_active: list[CommTrace] = []


def record_transfer(reason: Reason, nbytes: int) -> None:
    """Add a movement to every open trace, if a byte crossed devices."""
    if not nbytes:
        return
    for trace in _active:
        trace.records.append(
            CommRecord(reason.kind, reason.source, reason.destination, nbytes, str(reason.line))
        )
