"""Runs the benchmarks whose names start with one of the arguments.

Without arguments: all that are for the CPU, or with `--device CUDA` those for a GPU ("gpu").
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from test.benchmark import results
from test.benchmark.measure import Benchmark
from test.hardware.journal import Journal, Values, main_line, python, supervise, work
from test.hardware.journal import results as journal_results
from tinygrad import Device
from tinygrad.device import DeviceError

GPU = "gpu"
LIMIT_S = 120.0
"""The longest time of a benchmark of several."""
POLL_S = 0.2
SECONDS = {"s": 1, "m": 60, "h": 3600}


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


class Record:
    """What benchmarks found so far: printed, and in a file that is whole after each."""

    def __init__(self, names: list[str], path: Path | None) -> None:
        self.found: list[results.Result] = []
        self.failed: dict[str, str] = {}
        self.skipped = list(names)
        self.path = path
        # of a file alone: asking for it opens the device
        self.machine = results.environment() if path is not None else {}
        print(results.HEADING, flush=True)
        # at once: a path that cannot be written is no surprise at the end
        self._write()

    def add(self, name: str, values: Values) -> None:
        """Adds what a worker found of a benchmark."""
        if name not in self.skipped:
            # a worker that does not start
            self.skipped.append(name)
        self.skipped.remove(name)
        if "failed" in values:
            self.failed[name] = values["failed"]
            print(f"{name:44} failed: {main_line(values['failed'])}", flush=True)
        else:
            self.found.append(results.Result(name, **values))
            print(self.found[-1], flush=True)
        self._write()

    def _write(self) -> None:
        if self.path is not None:
            results.write(self.path, self.machine, self.found, self.failed, self.skipped)


def jobs(benchmarks: list[Benchmark]) -> Iterator[tuple[str, Callable[[], Values]]]:
    """For each benchmark a job that measures it."""

    def measured(benchmark: Benchmark) -> Values:
        values = asdict(results.measure(benchmark))
        del values["name"]
        return values

    for benchmark in benchmarks:
        yield benchmark.name, partial(measured, benchmark)


def run(benchmarks: list[Benchmark], path: Path | None) -> bool:
    """Measures in this process. Returns whether none failed."""
    record = Record([x.name for x in benchmarks], path)
    for name, job in jobs(benchmarks):
        try:
            values = job()
        except Exception as error:  # the others may still run
            values = {"failed": f"{type(error).__name__}: {error}"}
        record.add(name, values)
    return not record.failed


def run_within(
    budget: float, command: list[str], names: list[str], path: Path | None, limit_s: float = LIMIT_S
) -> bool:
    """Measures within a budget of seconds, in workers. Returns whether none failed.

    `command` runs a worker, which takes the file of its journal as the last argument. A benchmark
    that crashes, that hangs, or that loses the device fails alone.
    """
    record, end, shown = Record(names, path), time.monotonic() + budget, 0
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder, "journal"), Path(folder, "log")
        worker = threading.Thread(
            target=supervise, args=([*command, str(file)], Journal(file), limit_s, end, log)
        )
        worker.start()
        is_done = False
        while not is_done:
            worker.join(POLL_S)
            # asked first: what it wrote until then is read below
            is_done = not worker.is_alive()
            lines = journal_results(file)
            for line in lines[shown:]:
                values = {key: x for key, x in line.items() if key not in {"name", "worker"}}
                record.add(line["name"], values)
            shown = len(lines)
    if record.skipped:
        print(f"no time for {len(record.skipped)}: {', '.join(record.skipped)}")
    return not record.failed


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
    parser.add_argument("--journal", type=Path, help=argparse.SUPPRESS)
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
    names = [benchmark.name for benchmark in benchmarks]
    if arguments.journal:
        work(jobs(benchmarks), Journal(arguments.journal))
    elif arguments.budget is None:
        raise SystemExit(not run(benchmarks, arguments.json))
    else:
        command = python("test.benchmark", *names, "--device", Device.DEFAULT)
        command += [*["--small"] * arguments.small, "--journal"]
        raise SystemExit(not run_within(arguments.budget, command, names, arguments.json))


if __name__ == "__main__":
    main()
