"""From tensor graphs to results: plans are bound to buffers and run.

schedule.py            takes a plan from the cache or the compiler
binding.py             binds its entries to buffers
temporaries.py         memory of a plan's temporaries: an arena a device
memory_planner.py      places buffers with disjoint lifetimes in an arena
runner.py              a compiled kernel on its devices
tuning.py              times kernels to choose their mapping to threads
realize.py             compiles kernels and runs items
capture.py             the items that run while a function is captured
trace.py               records communication
wire.py                messages between processes
buffers.py             the memory of BUFFER nodes
"""

from __future__ import annotations

from collections.abc import Callable

from tinygrad.execution.realize import ScheduleItem, run_schedule
from tinygrad.execution.schedule import create_schedule
from tinygrad.execution.trace import CommRecord, CommTrace
from tinygrad.uop.ops import UOp

__all__ = ["CommRecord", "CommTrace", "realize_tensors", "run_schedule", "schedule_uops"]


def realize_tensors(nodes: list[UOp], keep: Callable[[dict[UOp, UOp]], None]) -> None:
    """Materialise nodes of the tensor graph. `keep` is given, for each node that was computed, the
    BUFFER node, possibly under movement, that holds it; also if an item fails or is interrupted,
    so that no assignment runs a second time.
    """
    schedule = create_schedule(nodes)
    completed: list[ScheduleItem] = []
    try:
        run_schedule(schedule.items, completed)
    except BaseException:
        keep(schedule.outputs_of(completed))
        raise
    keep(schedule.outputs)


def schedule_uops(nodes: list[UOp]) -> tuple[list[ScheduleItem], dict[UOp, UOp], dict[str, int]]:
    """The items that would materialise nodes, the BUFFER of each, and the bound Variables."""
    schedule = create_schedule(nodes)
    return schedule.items, schedule.outputs, schedule.values
