"""Searches for a program whose values are not those of the reference: see the package."""

from __future__ import annotations

import argparse
import random
import sys
import time

import test.fuzz_state.statements  # noqa: F401  declares all statements
from test.fuzz_state.check import Errors, Invalid, compare, compare_strictly
from test.fuzz_state.generate import GROUPS, random_program
from test.fuzz_state.shrink import shrink
from tinygrad.settings import Context


def search(minutes: float, seed: int, groups: list[str], limit: int, strict: bool) -> int:
    """Runs programs until the time is up; returns the number of findings."""
    start = time.monotonic()
    findings = programs = invalid = 0
    errors = Errors()
    while time.monotonic() < start + minutes * 60 and findings < limit:
        rng = random.Random(seed)
        program = random_program(rng, groups)
        for run in (program.on_one_device(), program):
            try:
                found = compare_strictly(run) if strict else compare(run, errors)
            except Invalid:
                invalid += 1
                continue
            programs += 1
            if found is not None:
                check = compare_strictly if strict else compare
                print(f"# seed {seed}\n{shrink(found, check)}\n", flush=True)
                findings += 1
                break
        seed += 1
    for key, count in errors.counts.most_common():
        print(f"# {count} of {errors.statements} statements: {key}\n{errors.examples[key]}\n")
    rate = programs / (time.monotonic() - start)
    print(
        f"{programs} programs ({rate:.1f} a second), {invalid} invalid, {findings} findings; "
        f"next seed {seed}"
    )
    return findings


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m test.fuzz_state", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--findings", type=int, default=1000, help="stop after so many")
    parser.add_argument("--strict", action="store_true", help="errors are findings too")
    parser.add_argument("--groups", type=lambda x: x.split(","), default=list(GROUPS))
    given = parser.parse_args()
    unknown = set(given.groups) - set(GROUPS)
    if unknown:
        parser.error(f"no groups {sorted(unknown)}; there are {', '.join(GROUPS)}")
    with Context(SPEC=2):
        found = search(given.minutes, given.seed, given.groups, given.findings, given.strict)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
