"""From tensor graphs to results: plans are bound to buffers and run.

schedule.py            takes a plan from the cache or the compiler
binding.py             binds its entries to buffers
temporaries.py         memory of a plan's temporaries: an arena a device
memory_planner.py      places buffers with disjoint lifetimes in an arena
runner.py              a compiled kernel on its devices
programs.py            the programs of kernels, from the disk cache or code generation
tuning.py              times kernels to choose their mapping to threads
realize.py             compiles kernels and runs items
capture.py             the items that run while a function is captured
trace.py               records communication
wire.py                messages between processes
buffers.py             the memory of BUFFER nodes
versions.py            the BUFFER nodes of the content of some memory
interrupts.py          Ctrl-C while memory is overwritten
"""

from __future__ import annotations

from tinygrad.execution.realize import run_schedule
from tinygrad.execution.schedule import Schedule, create_schedule
from tinygrad.execution.trace import CommRecord, CommTrace

__all__ = ["CommRecord", "CommTrace", "Schedule", "create_schedule", "run_schedule"]
