"""Searches for a program whose values are not those of the reference: see the package.

Under `mpiexec`, all ranks run the same programs, and agree on what each of them finds.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import test.fuzz_state.statements  # noqa: F401  declares all statements
from test.fuzz_state.check import Errors, compare, compare_strictly
from test.fuzz_state.generate import GROUPS, UNUSUAL, random_program
from test.fuzz_state.program import Program
from test.fuzz_state.shrink import candidates
from test.fuzzing.findings import Check, Finding
from test.fuzzing.on_ranks import OnRanks
from test.fuzzing.search import parser, search
from tinygrad.ranks import size
from tinygrad.settings import Context, ContextVar


def main() -> None:
    ranks = OnRanks()
    arguments = parser("fuzz_state", __doc__)
    # an array is in the memory of one rank
    left_out = UNUSUAL | {"exports"} if size() > 1 else UNUSUAL
    usual = [x for x in GROUPS if x not in left_out]
    arguments.add_argument("--strict", action="store_true", help="errors are findings too")
    arguments.add_argument(
        "--groups",
        type=lambda x: x.split(","),
        default=usual,
        help=f"only these groups of statements, as a,b; there are {', '.join(GROUPS)}",
    )
    arguments.add_argument(
        "--versions", action="store_true", help="versions of memory must keep their content"
    )
    arguments.add_argument(
        "--policy-off",
        action="store_true",
        help="with STATE_POLICY=0: no search for readers that could be computed with a write",
    )
    given = arguments.parse_args()
    unknown = set(given.groups) - set(GROUPS)
    if unknown:
        arguments.error(f"no groups {sorted(unknown)}; there are {', '.join(GROUPS)}")
    errors = Errors()
    policy = {"STATE_POLICY": 0} if given.policy_off else {}
    if not policy.keys() <= ContextVar.declared.keys():
        arguments.error("the library has no setting STATE_POLICY")

    def check(program: Program) -> Finding[Program] | None:
        if given.strict:
            return compare_strictly(program, given.versions)
        return compare(program, errors, given.versions)

    def runs(seed: int) -> Iterator[tuple[Program, Check[Program]]]:
        program = random_program(random.Random(seed), given.groups)
        for placed in (program.on_one_device(), program):
            yield placed, ranks.together(check)

    with Context(SPEC=2, **policy):
        found = search(runs, candidates, given)
    for key, count in errors.counts.most_common():
        print(f"# {count} of {errors.statements} statements: {key}\n{errors.examples[key]}\n")
    print(found)
    sys.exit(1 if found.findings else 0)


if __name__ == "__main__":
    main()
