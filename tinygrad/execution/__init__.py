"""Scheduling and running tensor graphs: what `Tensor.realize` stands on."""

from __future__ import annotations

from tinygrad.execution.realize import ScheduleItem, run_schedule
from tinygrad.execution.schedule import create_schedule
from tinygrad.execution.trace import CommRecord, CommTrace
from tinygrad.uop.ops import UOp

__all__ = ["CommRecord", "CommTrace", "realize_tensors", "run_schedule", "schedule_uops"]


def realize_tensors(nodes: list[UOp]) -> dict[UOp, UOp]:
    """Bring nodes of the tensor graph into memory.

    Returns, for each node that was computed, the BUFFER node (possibly under movement) that holds
    it now.
    """
    schedule = create_schedule(nodes)
    run_schedule(schedule.items)
    return schedule.outputs


def schedule_uops(nodes: list[UOp]) -> tuple[list[ScheduleItem], dict[UOp, UOp], dict[str, int]]:
    """The items that would bring nodes into memory, where each will be, and the bound Variables."""
    schedule = create_schedule(nodes)
    return schedule.items, schedule.outputs, schedule.values
