"""Minimizes a finding: simpler programs, as long as one shows the same kind of finding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

from test.fuzzing.findings import Check, Finding, Invalid

P = TypeVar("P")

# simpler programs, those that lack most first
Candidates: TypeAlias = Callable[[P], Iterator[P]]


def shrink(
    finding: Finding[P], check: Check[P], candidates: Candidates[P], limit_s: float = 30
) -> Finding[P]:
    """The smallest program found that shows a finding of the same kind, as a finding."""
    end = time.monotonic() + limit_s
    smaller: Finding[P] | None = finding
    while smaller is not None:
        finding = smaller
        smaller = next(_still_wrong(finding, check, candidates, end), None)
    return finding


def _still_wrong(
    finding: Finding[P], check: Check[P], candidates: Candidates[P], end: float
) -> Iterator[Finding[P]]:
    for program in candidates(finding.program):
        if time.monotonic() > end:
            return
        try:
            found = check(program)
        except (Invalid, SyntaxError):
            continue
        if found is not None and found.kind == finding.kind:
            yield found
