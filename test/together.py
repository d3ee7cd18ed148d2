"""Counters and traces that tests read: those of all ranks together, as of one process.

All ranks of a run (see `test/ranks/plugin.py`) read them at the same places.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from tinygrad import execution, measure, ranks
from tinygrad.execution.trace import CommRecord


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

    def add(self, record: CommRecord) -> None:
        # one that sends nothing here may send something on another rank
        self.records.append(record)

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        if exception[0] is None:
            of_ranks = ranks.gather(self.records)
            totals = [sum(r.nbytes for r in records) for records in zip(*of_ranks, strict=True)]
            self.records = [
                dataclasses.replace(record, nbytes=total)
                for record, total in zip(self.records, totals, strict=True)
                if total
            ]
