"""Tests on several ranks: every rank runs the same tests in the same order.

    mpiexec -n 2 python -m pytest -p test.ranks.plugin -p no:cacheprovider test/test_multitensor.py

The ranks agree on the outcome after each phase of a test: a failure of one is a failure of all, and
a rank that waits for another that has finished the test gives up. Rank 0 reports.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, settings

from tinygrad import Tensor, ranks
from tinygrad.execution.wire import current_wire
from tinygrad.ranks import RanksError
from tinygrad.ranks.mpi import MpiWire
from tinygrad.settings import RANKS_TIMEOUT

PATIENCE_S = 5
"""How long a rank waits for messages of another that has finished the test."""
GAP = 1 << 20
"""The step numbers of the history after a failure are larger by this."""


class Outcome(NamedTuple):
    """What one rank found in a phase of a test, and the last step of its history."""

    phase: str
    outcome: str
    step: int
    digest: bytes
    text: str


class Agreement:
    """Exchanges outcomes between all ranks."""

    def __init__(self, wire: MpiWire, world: Any) -> None:
        self._wire, self._comm = wire, world.Dup()
        others = (other for other in range(wire.rank.size) if other != wire.rank.number)
        self._found: dict[int, list[Outcome]] = {other: [] for other in others}
        self._first_s = 0.0
        self._requests: list[Any] = []
        wire.while_waiting = self._check

    def agree(self, phase: str, outcome: str, text: str) -> str:
        """What is wrong with this phase on the ranks together, empty if nothing is."""
        own = Outcome(phase, outcome, *self._wire.history[-1][:2], text)
        self._requests = [self._comm.isend(own, other) for other in self._found]
        while not all(self._found.values()):
            self._receive()
            os.sched_yield()
        found = {other: outcomes.pop(0) for other, outcomes in self._found.items()}
        found[self._wire.rank.number] = own
        self._first_s = 0.0
        wrong = _compare(found)
        if wrong:
            start = max(outcome.step for outcome in found.values()) + GAP
            self._wire.restart(start, phase.encode())
            Tensor.manual_seed(0)
        return wrong

    def _check(self) -> None:
        """Raise RanksError if this rank waits in a phase that another has finished."""
        self._receive()
        for other, outcomes in self._found.items():
            for outcome in outcomes[:1]:
                if outcome.outcome == "failed":
                    raise RanksError(f"rank {other} failed in {outcome.phase}")
                self._first_s = self._first_s or time.monotonic()
                if time.monotonic() - self._first_s > PATIENCE_S:
                    raise RanksError(f"rank {other} has finished {outcome.phase}")

    def _receive(self) -> None:
        for other, outcomes in self._found.items():
            if self._comm.iprobe(other):
                outcomes.append(self._comm.recv(source=other))


def _compare(found: dict[int, Outcome]) -> str:
    failures = [f"rank {rank}: {x.text}" for rank, x in found.items() if x.outcome == "failed"]
    if failures:
        return "\n".join(failures)
    if len({(x.phase, x.outcome, x.digest) for x in found.values()}) > 1:
        return "\n".join(f"rank {rank} did otherwise: {x}" for rank, x in found.items())
    return ""


def _join() -> Agreement | None:
    ranks.join()
    if ranks.size() == 1:
        return None
    from mpi4py import MPI

    if ranks.rank():
        # before the output of tests is captured
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    wire = current_wire()
    assert isinstance(wire, MpiWire)
    return Agreement(wire, MPI.COMM_WORLD)


AGREEMENT = _join()


def pytest_configure(config: pytest.Config) -> None:
    """All ranks draw the same examples."""
    phases = [Phase.explicit, Phase.generate]
    settings.register_profile(
        "ranks", settings.get_profile("ci"), database=None, deadline=None, phases=phases
    )
    settings.load_profile("ranks")
    RANKS_TIMEOUT.value = 2


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers() -> int:
    """A rank runs its tests itself."""
    return 0


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """One folder that all ranks see."""
    return Path(ranks.gather(tmp_path)[0])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of all ranks together."""
    report = yield
    if AGREEMENT is not None:
        phase = f"the {report.when} of {item.nodeid}"
        if wrong := AGREEMENT.agree(phase, report.outcome, report.longreprtext):
            report.outcome, report.longrepr = "failed", wrong
    return report
