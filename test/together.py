"""Counters and traces that tests read: those of all ranks together, as of one process.

All ranks of a run (see `test/ranks/plugin.py`) read them at the same places.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import Counter
from typing import Any

from tinygrad import execution, measure, ranks
from tinygrad.execution.trace import CommRecord
from tinygrad.execution.wire import current_wire
from tinygrad.ranks.mpi import MpiWire


class _Totals(type):
    """Sums the counters of the ranks."""

    def __getattr__(cls, name: str) -> Any:
        found = getattr(measure.GlobalCounters, name)
        if callable(found) or ranks.size() == 1:
            return found
        values = ranks.gather(found)
        return Counter(_summed(values)) if isinstance(found, dict) else sum(values)


def _summed(counts: list[dict[str, int]]) -> dict[str, int]:
    names = {name: None for found in counts for name in found}
    return {name: sum(found.get(name, 0) for found in counts) for name in names}


class GlobalCounters(metaclass=_Totals):
    """`tinygrad.GlobalCounters`, of all ranks."""


class CommTrace(execution.CommTrace):
    """`tinygrad.CommTrace`, of all ranks, once the block has ended."""

    def __enter__(self) -> CommTrace:
        self.steps: list[int] = []
        super().__enter__()
        return self

    def add(self, record: CommRecord) -> None:
        """Collect a collective, also if it sends nothing here: it may do so on another rank."""
        wire = current_wire()
        if isinstance(wire, MpiWire):
            self.steps.append(wire.history[-1].number)
            self.records.append(record)
        else:
            super().add(record)

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        if ranks.size() > 1 and exception[0] is None:
            of_ranks = ranks.gather([*zip(self.steps, self.records, strict=True)])
            self.records = [record for record in _merged(of_ranks) if record.nbytes]


def _merged(of_ranks: list[list[tuple[int, CommRecord]]]) -> list[CommRecord]:
    """The records of all ranks. A rank has none of a collective in which it takes no part."""
    totals: dict[Any, CommRecord] = {}
    for records in of_ranks:
        seen: Counter[Any] = Counter()
        for step, record in records:
            equal = step, dataclasses.replace(record, nbytes=0)
            key = (*equal, seen[equal])
            seen[equal] += 1
            before = totals[key].nbytes if key in totals else 0
            totals[key] = dataclasses.replace(record, nbytes=before + record.nbytes)
    # collectives of one step keep the order of the first rank that has them
    return [totals[key] for key in sorted(totals, key=operator.itemgetter(0))]
