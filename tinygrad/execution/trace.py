"""Communication traces: `CommTrace` collects collectives, and `DEBUG=2` prints them as they run.

Input: the rounds of messages that a schedule runs. Output: one record and one line for each
collective, whatever the number of its rounds.
"""

from __future__ import annotations

import contextvars
import linecache
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from tinygrad.settings import DEBUG
from tinygrad.text import aligned, highlighted
from tinygrad.uop.args import CommInfo
from tinygrad.uop.user_line import UserLine

MAX_CODE_CHARACTERS = 48
"""The length to which a table shortens a line of the user's program."""


@dataclass(frozen=True)
class CommRecord:
    """One collective: its kind, its layouts, the bytes that it sent between devices, the user's
    line, the algorithm where there is a choice, and what the line called.
    """

    kind: str
    source: str
    destination: str
    nbytes: int
    line: str
    algorithm: str = ""
    op: str = ""


@dataclass
class CommTrace:
    """Collects the communication of this thread: `with CommTrace() as trace: ...; trace.records`.

    `print(trace)` shows a table of it.

    >>> x = Tensor.arange(4).shard(("CPU", "CPU:1"), axis=0).realize()
    >>> with CommTrace() as trace:
    ...     _ = x.to(("CPU", "CPU:1")).realize()
    >>> trace.kinds()
    {'all_gather': 16}
    """

    records: list[CommRecord] = field(default_factory=list)

    def __enter__(self) -> CommTrace:
        _active.set((*_active.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _active.set(tuple(trace for trace in _active.get() if trace is not self))

    def add(self, record: CommRecord) -> None:
        """Collect a collective, unless it sent nothing."""
        if record.nbytes:
            self.records.append(record)

    @property
    def nbytes(self) -> int:
        """The bytes of all records."""
        return sum(r.nbytes for r in self.records)

    def kinds(self) -> dict[str, int]:
        """The bytes of each kind of collective."""
        totals: dict[str, int] = {}
        for r in self.records:
            totals[r.kind] = totals.get(r.kind, 0) + r.nbytes
        return totals

    def table(self) -> str:
        """The collectives as text, in the order of their first run: a row for all of equal kind,
        layouts and line, with what they are for, their count, their bytes and the code of the line.
        """
        groups: dict[tuple[str, ...], list[int]] = {}
        for r in self.records:
            where = f"{r.source} -> {r.destination}"
            groups.setdefault((r.kind, r.op, where, r.line), []).append(r.nbytes)
        rows = [
            (kind, op, str(len(sizes)), f"{sum(sizes):,}", where, short_line(line), code_of(line))
            for (kind, op, where, line), sizes in groups.items()
        ]
        total = ("total", "", str(len(self.records)), f"{self.nbytes:,}", "", "", "")
        heading = ("kind", "for", "count", "bytes", "from -> to", "line", "")
        return aligned([heading, *rows, total], numbers={2, 3})

    def __str__(self) -> str:
        return self.table()


def short_line(line: str) -> str:
    """`file:line`, relative to the current folder if the file is in it."""
    folder = os.getcwd() + os.sep
    return line.removeprefix(folder)


def _user_line(info: CommInfo) -> UserLine:
    """The line that caused a collective, which is no number once its plan is bound."""
    assert isinstance(info.line, UserLine), "a bound collective has its line"
    return info.line


def code_of(line: str) -> str:
    """The code at `file:line`, shortened; "" if the file cannot be read."""
    path, _, number = line.rpartition(":")
    code = linecache.getline(path, int(number)).strip() if number.isdecimal() else ""
    return code if len(code) <= MAX_CODE_CHARACTERS else f"{code[: MAX_CODE_CHARACTERS - 3]}..."


# the open traces of this thread
_active: contextvars.ContextVar[tuple[CommTrace, ...]] = contextvars.ContextVar(
    "CommTrace", default=()
)
active_traces: Callable[[], tuple[CommTrace, ...]] = _active.get
"""Returns the open traces of this thread."""


@dataclass(eq=False)
class Collective:
    """One collective: the rounds of messages that it takes, and the bytes of the current run."""

    info: CommInfo
    rounds: int = 0
    crossed: int = 0
    carried: int = 0
    elapsed_s: float = 0.0

    def add_round(self) -> int:
        """Add a round, and return its number, from 0."""
        self.rounds += 1
        return self.rounds - 1

    def ran(self, number: int, crossed: int, carried: int, elapsed_s: float | None) -> None:
        """Count a run of round `number`, which sent `crossed` bytes between devices and copied
        `carried` in total. The last round adds a record to every active trace, and prints at
        DEBUG=2.
        """
        if number == 0:
            # a run that an error ended has left its counts
            self.crossed, self.carried, self.elapsed_s = 0, 0, 0.0
        self.crossed += crossed
        self.carried += carried
        self.elapsed_s += elapsed_s or 0.0
        if number == self.rounds - 1:
            self._record(self.crossed)
            if DEBUG >= 2 and elapsed_s is not None:
                print(self._line())

    def replayed(self, crossed: int) -> None:
        """Record a replay of all rounds, which sent `crossed` bytes between devices."""
        self._record(crossed)

    def _record(self, crossed: int) -> None:
        info = self.info
        line = _user_line(info)
        for trace in _active.get():
            trace.add(
                CommRecord(
                    *(info.kind, info.source, info.destination),
                    *(crossed, line.place, info.algorithm),
                    op=line.called,
                )
            )

    def _line(self) -> str:
        """A line of DEBUG=2, in the columns of the lines of kernels."""
        info = self.info
        what = f"{self.carried:,} bytes" + (f" in {self.rounds} rounds" if self.rounds > 1 else "")
        what += f" ({info.algorithm})" if info.algorithm else ""
        rate = f"{self.carried / self.elapsed_s * 1e-9:24.1f} GB/s" if self.elapsed_s else ""
        line = _user_line(info)
        return (
            f"*** {highlighted(f'{info.kind:14s}', 'yellow')}{what:40s} "
            f"{self.elapsed_s * 1e6:10.1f} us {rate} {info.source} -> {info.destination} "
            f"{short_line(line.place)} {line.called}".rstrip()
        )
