"""Timetables: the tick in which each stage of a pipeline works on each microbatch.

Input: the number of stages and of microbatches, and the name of a schedule, which is an order of
tasks for each stage. Output: a `Timetable`: the tasks of every stage, tick by tick. Invariants: a
task starts after the tick that produces its inputs, and tasks of one tick are independent.

Sources: Huang et al., GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism
(2019); Narayanan et al., PipeDream (2019), for one forward, one backward (1F1B), here with all
gradients of a batch accumulated before its update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Task:
    """One stage's work on one microbatch, in one direction; printed as `F3` or `B3`."""

    kind: Literal["forward", "backward"]
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind[0].upper()}{self.microbatch}"


Order: TypeAlias = Callable[[int, int, int], list[Task]]
"""(stage, stages, microbatches) -> the tasks of the stage, in order."""


def _gpipe(stage: int, stages: int, microbatches: int) -> list[Task]:
    """All forward, then all backward in reverse order."""
    numbers = range(microbatches)
    forward = [Task("forward", number) for number in numbers]
    return forward + [Task("backward", number) for number in reversed(numbers)]


def _one_forward_one_backward(stage: int, stages: int, microbatches: int) -> list[Task]:
    """As many forward as stages follow, then one forward, one backward, then the rest backward."""
    ahead = min(stages - 1 - stage, microbatches)
    tasks = [Task("forward", number) for number in range(ahead)]
    for number in range(microbatches):
        if ahead + number < microbatches:
            tasks.append(Task("forward", ahead + number))
        tasks.append(Task("backward", number))
    return tasks


SCHEDULES: dict[str, Order] = {"gpipe": _gpipe, "1f1b": _one_forward_one_backward}


@dataclass(frozen=True)
class Timetable:
    """`ticks[t][s]` is the task of stage s in tick t: a `Task`, or None if it is idle.

    Each task takes one tick. Printed with a row for each stage and a column for each tick.
    """

    ticks: tuple[tuple[Task | None, ...], ...]

    def __len__(self) -> int:
        return len(self.ticks)

    def __str__(self) -> str:
        rows = zip(*self.ticks, strict=True)
        width = 1 + max(len(str(task)) for tick in self.ticks for task in tick if task)
        lines = ["".join(f"{task or '.'!s:{width}}" for task in row).rstrip() for row in rows]
        return "\n".join(f"stage {number}: {line}" for number, line in enumerate(lines))

    @cached_property
    def in_flight(self) -> tuple[int, ...]:
        """For each stage, the maximum number of microbatches in flight, whose inputs it keeps.

        >>> make_timetable(3, 6, "gpipe").in_flight, make_timetable(3, 6, "1f1b").in_flight
        ((6, 6, 6), (3, 2, 1))
        """
        peaks = []
        for row in zip(*self.ticks, strict=True):
            now, peak = 0, 0
            for task in row:
                now += 0 if task is None else 1 if task.kind == "forward" else -1
                peak = max(peak, now)
            peaks.append(peak)
        return tuple(peaks)

    @property
    def idle(self) -> float:
        """The fraction of idle ticks: the bubble.

        >>> make_timetable(4, 12, "gpipe").idle
        0.2
        """
        waits = sum(task is None for tick in self.ticks for task in tick)
        return waits / (len(self) * len(self.ticks[0]))


def make_timetable(stages: int, microbatches: int, schedule: str) -> Timetable:
    """The shortest timetable in which each stage keeps the order of `schedule`.

    Both schedules take 2 (stages + microbatches - 1) ticks. With "gpipe", every stage keeps all
    microbatches; with "1f1b", as many as stages follow, itself included.
    Raises ValueError for an unknown schedule, and without stages or microbatches.

    >>> print(make_timetable(3, 4, "1f1b"))
    stage 0: F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
    stage 1: .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
    stage 2: .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"there is no schedule {schedule!r}; use one of {', '.join(SCHEDULES)}")
    if stages < 1 or microbatches < 1:
        raise ValueError(
            f"a pipeline of {stages} stages and {microbatches} microbatches does nothing; "
            "it takes at least one of each"
        )
    waiting = [SCHEDULES[schedule](stage, stages, microbatches) for stage in range(stages)]
    done: set[tuple[int, Task]] = set()
    ticks: list[tuple[Task | None, ...]] = []
    while any(waiting):
        heads = [tasks[0] if tasks else None for tasks in waiting]
        tick = tuple(
            task if task and _needs(stage, stages, task) <= done else None
            for stage, task in enumerate(heads)
        )
        assert any(tick), f"schedule {schedule} waits for itself"
        for stage, task in enumerate(tick):
            if task:
                done.add((stage, waiting[stage].pop(0)))
        ticks.append(tick)
    return Timetable(tuple(ticks))


def _needs(stage: int, stages: int, task: Task) -> set[tuple[int, Task]]:
    """The task that a task depends on: the same microbatch in the previous stage of its pass."""
    if task.kind == "forward":
        return {(stage - 1, task)} if stage else set()
    if stage == stages - 1:
        return {(stage, Task("forward", task.microbatch))}
    return {(stage + 1, task)}
