"""Whether tensors require gradients: the marks of tensors, and blocks that compute none.

Input: `requires_grad` as users and optimizers set it. Output: the state of a tensor, and
`gradients_disabled` for the results of operations. Invariant: the state of a result is that of its
operands; in a block without gradients, a result is detached. Blocks belong to a thread.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import TypeAlias

from tinygrad.fast_enum import Enum, auto


class Leaf:
    """The state of a tensor whose `requires_grad` was set to True: `since` is the number of the
    first tensor that was made afterwards.
    """

    __slots__ = ("since",)

    def __init__(self, since: int) -> None:
        self.since = since


class Derived(Enum):
    """States of results that require a gradient, other than True."""

    ASSIGNED = auto()
    """A plain tensor that a value that requires a gradient was assigned to."""
    DIFFERENTIATED = auto()
    """A value that `backward()` went through: its history is not kept once it is stored."""


GradState: TypeAlias = bool | Leaf | Derived | None
"""True for a result that requires a gradient; False for what never does; None leaves it to an
optimizer. Truth is whether a gradient is required."""

_depth: ContextVar[int] = ContextVar("no_grad_depth", default=0)
_lock = threading.Lock()


class OpenBlocks:
    """The number of open blocks in all threads: while it is 0, an operation asks for no more."""

    def __init__(self) -> None:
        self.count = 0


open_blocks = OpenBlocks()


class Marks:
    """How often the state of a tensor was set: while that stays, so do all states."""

    def __init__(self) -> None:
        self.changes = 0


marks = Marks()


def enter_no_grad() -> None:
    """Begin a block whose results require no gradient."""
    _depth.set(_depth.get() + 1)
    with _lock:
        open_blocks.count += 1


def exit_no_grad() -> None:
    """End a block whose results require no gradient."""
    _depth.set(_depth.get() - 1)
    with _lock:
        open_blocks.count -= 1


def gradients_disabled() -> bool:
    """Whether this thread is in a block whose results require no gradient."""
    return open_blocks.count > 0 and _depth.get() > 0
