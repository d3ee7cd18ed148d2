"""Searches for a program whose result depends on the devices: see the package."""

from __future__ import annotations

import argparse
import random
import sys
import time

import test.fuzz_sharding.ops  # noqa: F401  declares all ops
from test.fuzz_sharding.check import Refused, check_bytes, check_replay, check_twice, compare
from test.fuzz_sharding.generate import OPS, random_program
from test.fuzz_sharding.shrink import shrink
from tinygrad.settings import Context

CHECKS = (compare, check_replay, check_twice, check_bytes)
SHARES = (0.6, 0.17, 0.1, 0.13)


def search(minutes: float, seed: int, ops: list[str]) -> int:
    """Runs programs until the time is up; returns the number of findings."""
    start = time.monotonic()
    findings = programs = refused = 0
    while time.monotonic() < start + minutes * 60:
        rng = random.Random(seed)
        program = random_program(rng, ops)
        check = rng.choices(CHECKS, SHARES)[0]
        try:
            found = check(program)
        except Refused:
            refused += 1
        else:
            programs += 1
            if found is not None:
                print(f"# seed {seed}\n{shrink(found, check)}\n", flush=True)
                findings += 1
        seed += 1
    rate = programs / (time.monotonic() - start)
    print(
        f"{programs} programs ({rate:.1f} a second), {refused} refused, {findings} findings; "
        f"next seed {seed}"
    )
    return findings


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m test.fuzz_sharding", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ops", nargs="*", choices=sorted(OPS), help="only these ops")
    arguments = parser.parse_args()
    with Context(SPEC=2):
        findings = search(arguments.minutes, arguments.seed, arguments.ops or sorted(OPS))
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
