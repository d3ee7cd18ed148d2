"""Stages of shared memory that a loop reads while later ones are being filled.

    fill the first stages
    for step of the loop:
        wait until the oldest stage is filled, by all threads
        start to fill the stage that the step before read
        ... read the stage ...

With one stage, a barrier before and one after the fill separate it from the reads. Where
steps read asynchronously, a step fills the stage that was read before those that may still be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tinygrad.codegen.analysis.ranges import with_loops
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Memory = tuple[UOp, ...]
Fill = Callable[[Memory, UOp, UOp | None], list[UOp]]
"""The stores of one stage: of a step of the loop, if a condition holds, else of zeros."""


@dataclass(frozen=True)
class Stages:
    """Arrays in shared memory, of `count` stages each, and the loop `step` that reads them."""

    memory: Memory
    count: int
    step: UOp
    thread: UOp
    fill: Fill
    read_later: int = 0
    """Steps that may still be reading their stages when the next step starts to fill one."""

    @property
    def ahead(self) -> int:
        """The stages that are filled ahead."""
        return self.count - 1 - self.read_later

    def begin(self, *before: UOp) -> list[UOp]:
        """Fill the first stages after some effects; returns the effects of the fill."""
        begun = list(before)
        for number in range(self.ahead):
            step = UOp.const(dtypes.index, number)
            stores = self.fill(after(self.memory, begun), step, exists(step, self.step))
            begun = [commit(stores)]
        return begun

    def read(self, begun: Sequence[UOp]) -> Memory:
        """The arrays as one step of the loop may read them, after the first stages were begun."""
        if self.count == 1:
            before = barrier(*begun, self.step, self.thread)
            filled = self.fill(after(self.memory, [before]), self.step, None)
            return after(self.memory, [barrier(*filled)])
        ready = barrier(self.filled(begun))
        return after(self.memory, [ready, *self.refill(ready)])

    def filled(self, begun: Sequence[UOp]) -> UOp:
        """The wait of a thread for its copies of the oldest stage."""
        return wait([*begun, self.step], self.ahead - 1)

    def ready(self) -> UOp:
        """The barrier after which instructions may read a stage asynchronously."""
        return barrier(UOp(Ops.ASYNC_FENCE, dtypes.void, (self.filled(self.begin()),)))

    def refill(self, *before: UOp) -> list[UOp]:
        """Start to fill a later stage, after some effects."""
        step = self.step + self.ahead
        return [commit(self.fill(after(self.memory, before), step, exists(step, self.step)))]

    def close(self, read: UOp) -> UOp:
        """The end of a step, after the wait for what earlier steps read."""
        return with_loops(read, (self.step,))


def exists(step: UOp, loop: UOp) -> UOp | None:
    """The condition that a step of a loop is not past its end."""
    condition = step < loop.src[0]
    return None if condition.vmin else condition


def after(memory: Memory, before: Sequence[UOp]) -> Memory:
    """Arrays after some effects."""
    return tuple([x.after(*before) for x in memory])


def commit(stores: Sequence[UOp]) -> UOp:
    """The end of a group of copies."""
    return UOp(Ops.COPY_COMMIT, dtypes.void, tuple(stores))


def wait(before: Sequence[UOp], groups: int) -> UOp:
    """A wait until at most some groups of copies are in flight."""
    return UOp(Ops.COPY_WAIT, dtypes.void, tuple(before), groups)


def barrier(*before: UOp, cluster: int = 1) -> UOp:
    """A barrier of the threads of the block, or of a cluster of several, after some effects or
    inside of some loops.
    """
    return UOp(Ops.BARRIER, dtypes.void, before, cluster if cluster > 1 else None)
