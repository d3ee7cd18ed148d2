"""The public path of what runs schedules, as programs for tinygrad 0.12 import it."""

from tinygrad.codegen import get_program
from tinygrad.execution.realize import BufferCopy, ExecItem, get_runner, run_schedule
from tinygrad.execution.runner import CompiledRunner
from tinygrad.renderer import Estimates

__all__ = [
    "BufferCopy",
    "CompiledRunner",
    "Estimates",
    "ExecItem",
    "get_program",
    "get_runner",
    "run_schedule",
]
