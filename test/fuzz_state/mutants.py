"""Breaks one rule of the library at a time: the search must notice each within a minute.

`python -m test.fuzz_state.mutants [--seconds S] [NAME ...]` prints how long each took, and a
program that shows it. A program counts if it passes with the library as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import test.fuzz_state.statements  # noqa: F401  declares all statements
from test.fuzz_state.check import compare
from test.fuzz_state.generate import GROUPS, UNUSUAL, random_program
from test.fuzz_state.program import Program
from test.fuzzing.findings import Finding, Invalid
from tinygrad.settings import Context

Function = Callable[..., Any]
USUAL = tuple(x for x in GROUPS if x not in UNUSUAL)
STATE = ("views", "writes", "reads")
_STORAGE, _GROUPING = "tinygrad.storage.", "tinygrad.schedule.grouping."
_CELL, _EFFECTS = "tinygrad.storage.live_tensors:Cell.", "tinygrad.jit.effects."


@dataclass(frozen=True)
class Mutant:
    """A function of the library, as "module:name" or "module:Class.name", and what is called in its
    place, made of the function itself.

    Programs about `theme` (default: any group) may show it. Without `has_policy`, no search for
    readers hides it.
    """

    target: str
    broken: Callable[[Function], Function]
    theme: str | None = None
    has_policy: bool = False

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
    # the gate
    "the gate looks": Mutant(_STORAGE + "gate:make_writable", always(False)),
    "the gate looks, with the search for readers": Mutant(
        _STORAGE + "gate:make_writable", always(False), has_policy=True
    ),
    "a cell follows what is stored in its memory": Mutant(
        _STORAGE + "realization:_follow", nothing
    ),
    "a replay looks": Mutant(
        _EFFECTS + "written_memory:WrittenMemory.make_writable", nothing, "jit"
    ),
    # ownership
    "only the owner writes in place": Mutant(_CELL + "owns", always(True)),
    "values of memory that code outside writes are copies": Mutant(
        _STORAGE + "realization:_is_outside", always(False), "exports"
    ),
    "a captured function owns its arguments": Mutant(
        "tinygrad.jit.inputs:Inputs.own", nothing, "jit"
    ),
    # order
    "stores wait for the readers in their plan": Mutant(
        _GROUPING + "plan.order:_UnitOrder.order_assignments", nothing, "writes", True
    ),
    "a kernel stores what it reads elsewhere": Mutant(
        _GROUPING + "fusion.hazards:find_hazards", always(set()), "writes", True
    ),
    # captures
    "arguments alias as in the captured call": Mutant(
        "tinygrad.jit.closure:Closure._fits", always(True), "jit"
    ),
    "replays let cells go": Mutant(_CELL + "let_go", nothing, "jit"),
    "results are named when they borrow": Mutant(
        _EFFECTS + "results:_name_borrowed", nothing, "jit"
    ),
    "results are restored": Mutant(_EFFECTS + "results:_SameResult.restore", nothing, "jit"),
    "kept tensors leave memory": Mutant(_CELL + "leave_memory", nothing, "jit"),
    "memory of arguments is found after they moved": Mutant(
        "tinygrad.jit.inputs:Inputs.find_memory", nothing, "jit"
    ),
    # failures
    "what failed is put back": Mutant(
        _STORAGE + "put_back:PutBack.put_back", nothing, "interrupts"
    ),
    "interrupts come between whole stores": Mutant(
        "tinygrad.execution.realize:_is_between", always(True), "interrupts"
    ),
}

# what breaks no value: another rule covers it, at the cost of copies or of more kernels
COSTS: dict[str, Mutant] = {
    # it moves out again, from where its content is
    "a version that moved is not that of the memory": Mutant(
        "tinygrad.execution.versions:forget_version", nothing
    ),
    # what a node of new content is bound to has moved out
    "what was found in overwritten memory is of the new content": Mutant(
        _STORAGE + "realization:_in_new_content", always(set())
    ),
    # the units wait for each other, and what they write is computed before
    "older content is kept beside newer": Mutant(
        _GROUPING + "rewrite.preserve:preserve_overwritten",
        lambda original: lambda sink: sink,
        "writes",
        True,
    ),
}


def drawn_for(mutant: Mutant) -> Iterator[Program]:
    """Random programs that may show a mutant."""
    groups = USUAL if mutant.theme is None else dict.fromkeys((mutant.theme, *STATE))
    for seed in itertools.count():
        yield random_program(random.Random(seed), [*groups], mutant.theme).on_one_device()


def noticed(mutant: Mutant, programs: Iterable[Program]) -> Finding[Program] | None:
    """The first of the programs that shows the mutant; None if none does."""
    settings = {"STATE_POLICY": int(mutant.has_policy)}
    if mutant.target.startswith(_GROUPING):
        # a plan of the broken library must not serve the other one
        settings["SCHEDULE_CACHE"] = 0
    for program in programs:
        with contextlib.suppress(Invalid), Context(**settings):
            with mutant.applied():
                finding = compare(program)
            if finding is not None and compare(program) is None:
                return finding
    return None


def _for_seconds(seconds: float, programs: Iterable[Program]) -> Iterator[Program]:
    end = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < end, programs)


def main() -> None:
    arguments = argparse.ArgumentParser(
        prog="python -m test.fuzz_state.mutants", description=__doc__
    )
    arguments.add_argument("names", nargs="*", help="only these (default: all of MUTANTS)")
    arguments.add_argument("--seconds", type=float, default=60, help="for each (default: 60)")
    given = arguments.parse_args()
    missed = []
    for name in given.names or MUTANTS:
        start, mutant = time.monotonic(), {**MUTANTS, **COSTS}[name]
        finding = noticed(mutant, _for_seconds(given.seconds, drawn_for(mutant)))
        if finding is None:
            missed.append(name)
        print(
            f"# {name}: {time.monotonic() - start:.1f} s\n{finding or 'not noticed'}\n", flush=True
        )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
