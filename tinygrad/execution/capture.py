"""Captures: what runs while `TinyJit` records a function, and what must not happen then.

Input: items as they run. Output: the items and arenas of the active captures of a thread.
Invariant: a captured function does not read values, since Python code that depends on them would
not run again.
"""

from __future__ import annotations

import threading
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from tinygrad.device import Buffer, RemoteBuffer
from tinygrad.dtype import DType, dtypes
from tinygrad.execution.versions import is_unread
from tinygrad.uop.ops import UOp
from tinygrad.uop.user_line import find_user_line


class JitError(RuntimeError):
    """A function that cannot be captured, or a call that a capture cannot serve."""


@dataclass
class Capture:
    """What TinyJit records while it captures a function."""

    items: list[Any] = field(default_factory=list)
    """The `ScheduleItem`s that ran, in order."""
    ranges: dict[Any, dict[str, int]] = field(default_factory=dict)
    """The symbolic ranges that each call checks, with the values of their Variables."""
    arenas: dict[str, Buffer] = field(default_factory=dict)
    """An arena of each device for the temporaries of all plans, which run one after the other."""
    touched: set[RemoteBuffer] = field(default_factory=set)
    """The tokens of the memory that the items of all processes use; none if this runs all items."""
    written: set[RemoteBuffer] = field(default_factory=set)
    """Those of the memory that they write."""
    differentiated: set[Any] = field(default_factory=set)
    """The memory of values through whose histories a gradient went on."""
    has_moved: bool = False
    """Whether content was copied before it was overwritten, other than by an item."""

    _results: dict[tuple[str, int, DType], list[Buffer]] = field(default_factory=dict)

    def result(self, device: str, size: int, dtype: DType, taken: Container[Buffer]) -> Buffer:
        """Memory for a result of a plan: that of an earlier one which nobody can read any more and
        which is not `taken`, if there is one.
        """
        known = self._results.setdefault((device, size, dtype), [])
        for buffer in known:
            if buffer not in taken and is_unread(buffer):
                return buffer
        known.append(Buffer(device, size, dtype))
        return known[-1]

    def arena(self, device: str, nbytes: int) -> Buffer:
        """The arena of a device, of at least `nbytes`."""
        found = self.arenas.get(device)
        if found is None or found.nbytes < nbytes:
            found = self.arenas[device] = Buffer(device, nbytes, dtypes.uint8)
        return found


class _Thread(threading.local):
    def __init__(self) -> None:
        self.captures: list[Capture] = []


_thread = _Thread()


def capturing() -> list[Capture]:
    """The active captures of this thread, innermost last."""
    return _thread.captures


def check_readable(node: UOp) -> None:
    """Raise JitError if a function is being captured: it must not depend on a value read now."""
    if capturing():
        raise JitError(
            f"{find_user_line()}: the value of a tensor, {node.dtype} of shape {node.shape}, is "
            "read inside a function that TinyJit captures, and would be the same in every later "
            "call; return the tensor, or compute with it instead (`where` for `if`)"
        )
