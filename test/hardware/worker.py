"""Runs the jobs of a part: `python -m test.hardware.worker PART --journal FILE --folder FOLDER`."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from test.benchmark import gpu
from test.benchmark.__main__ import jobs
from test.hardware import candidates
from test.hardware.candidates import Job
from test.hardware.intrinsics import Check, checks
from test.hardware.journal import Journal, Values, work
from test.hardware.run import run
from tinygrad import Device

DEVICE = "CUDA"
FEW = 6
"""Intrinsics that show whether the comparison runs."""


def intrinsic_jobs(is_small: bool, folder: Path) -> Iterator[Job]:
    """For each intrinsic a job that keeps its values in a folder."""

    def keep(check: Check) -> Values:
        np.save(values_file(folder, check.name), run(check, DEVICE))
        return {}

    made = checks(Device[DEVICE].target.architecture)
    for check in made[: FEW if is_small else None]:
        yield check.name, lambda x=check: keep(x)


def values_file(folder: Path, name: str) -> Path:
    """The file of the values of an intrinsic."""
    return folder / f"{''.join(c if c.isalnum() else '_' for c in name)}.npy"


def benchmark_jobs(is_small: bool, folder: Path) -> Iterator[Job]:
    """The benchmarks of GPUs."""
    return jobs(gpu.SMALL_BENCHMARKS if is_small else gpu.BENCHMARKS)


JOBS: dict[str, Callable[[bool, Path], Iterator[Job]]] = {
    "intrinsics": intrinsic_jobs,
    "tiles": lambda is_small, _: candidates.right_jobs(DEVICE, is_small),
    "benchmark": benchmark_jobs,
    "compile": lambda is_small, _: candidates.compile_jobs(DEVICE, is_small),
    "times": lambda is_small, _: candidates.timed_jobs(DEVICE, is_small),
}
"""The jobs of each part that workers run, by its name."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m test.hardware.worker", description=__doc__)
    parser.add_argument("part", choices=JOBS)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="where values are kept")
    parser.add_argument("--share", type=int, nargs=2, default=(0, 1), metavar=("NUMBER", "COUNT"))
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    Device.DEFAULT = DEVICE
    number, count = arguments.share
    all_jobs = JOBS[arguments.part](arguments.small, arguments.folder)
    own = itertools.islice(all_jobs, number, None, count)
    named = ((f"{arguments.part}: {name}", job) for name, job in own)
    work(named, Journal(arguments.journal, f"{arguments.part} {number}"))


if __name__ == "__main__":
    main()
