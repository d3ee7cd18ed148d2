"""Training steps of a model by this library and by torch: equal weights, steps in turn.

Each library runs in a process of its own, so that the peak of its memory is its own.
"""

from __future__ import annotations

import math
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy

from test.benchmark.measure import HAS_TORCH
from test.benchmark.models.libraries import LIBRARIES
from test.benchmark.models.programs import MODELS

COMPARED_STEPS = 5
"""The losses of so many steps are compared."""
TIMED_STEPS = 5
STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Step:
    """One training step: its loss, CPU and wall time, and its kernels, if the library counts."""

    loss: float
    cpu_s: float
    wall_s: float
    kernels: int | None


@dataclass(frozen=True)
class Side:
    """What one library takes: the median of steps, the megabytes that a step has beside those of
    the library itself, and the time of the first step.
    """

    losses: tuple[float, ...]
    cpu_s: float
    wall_s: float
    memory_mb: float
    first_s: float
    kernels: int | None


def memory_mb(name: str) -> float:
    """A line of the status of this process: VmRSS, or VmHWM, its peak since `forget_peak`."""
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    found = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return int(found[name].split()[0]) / 1e3


def forget_peak() -> None:
    """Let the peak of memory begin anew, where the system can."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")


def serve(pipe: Connection, library: str, name: str, is_small: bool, weights: Path) -> None:
    """A worker: takes a step each time it is asked, and tells its memory at the end.

    Ours writes the weights that it begins with, if there is no such file yet.
    """
    lib, model = LIBRARIES[library](), MODELS[name]
    sizes = model.small if is_small else model.sizes
    before = memory_mb("VmRSS")
    trainer = lib.trainer(model.make(lib, **sizes), model.batch(**sizes), model.optimizer)
    if weights.exists():
        with numpy.load(weights) as known:
            trainer.load(known)
    else:
        aside = weights.with_suffix(".new.npz")
        numpy.savez(aside, **trainer.weights())  # type: ignore[arg-type]
        aside.replace(weights)
    pipe.send(None)
    count = 0
    while pipe.recv():
        wall, cpu = time.perf_counter(), time.process_time()
        loss = trainer.step()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        pipe.send(Step(loss, cpu, wall, trainer.kernels()))
        count += 1
        if count == COMPARED_STEPS:
            # the memory of compiling is not that of a step
            forget_peak()
    pipe.send(memory_mb("VmHWM") - before)


class Worker:
    """A process that takes steps of one library."""

    def __init__(self, library: str, name: str, is_small: bool, weights: Path) -> None:
        spawn = get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        args = (theirs, library, name, is_small, weights)
        self._process = spawn.Process(target=serve, args=args, daemon=True)
        self._process.start()
        theirs.close()
        self._pipe.recv()
        self.steps: list[Step] = []

    def step(self) -> None:
        """Take a step."""
        self._pipe.send(True)
        self.steps.append(self._pipe.recv())

    def end(self) -> float:
        """End the process. Returns its peak in megabytes."""
        self._pipe.send(False)
        peak = self._pipe.recv()
        self._process.join()
        return float(peak)


def compare(name: str, is_small: bool = False) -> tuple[Side, float, Side | None]:
    """A model by this library, the seconds of its first step with kernels of an earlier run, and
    torch's, if that is installed.
    """
    with tempfile.TemporaryDirectory() as folder, _empty_cache(Path(folder, "cache")):
        weights = Path(folder, "weights.npz")
        mine = Worker("ours", name, is_small, weights)
        theirs = Worker("torch", name, is_small, weights) if HAS_TORCH else None
        both = [mine] if theirs is None else [mine, theirs]
        for _ in range(COMPARED_STEPS + TIMED_STEPS):
            for worker in both:
                worker.step()
        sides = [_side(worker) for worker in both]
        again = Worker("ours", name, is_small, weights)
        again.step()
        again.end()
    return sides[0], again.steps[0].wall_s, sides[1] if len(sides) > 1 else None


@contextmanager
def _empty_cache(folder: Path) -> Iterator[None]:
    """Processes that start in this block keep kernels in a cache of their own."""
    before = os.environ.get("CACHEDB")
    os.environ["CACHEDB"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["CACHEDB"]
        else:
            os.environ["CACHEDB"] = before


def _side(worker: Worker) -> Side:
    timed = worker.steps[COMPARED_STEPS:]
    return Side(
        tuple(x.loss for x in worker.steps[:COMPARED_STEPS]),
        statistics.median(x.cpu_s for x in timed),
        statistics.median(x.wall_s for x in timed),
        worker.end(),
        worker.steps[0].wall_s,
        worker.steps[-1].kernels,
    )


def difference(mine: Side, theirs: Side) -> float:
    """The largest relative difference of two losses."""
    pairs = zip(mine.losses, theirs.losses, strict=True)
    return max(abs(a - b) / max(abs(b), math.ulp(1.0)) for a, b in pairs)
