"""Random programs on random layouts equal themselves on one device; and a seeded bug is found.

The programs come from `python -m test.fuzz_sharding`, which searches for a given time.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import test.fuzz_sharding.ops  # noqa: F401  declares all ops
from test.fuzz_sharding import numbers, reference
from test.fuzz_sharding.check import (
    check_bytes,
    check_replay,
    check_twice,
    compare,
)
from test.fuzz_sharding.generate import OPS, random_program
from test.fuzz_sharding.numbers import check_numbers, random_numbers
from test.fuzz_sharding.program import Program
from test.fuzz_sharding.shrink import candidates
from test.fuzzing.findings import Check, Finding, Invalid
from test.fuzzing.shrink import shrink
from tinygrad.schedule.spmd import local_movement
from tinygrad.settings import Context

SEEDS = [range(start, start + 3) for start in range(0, 15, 3)]


def search(check: Check[Program], ops: list[str] | None, seeds: range) -> Finding[Program] | None:
    """The first finding among the programs with these seeds."""
    for seed in seeds:
        try:
            finding = check(random_program(random.Random(seed), ops))
        except Invalid:
            continue
        if finding is not None:
            return finding
    return None


@pytest.mark.sample(6, values=False)
@pytest.mark.parametrize("seeds", SEEDS, ids=str)
@pytest.mark.parametrize("check", [compare, check_replay, check_twice, check_bytes])
def test_random_programs(check: Check[Program], seeds: range) -> None:
    finding = search(check, None, seeds)
    assert finding is None, str(finding)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(start, start + 8) for start in range(0, 64, 8)], ids=str)
def test_random_programs_on_extreme_values_equal_numpy(seeds: range) -> None:
    for seed in seeds:
        try:
            finding = check_numbers(random_numbers(random.Random(seed)))
        except Invalid:
            continue
        assert finding is None, str(finding)


def test_a_wrong_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shift by the width of the dtype keeps the number."""
    name = "({x} << {y})"
    wrong = replace(reference.BINARY[name], function=lambda x, n: x << (n % (8 * x.itemsize)))
    monkeypatch.setitem(reference.BINARY, name, wrong)
    monkeypatch.setattr(numbers, "TEMPLATES", reference.UNARY | reference.BINARY)
    monkeypatch.setattr(numbers, "_random_template", lambda rng: name)
    kinds = set()
    for seed in range(20):
        try:
            finding = check_numbers(random_numbers(random.Random(seed)))
        except Invalid:
            continue
        kinds.add(finding and finding.kind)
    assert kinds == {None, "wrong number"}


@pytest.mark.parametrize("name", OPS)
def test_every_op_is_drawn(name: str) -> None:
    programs = (random_program(random.Random(seed), [name]) for seed in range(300))
    assert any(name in {step.op for step in program.steps} for program in programs)


@pytest.mark.slow
def test_a_missing_mask_is_found_and_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements past the end of an array take part in a sum."""
    monkeypatch.setattr(local_movement, "mask_outside", lambda value, *_: value)
    ops = ["reduce", "exact_function", "permute"]
    with Context(SCHEDULE_CACHE=0):
        finding = search(compare, ops, range(200))
        assert finding is not None
        found = shrink(finding, compare, candidates)
    assert found.kind.startswith("wrong")
    assert [step.op for step in found.program.steps] == ["reduce"]
