"""Ranks beside raw messages of MPI, and beside one process with the same devices.

The peer of a transfer is an exchange by persistent requests, that of a large all-reduce an
all-to-all by messages, that of a small one MPI's Allreduce, measured in turn by the same processes.
The peer of a step is one process; several runs of both are made in turn.
"""

from __future__ import annotations

import importlib.util
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from test.benchmark.measure import Benchmark
from test.benchmark.rank_programs import ALLREDUCES, TRANSFERS

ROUNDS = 3


def launcher() -> str | None:
    """The MPI launcher beside this Python, or on the path."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def run(count: int, *programs: str) -> dict[str, tuple[float, ...]]:
    """What programs measure in `count` processes, by name."""
    command = [sys.executable, "-m", "test.benchmark.rank_programs", *programs]
    if count > 1:
        command = [str(launcher()), "-n", str(count), *command]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("measured ")]
    return {name: tuple(map(float, found)) for _, name, *found in lines}


@cache
def beside_raw_messages() -> dict[str, tuple[float, ...]]:
    """Ours and the peer's milliseconds of transfers and all-reduces."""
    return run(2, "transfers", "allreduces")


@cache
def beside_one_process(*programs: str) -> dict[str, tuple[float, ...]]:
    """The milliseconds of two ranks and of one process."""
    several, one = [], []
    for _ in range(ROUNDS):
        several.append(run(2, *programs))
        one.append(run(1, *programs))
    return {name: (_median(several, name), _median(one, name)) for name in one[0]}


def _median(runs: Sequence[dict[str, tuple[float, ...]]], name: str) -> float:
    return statistics.median(found[name][0] for found in runs)


def raw(shown: str, name: str) -> Benchmark:
    """A benchmark beside raw messages."""
    return Benchmark(
        f"ranks {shown}",
        lambda: beside_raw_messages()[name][0],
        peer=lambda: beside_raw_messages()[name][1],
    )


def one(shown: str, name: str, *programs: str) -> Benchmark:
    """A benchmark beside one process."""
    return Benchmark(
        f"ranks {shown}",
        lambda: beside_one_process(*programs)[name][0],
        peer=lambda: beside_one_process(*programs)[name][1],
    )


def size(nbytes: int) -> str:
    """A number of bytes for people."""
    for unit, scale in (("MB", 20), ("KB", 10)):
        if nbytes >> scale:
            return f"{nbytes >> scale} {unit}"
    return f"{nbytes} B"


HAS_MPI = importlib.util.find_spec("mpi4py") is not None and launcher() is not None
BENCHMARKS = [
    *(raw(f"exchange {size(n)}, or raw", f"transfer-{n}") for n in TRANSFERS),
    *(raw(f"all-reduce {size(n)}, or raw", f"allreduce-{n}") for n in ALLREDUCES),
    one("step with an all-reduce, or 1 process", "step", "step"),
    one("numpy(), or 1 process", "numpy", "step"),
    one("mnist step, or 1 process", "mnist", "mnist"),
] * HAS_MPI
