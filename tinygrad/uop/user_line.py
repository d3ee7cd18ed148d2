"""The line of the user's program that caused a communication, for traces and errors."""

from __future__ import annotations

from typing import NamedTuple


class UserLine(NamedTuple):
    """What in the user's program caused a communication."""

    place: str = "?"
    """`file:line`, "?" if it is not known."""
    called: str = ""
    """What the line called, as `conv2d` or the class of a layer."""
