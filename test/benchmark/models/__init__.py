"""Training steps of models that people use, at their sizes, beside torch.

    libraries.py    what differs between this library and torch
    programs.py     the seven models, each one program for both
    beside.py       both in turn, each in a process of its own

Times of this table are CPU seconds: of a step, all cores together. The notes of a line give the
wall time, the peak of memory without that of the library itself, kernels, and the first step.
"""

from __future__ import annotations

from functools import partial
from math import isfinite

from test.benchmark.measure import Benchmark
from test.benchmark.models.beside import Side, compare, difference
from test.benchmark.models.programs import MODELS
from test.benchmark.results import Result


def measure(name: str) -> Result:
    """One line of the table."""
    mine, warm_s, theirs = compare(name)
    notes = [f"first step {mine.first_s:.1f} s, {warm_s:.1f} s with kept kernels"]
    notes.append(f"{mine.kernels} kernels, wall {_pair(mine, theirs, 'wall_s')} s")
    notes.append(f"{_pair(mine, theirs, 'memory_mb')} MB")
    if theirs is not None:
        notes.append(f"losses within {difference(mine, theirs):.1e}")
    peer = None if theirs is None else theirs.cpu_s * 1e3
    return Result(f"models, {name}", mine.cpu_s * 1e3, peer, notes="; ".join(notes))


def _pair(mine: Side, theirs: Side | None, name: str) -> str:
    found = [getattr(x, name) for x in (mine, theirs) if x is not None]
    return " / ".join(f"{x:,.2f}" if x < 100 else f"{x:,.0f}" for x in found)


def small(name: str) -> float:
    """The CPU milliseconds of a step at a small size, whose losses must be nearly torch's if that
    is installed: where a batch is normalized, rounding grows from step to step.
    """
    mine, _, theirs = compare(name, is_small=True)
    assert all(map(isfinite, mine.losses)), mine
    assert theirs is None or difference(mine, theirs) < 1e-2, (mine, theirs)
    return mine.cpu_s * 1e3


BENCHMARKS = [
    Benchmark(
        f"models, {name}",
        partial(small, name),
        whole=partial(measure, name),
        small=partial(small, name),
    )
    for name in MODELS
]
