"""The public paths of scheduling and running, as programs for tinygrad 0.12 import them."""

from __future__ import annotations

from tinygrad.execution import CommRecord, CommTrace, create_schedule, run_schedule
from tinygrad.execution.realize import ScheduleItem
from tinygrad.uop.ops import UOp

__all__ = ["CommRecord", "CommTrace", "run_schedule", "schedule_uops"]


def schedule_uops(nodes: list[UOp]) -> tuple[list[ScheduleItem], dict[UOp, UOp], dict[str, int]]:
    """The items that would materialise nodes, the BUFFER of each, and the bound Variables."""
    schedule = create_schedule(nodes)
    return schedule.items, schedule.outputs, schedule.values
