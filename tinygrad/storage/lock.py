"""The lock of all changes of tensors: realization and assignment.

Input: functions that change what tensors refer to or hold. Output: the same functions, one at a
time over all threads. Invariant: no thread sees a realization, an assignment or a replay half done.
The lock is reentrant, and its holder waits for devices and other processes only.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

changes = threading.RLock()
"""The lock, for a block of code."""


def exclusive(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which runs while no other thread runs an exclusive function."""

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with changes:
            return function(*args, **kwargs)

    return locked
