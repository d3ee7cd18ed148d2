"""What several ranks agree on that run the same checks, one after the other.

After each check, all ranks exchange its outcome: a failure of one is a failure of all, and a rank
that waits for another that has finished the check gives up. Then all go on together.
"""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from tinygrad import Tensor, ranks
from tinygrad.execution.wire import current_wire
from tinygrad.ranks import RanksError
from tinygrad.ranks.mpi import MpiWire

PATIENCE_S = 5
"""How long a rank waits for messages of another that has finished the phase."""
GAP = 1 << 20
"""The step numbers of the history after a failure are larger by this."""


class Outcome(NamedTuple):
    """What one rank found in a phase, and the last step of its history."""

    phase: str
    outcome: str
    step: int
    digest: int
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


def agree_as_ranks() -> Agreement | None:
    """Join the other ranks, if there are any. Rank 0 alone prints."""
    ranks.join()
    if ranks.size() == 1:
        return None
    from mpi4py import MPI

    if ranks.rank():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    wire = current_wire()
    assert isinstance(wire, MpiWire)
    return Agreement(wire, MPI.COMM_WORLD)
