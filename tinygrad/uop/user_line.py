"""The line of the user's program that runs, and what it calls, for traces and errors.

Input: the stack of the thread. Output: its innermost frame outside of this package.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import NamedTuple, TypeAlias

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class UserLine(NamedTuple):
    """What in the user's program caused a communication."""

    place: str = "?"
    """`file:line`, "?" if it is not known."""
    called: str = ""
    """What the line called, as `conv2d` or the class of a layer."""


Place: TypeAlias = tuple[CodeType, int] | None
"""Code and an instruction of it, from which `line_of` gets a line: finding the line takes as long
as finding the place."""


def find_user_line(frame: FrameType | None = None) -> str:
    """`file:line` of the innermost caller, or of `frame`, outside this package."""
    return line_of(find_user_place(frame or sys._getframe(1)))


def find_user_place(frame: FrameType | None = None) -> Place:
    """The place of the innermost caller, or of `frame`, outside this package."""
    frame = frame or sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


def called_name() -> str:
    """The function or method of this package that the user's program called, as `conv2d`; of a
    layer, its class.
    """
    found = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        name = frame.f_code.co_qualname
        if "<" not in name:
            found = name
        frame = frame.f_back
    owner, _, name = found.rpartition(".")
    return owner if name == "__call__" else name.strip("_")


def line_of(place: Place) -> str:
    """`file:line` of a place."""
    if place is None:
        return "?"
    code, instruction = place
    lines = (x for start, stop, x in code.co_lines() if start <= instruction < stop)
    return f"{code.co_filename}:{next(lines, None) or code.co_firstlineno}"
