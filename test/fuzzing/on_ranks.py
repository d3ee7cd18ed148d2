"""Searches on several ranks: all run the same programs, and agree on what each of them finds."""

from __future__ import annotations

from typing import TypeVar

from test.fuzzing.findings import Check, Finding, Invalid
from test.ranks.agreement import agree_as_ranks
from tinygrad.settings import RANKS_TIMEOUT

P = TypeVar("P")


class OnRanks:
    """Joins the other ranks, if this process was started with some."""

    def __init__(self) -> None:
        self._agreement = agree_as_ranks()
        if self._agreement is not None:
            RANKS_TIMEOUT.value = 2

    def together(self, check: Check[P]) -> Check[P]:
        """A check that finds the same on all ranks."""
        agreement = self._agreement
        if agreement is None:
            return check

        def checked(program: P) -> Finding[P] | None:
            try:
                finding = check(program)
                outcome = "passed" if finding is None else "failed"
            except Invalid:
                finding, outcome = None, "invalid"
            found = f"{finding.kind}: {finding.message}" if finding is not None else ""
            wrong = agreement.agree("a program", outcome, found)
            if wrong:
                # of one kind everywhere, so that all ranks go on alike
                return Finding("on some rank", wrong, program)
            if outcome == "invalid":
                raise Invalid
            return None

        return checked
