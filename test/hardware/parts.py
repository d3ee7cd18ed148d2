"""The parts of a run on hardware, in order of worth, each in processes of its own.

Each part has a share of the time that is left, and what it does not need is the others'. What it
finds is in the folder of results from the start on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

import numpy as np

from test.emulator import emulated_cuda
from test.hardware import pytest_journal
from test.hardware.intrinsics import Check, checks
from test.hardware.journal import MAX_TEXT, Journal, python, results, supervise
from test.hardware.run import differences
from test.hardware.summary import DEVICE_REPORT
from test.hardware.worker import DEVICE, values_file

ROOT = Path(__file__).parents[2]
DEVICES_PER_GPU = 8
"""Logical devices of the one GPU, for tests of sharding."""
JOB_S = 30.0
BENCHMARK_S = 90.0
TEST_S = 60.0
"""The longest time of a job, of a benchmark and of a test."""
SMALL_S = 300.0
"""The longest time of a job or benchmark of small size: the emulator compiles its kernels."""
LEAST_S = 10.0
"""The time of a program that reports, whatever those before it took."""
MAX_PROCESSES = 12
MAX_AGAIN = 20
"""Failed tests that run again, alone."""
CLOCKS = (
    "timestamp,clocks.sm,clocks.mem,temperature.gpu,power.draw,utilization.gpu,memory.used,"
    "clocks_throttle_reasons.active"
)

# those that say most of the kernels first
TESTS = (
    "ops/test_elementwise.py",
    "ops/test_matmul.py",
    "schedule/test_attention.py",
    "ops/test_reduce.py",
    "ops/test_dtypes.py",
    "ops/test_half_precision.py",
    "ops/test_conv.py",
    "jit/test_tiny_jit.py",
    "ops/test_movement.py",
    "ops/test_indexing.py",
    "execution",
    "ops",
    "nn",
    "jit",
    "storage",
    "codegen/test_codegen.py",
    "codegen/test_custom_kernel.py",
    "schedule",
    "onnx",
    "gpu/test_cuda_runtime.py",
    "gpu/test_block_products.py",
    "gpu/test_thread_mapping.py",
)
"""Files and folders of `test/backend`. Others are of the CPU, or of drivers that are emulated."""


@dataclass
class Session:
    """A run: where its results are, and how it runs processes."""

    out: Path
    processes: int = 1
    is_small: bool = False
    tests: Sequence[str] = ()
    """Files of tests; those of TESTS if there are none."""
    emulated: Path | None = None
    """The emulator's values of the intrinsics, if they are known."""
    test_s: float = TEST_S
    scratch: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))

    @property
    def log(self) -> Path:
        """What all processes print."""
        return self.out / "log.txt"

    @property
    def journal(self) -> Path:
        """The results of all jobs but tests."""
        return self.out / "results.jsonl"

    @property
    def test_journal(self) -> Path:
        """The results of tests."""
        return self.out / "tests.jsonl"

    def note(self, name: str, **values: object) -> None:
        """Appends a result."""
        Journal(self.journal).finish(name, **values)

    def workers(self, part: str, end: float, limit_s: float, count: int = 1) -> None:
        """Runs the jobs of a part, on several processes at a time."""
        journal = self.scratch / "compile.jsonl" if part == "compile" else self.journal

        def run_share(number: int) -> None:
            command = python("test.hardware.worker", part, "--journal", str(journal))
            command += ["--folder", str(self.scratch), "--share", str(number), str(count)]
            command += ["--small"] * self.is_small
            log = self.log if count == 1 else self.scratch / f"{part}.{number}.log"
            limit = SMALL_S if self.is_small else limit_s
            supervise(command, Journal(journal, f"{part} {number}"), limit, end, log)

        in_threads(run_share, range(count))


def in_threads(function: Callable[[int], None], numbers: Sequence[int]) -> None:
    """Calls a function with each number, all at once."""
    threads = [threading.Thread(target=function, args=(x,)) for x in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run_for(command: Sequence[str], end: float) -> tuple[int | None, str]:
    """The exit status of a program, None if it is missing or takes too long, and its output."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=max(end - time.monotonic(), 1),
            check=False,
            cwd=ROOT,
        )
    except subprocess.TimeoutExpired as error:
        return None, f"{(error.stdout or b'').decode(errors='replace')}\nTimeoutExpired: {error}"
    except OSError as error:
        return None, f"{type(error).__name__}: {error}"
    return done.returncode, done.stdout.decode(errors="replace")


# ---- parts ----


def report(session: Session, end: float) -> None:
    """What the device is, and whether it computes at all."""
    arguments = ["--size", "32", "--bytes", "4096"] if session.is_small else []
    commands = {
        DEVICE_REPORT: python("tinygrad.device", DEVICE, *arguments),
        "nvidia-smi": ["nvidia-smi", "-q", "-d", "CLOCK,TEMPERATURE,POWER,PERFORMANCE,MEMORY,ECC"],
        "packages": [sys.executable, "-m", "pip", "list", "--format=freeze"],
    }
    for name, command in commands.items():
        status, text = run_for(command, max(end, time.monotonic() + LEAST_S))
        with session.log.open("a") as file:
            file.write(f"---- {name} ----\n{text}\n")
        # of the others, what is missing is no fault of the device
        failure = {"failed": text[-MAX_TEXT:]} if status != 0 and name == DEVICE_REPORT else {}
        session.note(f"report: {name}", text=text[:MAX_TEXT], **failure)


def intrinsics(session: Session, end: float) -> None:
    """The values of each intrinsic, and those of the emulator."""
    path = session.emulated or session.scratch / "emulated.npz"
    command = [sys.executable, "-m", "test.hardware", "--write-emulated", str(path)]
    command += ["--small"] * session.is_small
    # compiling its kernels takes longer than running them on a GPU
    with ThreadPoolExecutor() as pool:
        emulator = None if session.emulated else pool.submit(run_for, command, end)
        session.workers("intrinsics", end, JOB_S)
        status, text = emulator.result() if emulator else (0, "")
    made = [x for x in checks() if values_file(session.scratch, x.name).exists()]
    found = {x.name: np.load(values_file(session.scratch, x.name)) for x in made}
    np.savez_compressed(session.out / "intrinsics.npz", **found)
    if status != 0:
        session.note("intrinsics: not compared with the emulator", failed=text[-MAX_TEXT:])
        return
    with np.load(path) as emulated:
        for check in made:
            session.note(f"emulator: {check.name}", **difference(check, found, emulated))


def difference(
    check: Check, found: dict[str, np.ndarray], emulated: np.lib.npyio.NpzFile
) -> dict[str, str]:
    """What to note of an intrinsic: nothing if its values are those of the emulator."""
    if check.name not in emulated:
        return {"failed": "the emulator did not run it"}
    wrong = differences(check, found[check.name], emulated[check.name])
    return {"failed": wrong} if wrong else {}


def tests(session: Session, end: float) -> None:
    """Tests of the backend in several processes; those that fail then run once more, alone."""
    queue: SimpleQueue[str] = SimpleQueue()
    for path in session.tests or test_files():
        queue.put(path)

    def run_files(number: int) -> None:
        while time.monotonic() < end:
            try:
                path = queue.get_nowait()
            except Empty:
                return
            run_tests(session, [path], f"{number} {path}", session.test_journal, end)

    in_threads(run_files, range(session.processes))
    failed = [x["name"] for x in results(session.test_journal) if "failed" in x]
    again = session.scratch / "again.jsonl"
    for name in [x for x in failed if "::" in x][:MAX_AGAIN]:
        if time.monotonic() < end:
            run_tests(session, [name], name, again, end, {"DEBUG": "2"})
    for line in results(again):
        values = {key: value for key, value in line.items() if key not in {"name", "worker"}}
        Journal(session.test_journal).append(again=line["name"], **values)


def run_tests(
    session: Session,
    names: list[str],
    worker: str,
    journal: Path,
    end: float,
    environment: dict[str, str] | None = None,
) -> None:
    """Runs files of tests, or tests, in a process at a time."""
    # other plugins that are installed may not work with the project's options
    plugins = ["-p", "xdist.plugin", "-p", "pytest_timeout", "-p", "test.hardware.pytest_journal"]
    options = ["-q", "-n", "0", "--timeout", "0", "-p", "no:cacheprovider", *plugins]
    settings = {"CUDA": "1", "DEVICES_PER_GPU": str(DEVICES_PER_GPU)}
    if emulated_cuda.is_installed():
        options, settings = [*options, "--emulated-cuda", "forwards"], {}
    settings |= {
        "CPU_COUNT": "2",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        pytest_journal.JOURNAL: str(journal),
        pytest_journal.WORKER: worker,
        pytest_journal.PROCESSES: str(session.processes),
        **(environment or {}),
    }
    command = [sys.executable, "-m", "pytest", *options, *names]
    log = session.scratch / f"{worker.replace('/', '.')}.log"
    supervise(command, Journal(journal, worker), session.test_s, end, log, settings)


def test_files() -> list[str]:
    """The files of TESTS in order, each once."""
    found: dict[str, None] = {}
    for name in TESTS:
        path = ROOT / "test/backend" / name
        files = [path] if path.is_file() else sorted(path.glob("test_*.py"))
        found |= dict.fromkeys(str(x.relative_to(ROOT)) for x in files)
    return list(found)


def tiles(session: Session, end: float) -> None:
    """Whether each candidate computes the right values."""
    session.workers("tiles", end, JOB_S, session.processes)


def benchmark(session: Session, end: float) -> None:
    """The benchmarks, beside torch."""
    session.workers("benchmark", end, BENCHMARK_S)


def times(session: Session, end: float) -> None:
    """The time of each candidate, beside what the model predicts. All are compiled before."""
    now = time.monotonic()
    session.workers("compile", now + (end - now) / 3, JOB_S, session.processes)
    session.workers("times", end, JOB_S)


@dataclass(frozen=True)
class Part:
    """A part, and its share of the time."""

    run: Callable[[Session, float], None]
    share_s: float


PARTS = {
    "report": Part(report, 20),
    "intrinsics": Part(intrinsics, 60),
    "tests": Part(tests, 170),
    "tiles": Part(tiles, 90),
    "benchmark": Part(benchmark, 110),
    "times": Part(times, 90),
}
"""All parts, in order of worth."""


def run_parts(
    session: Session, names: Sequence[str], budget_s: float, after: Callable[[Session], None]
) -> None:
    """Runs parts within a budget, and calls `after` after each."""
    end = time.monotonic() + budget_s
    session.out.mkdir(parents=True, exist_ok=True)
    clocks = record_clocks(session.out / "clocks.csv")
    try:
        for position, name in enumerate(names):
            begin = time.monotonic()
            left = sum(PARTS[x].share_s for x in names[position:])
            part_end = begin + (end - begin) * PARTS[name].share_s / left
            try:
                PARTS[name].run(session, part_end)
            except Exception as error:  # the other parts still run
                session.note(f"{name}: part", failed=f"{type(error).__name__}: {error}")
            session.note(f"{name}: time", seconds=round(time.monotonic() - begin, 1))
            after(session)
    finally:
        if clocks is not None:
            clocks.terminate()
        shutil.rmtree(session.scratch, ignore_errors=True)


def record_clocks(path: Path) -> subprocess.Popen[bytes] | None:
    """Lets nvidia-smi append clocks and temperatures to a file twice a second, if it is there."""
    if shutil.which("nvidia-smi") is None:
        return None
    file: IO[bytes]
    with path.open("wb") as file:
        command = ["nvidia-smi", f"--query-gpu={CLOCKS}", "--format=csv", "-lms", "500"]
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)


def process_count() -> int:
    """The processes that run tests at a time."""
    return max(1, min(MAX_PROCESSES, len(os.sched_getaffinity(0)) - 2))
