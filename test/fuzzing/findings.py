"""Findings: what a check of a program found."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

P = TypeVar("P")


@dataclass(frozen=True)
class Finding(Generic[P]):
    """A mismatch, in one line, and the program that shows it."""

    kind: str
    message: str
    program: P

    def __str__(self) -> str:
        return f"# {self.kind}: {self.message}\n{self.program}"


class Invalid(Exception):
    """The program does not run with what it is compared with, so there is nothing to compare."""


# raises Invalid
Check: TypeAlias = Callable[[P], Finding[P] | None]


def failure(error: Exception, program: P) -> Finding[P]:
    """The finding for a program that raises where it must not."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{where.filename.rpartition('/')[2]}:{where.name}"
    return Finding(f"{type(error).__name__} at {place}", str(error)[:500], program)


def difference_in_kind(found: Any, expected: Any) -> str | None:
    """How two arrays differ in shape or dtype; None if they do not."""
    if found.shape != expected.shape:
        return f"shape {found.shape} instead of {expected.shape}"
    if found.dtype != expected.dtype:
        return f"dtype {found.dtype} instead of {expected.dtype}"
    return None
