"""The public path of what runs schedules, as programs for tinygrad 0.12 import it."""

from tinygrad.execution.realize import BufferCopy, ExecItem, get_runner, run_schedule
from tinygrad.execution.runner import CompiledRunner

__all__ = ["BufferCopy", "CompiledRunner", "ExecItem", "get_runner", "run_schedule"]
