"""Programs for tests of captures: each is run with plain functions, and with captured ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad import Tensor, TinyJit
from tinygrad.settings import Context

CALLS = 5
"""Calls of a function: one plain, one captured, and replays."""
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What a program does with its functions: nothing, or capture them."""
Program = Callable[[Wrap], list[Any]]
"""Wraps functions and calls them; returns what came of it, as numbers."""


def numbers(*values: float) -> Tensor:
    """A tensor in memory."""
    return Tensor([float(x) for x in values]).realize()


class Box:
    """Attributes."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


def assert_replays_equal_calls(program: Program) -> None:
    """A program yields the same with captured functions as with plain ones, also if verified."""
    expected = program(lambda function: function)
    assert program(TinyJit) == expected
    with Context(JIT_VERIFY=1):
        assert program(TinyJit) == expected
