"""Searches for a program whose result depends on the devices: see the package.

Under `mpiexec`, all ranks run the same programs, and agree on what each of them finds.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import test.fuzz_sharding.ops  # noqa: F401  declares all ops
from test.fuzz_sharding.check import check_bytes, check_replay, check_twice, compare
from test.fuzz_sharding.generate import OPS, random_program
from test.fuzz_sharding.numbers import check_numbers, random_numbers
from test.fuzz_sharding.program import Program
from test.fuzz_sharding.shrink import candidates
from test.fuzzing.findings import Check
from test.fuzzing.on_ranks import OnRanks
from test.fuzzing.search import parser, search
from tinygrad.settings import Context

CHECKS = (compare, check_replay, check_twice, check_bytes)
SHARES = (0.6, 0.17, 0.1, 0.13)
# the share of programs on extreme values, which are compared with numpy
NUMBERS = 0.3


def main() -> None:
    ranks = OnRanks()
    arguments = parser("fuzz_sharding", __doc__)
    arguments.add_argument(
        "--ops",
        nargs="*",
        choices=sorted(OPS),
        metavar="OP",
        help="only these ops; an unknown one lists all",
    )
    arguments.add_argument("--numbers", action="store_true", help="only extreme values")
    given = arguments.parse_args()

    def runs(seed: int) -> Iterator[tuple[Program, Check[Program]]]:
        rng = random.Random(seed)
        if given.numbers or (not given.ops and rng.random() < NUMBERS):
            program, check = random_numbers(rng), check_numbers
        else:
            program = random_program(rng, given.ops or sorted(OPS))
            check = rng.choices(CHECKS, SHARES)[0]
        yield program, ranks.together(check)

    with Context(SPEC=2):
        found = search(runs, candidates, given)
    print(found)
    sys.exit(1 if found.findings else 0)


if __name__ == "__main__":
    main()
