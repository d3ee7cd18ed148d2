"""Compares what a program reads with what it reads with the reference."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from test.fuzz_state.program import NotRefused, Outcome, Program, VersionChanged, run
from test.fuzzing.findings import Finding, Invalid, difference_in_kind, failure
from tinygrad.schedule.canonical import BindingConflict


@dataclass
class Errors:
    """How many statements ran, and how often each documented error was raised."""

    statements: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Program] = field(default_factory=dict)

    def add(self, program: Program, outcome: Outcome) -> None:
        self.statements += len(program.statements)
        for number, error in outcome.raised:
            # without numbers and addresses
            message = re.sub(r"0x\w+|[\d(),\[\] ]+", " ", str(error))[:70]
            group = program.statements[number].group
            key = f"{group}: {type(error).__name__}: {message}"
            self.counts[key] += 1
            known = self.examples.get(key)
            if known is None or len(known.statements) > number + 1:
                keep = set(range(number + 1)) - outcome.skipped | {number}
                self.examples[key] = program.without(set(range(len(program.statements))) - keep)


def compare(
    program: Program, errors: Errors | None = None, has_versions: bool = False
) -> Finding[Program] | None:
    """The first difference between the library and the reference; None if there is none.

    Raises:
        Invalid: the program does not run with the reference.
    """
    with program.context():
        found = run(program, has_versions=has_versions)
    if errors is not None:
        errors.add(program, found)
    expected = run(program, True, frozenset(found.skipped), found.end)
    if expected.failure is not None and not found.skipped:
        raise Invalid(str(expected.failure))
    for (number, value), (_, right) in zip(found.seen, expected.seen):
        message = difference(value, right)
        if message is not None:
            text = program.statements[number].text
            word = message.split()[0]
            kind = f"wrong {word}" if word in ("shape", "dtype") else "wrong value"
            return Finding(kind, f"{text}: {message}", program.up_to(number))
    refused = next((x for x in found.raised if _is_never_refused(program, *x)), None)
    if refused is not None:
        number, error = refused
        return Finding("refused read", f"{type(error).__name__}: {error}", program.up_to(number))
    if found.failure is None or expected.failure is not None:
        # without what was skipped, the reference may not go on either
        return None
    assert found.end is not None, "a run that fails ends"
    program = program.up_to(found.end)
    kinds = {NotRefused: "not refused", VersionChanged: "changed version"}
    if type(found.failure) in kinds:
        return Finding(kinds[type(found.failure)], str(found.failure), program)
    return failure(found.failure, program)


def _is_never_refused(program: Program, number: int, error: BaseException) -> bool:
    """Whether an error is raised by a read of a value, which no program may have to expect; but for
    the value of a Variable, which one graph has once.
    """
    is_bound_twice = isinstance(error, BindingConflict)
    return program.statements[number].group == "reads" and not is_bound_twice


def compare_strictly(program: Program, has_versions: bool = False) -> Finding[Program] | None:
    """As `compare`, with each documented error as a finding."""
    errors = Errors()
    finding = compare(program, errors, has_versions)
    if finding is None and errors.counts:
        return Finding("refused", next(iter(errors.counts)), program)
    return finding


def difference(found: Any, expected: Any) -> str | None:
    """How two values that were read differ; None if they do not."""
    if found is None or expected is None:
        return None if found is expected else f"{found} instead of {expected}"
    if isinstance(expected, np.ndarray):
        message = difference_in_kind(found, expected)
        if message is not None:
            return message
    if np.array_equal(found, expected):
        return None
    return f"{_short(found)} instead of {_short(expected)}"


def _short(value: Any) -> str:
    return str(value.tolist() if isinstance(value, np.ndarray) else value)
