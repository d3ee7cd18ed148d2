"""Breaks one rule of the library at a time: the search must notice each within a minute.

`python -m test.fuzz_state.mutants [--seconds S] [NAME ...]` prints how long each took, and a
program that shows it. A program counts if it passes with the library as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import test.fuzz_state.statements  # noqa: F401  declares all statements
from test.fuzz_state.check import compare
from test.fuzz_state.generate import GROUPS, UNUSUAL, random_program
from test.fuzz_state.program import Program
from test.fuzzing.findings import Finding, Invalid

Function = Callable[..., Any]


@dataclass(frozen=True)
class Mutant:
    """A function of the library, as "module:name" or "module:Class.name", and what is called in its
    place, made of the function itself. `groups` are those of the programs that may show it.
    """

    target: str
    broken: Callable[[Function], Function]
    groups: tuple[str, ...] = tuple(x for x in GROUPS if x not in UNUSUAL)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The library with the function replaced, in all modules that have imported it."""
        module, _, path = self.target.partition(":")
        owner, name = importlib.import_module(module), path
        while "." in name:
            first, _, name = name.partition(".")
            owner = getattr(owner, first)
        original = vars(owner)[name]
        places = [owner]
        if isinstance(owner, type(sys)):
            known = [x for key, x in sys.modules.items() if key.startswith("tinygrad")]
            places = [x for x in known if vars(x).get(name) is original]
        replacement = self.broken(original)
        for place in places:
            setattr(place, name, replacement)
        try:
            yield
        finally:
            for place in places:
                setattr(place, name, original)


def nothing(original: Function) -> Function:
    """A function that does nothing in place of one that returns nothing."""
    return lambda *args, **kwargs: None


def always(value: Any) -> Callable[[Function], Function]:
    """A function that returns `value`."""
    return lambda original: lambda *args, **kwargs: value


MUTANTS: dict[str, Mutant] = {
    "equal values share memory that is written": Mutant(
        "tinygrad.storage.copy_on_write:copy_on_write", nothing, ("views", "writes", "reads")
    ),
}


def noticed(mutant: Mutant, limit_s: float, seed: int = 0) -> Finding[Program] | None:
    """The first program that shows the mutant; None if none does in time."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        program = random_program(random.Random(seed), mutant.groups).on_one_device()
        seed += 1
        with contextlib.suppress(Invalid):
            with mutant.applied():
                finding = compare(program)
            if finding is not None and compare(program) is None:
                return finding
    return None


def main() -> None:
    arguments = argparse.ArgumentParser(
        prog="python -m test.fuzz_state.mutants", description=__doc__
    )
    arguments.add_argument("names", nargs="*", help="only these (default: all)")
    arguments.add_argument("--seconds", type=float, default=60, help="for each (default: 60)")
    given = arguments.parse_args()
    missed = []
    for name in given.names or MUTANTS:
        start = time.monotonic()
        finding = noticed(MUTANTS[name], given.seconds)
        if finding is None:
            missed.append(name)
        print(
            f"# {name}: {time.monotonic() - start:.1f} s\n{finding or 'not noticed'}\n", flush=True
        )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
