"""Runs the benchmarks whose names start with one of the arguments.

Without arguments: all that are for the CPU, or with `--device CUDA` those for a GPU ("gpu").
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import pkgutil
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from test.benchmark import results
from test.benchmark.measure import Benchmark
from tinygrad import Device
from tinygrad.device import DeviceError

GPU = "gpu"
REPEAT_S = 1.0
GRACE_S = 20.0
SECONDS = {"s": 1, "m": 60, "h": 3600}


class OutOfTimeError(Exception):
    """The time that the benchmarks were given is over."""


def all_benchmarks(small: bool = False) -> Iterator[Benchmark]:
    """All benchmarks of this folder: the lists named BENCHMARKS in its files."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not module.name.startswith(("__main__", "test_")):
            loaded = importlib.import_module(f"test.benchmark.{module.name}")
            yield from getattr(loaded, "SMALL_BENCHMARKS" if small else "BENCHMARKS", [])


def chosen(names: list[str], small: bool) -> list[Benchmark]:
    """The benchmarks of these names; without any, those of the kind of the default device."""
    is_gpu = not Device.DEFAULT.startswith("CPU")
    return [
        benchmark
        for benchmark in all_benchmarks(small)
        if (benchmark.name.startswith(tuple(names)) if names else is_gpu == is_for_gpu(benchmark))
    ]


def is_for_gpu(benchmark: Benchmark) -> bool:
    """Whether a benchmark would take a CPU very long."""
    return benchmark.name.startswith(GPU)


def duration(text: str) -> float:
    """The seconds of "90s", "8m" or "1h"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is no duration, such as 90s, 8m or 1h")
    return float(found[1]) * SECONDS[found[2]]


@contextlib.contextmanager
def time_limit(end: float) -> Iterator[None]:
    """Raises OutOfTimeError in the block when the time of `time.monotonic()` is `end`.

    Ends the process if the block then does not return, as a call that waits for a GPU may.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    # a time that is over already ends it at once
    left = max(end - time.monotonic(), 1e-3)
    # the signal comes again, as a finalizer swallows what is raised in it
    signal.setitimer(signal.ITIMER_REAL, left, REPEAT_S)
    faulthandler.dump_traceback_later(left + GRACE_S, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(benchmarks: list[Benchmark], budget: float | None, path: Path | None) -> bool:
    """Measures within a budget of seconds; writes what is known after each to a file.

    Returns whether none failed.
    """
    found: list[results.Result] = []
    failed: dict[str, str] = {}
    skipped = [benchmark.name for benchmark in benchmarks]
    print(results.HEADING)
    if path is not None:
        # at once: a path that cannot be written is no surprise at the end
        results.write(path, found, failed, skipped)
    end = None if budget is None else time.monotonic() + budget
    for benchmark in benchmarks:
        try:
            with contextlib.nullcontext() if end is None else time_limit(end):
                found.append(results.measure(benchmark))
        except OutOfTimeError:
            break
        except Exception as error:  # the others may still run
            failed[benchmark.name] = f"{type(error).__name__}: {error}"
            print(f"{benchmark.name:44} failed: {failed[benchmark.name]}", flush=True)
        else:
            print(found[-1], flush=True)
        skipped.remove(benchmark.name)
        if path is not None:
            results.write(path, found, failed, skipped)
    if skipped:
        print(f"no time for {len(skipped)}: {', '.join(skipped)}")
    return not failed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m test.benchmark", description=__doc__)
    parser.add_argument("names", nargs="*", help="the start of a benchmark's name")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--device", help="the device to measure (default: DEV, or the CPU)")
    parser.add_argument(
        "--budget",
        type=duration,
        metavar="TIME",
        help="stop after this time, as 8m; say what was left out",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to a file too")
    parser.add_argument(
        "--small", action="store_true", help="tiny sizes: whether the benchmarks for GPUs run"
    )
    arguments = parser.parse_args()
    if arguments.device:
        Device.DEFAULT = arguments.device
    benchmarks = chosen(arguments.names, arguments.small)
    if not benchmarks:
        parser.error(f"no benchmark starts with {' or '.join(arguments.names)}; try --list")
    if arguments.list:
        print("\n".join(benchmark.name for benchmark in benchmarks))
        return
    try:
        assert Device[Device.DEFAULT]
    except DeviceError as error:
        parser.error(str(error))
    if not run(benchmarks, arguments.budget, arguments.json):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
