"""Searches for findings, until the time is up."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from test.fuzzing.findings import Check, Invalid
from test.fuzzing.shrink import Candidates, shrink
from tinygrad import ranks

P = TypeVar("P")


@dataclass
class Search:
    """How far a search came."""

    seed: int
    programs: int = 0
    invalid: int = 0
    findings: int = 0
    elapsed_s: float = 0.0

    def __str__(self) -> str:
        rate = self.programs / max(self.elapsed_s, 1e-9)
        return (
            f"{self.programs} programs ({rate:.1f} a second), {self.invalid} invalid, "
            f"{self.findings} findings; next seed {self.seed}"
        )


def search(
    runs: Callable[[int], Iterable[tuple[P, Check[P]]]],
    candidates: Candidates[P],
    given: argparse.Namespace,
) -> Search:
    """Runs the programs of one seed after the other, each with its check, and prints what they
    find, minimized. After a finding, the next seed follows.
    """
    found = Search(given.seed)
    start = time.monotonic()
    while found.elapsed_s < given.minutes * 60 and found.findings < given.findings:
        for program, check in runs(found.seed):
            try:
                finding = check(program)
            except Invalid:
                found.invalid += 1
                continue
            found.programs += 1
            if finding is not None:
                print(f"# seed {found.seed}\n{shrink(finding, check, candidates)}\n", flush=True)
                found.findings += 1
                break
        found.seed += 1
        # of several ranks, the first one says when the time is up
        found.elapsed_s = ranks.gather(time.monotonic() - start)[0]
    return found


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """The command line of a fuzzer, `python -m test.NAME`."""
    found = argparse.ArgumentParser(prog=f"python -m test.{name}", description=description)
    found.add_argument("--minutes", type=float, default=1, help="how long (default: 1)")
    found.add_argument("--seed", type=int, default=0, help="that of the first program (default: 0)")
    found.add_argument("--findings", type=int, default=1000, help="stop after this many")
    return found
