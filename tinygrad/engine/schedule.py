"""The public path of the items of a schedule, as programs for tinygrad 0.12 import it."""

from tinygrad.execution.realize import ExecItem

__all__ = ["ExecItem"]
