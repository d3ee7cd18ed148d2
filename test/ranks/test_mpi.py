"""Ranks of an MPI launcher: values are those of one process, and failures end all ranks.

Each test starts processes, with a time limit.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# only processes that hang take so long, however busy the machine is
LIMIT_S = 240


def launcher() -> str | None:
    """The MPI launcher beside this Python, or on the path."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or launcher() is None,
    reason="needs mpi4py and an MPI launcher: pip install mpi4py mpich",
)
pytestmark = needs_mpi


def start(
    folder: Path, *programs: str, devices: int = 2, processes: int = 1, **settings: str
) -> subprocess.Popen[str]:
    """Start programs in some processes that share `devices`, and print to files in `folder`."""
    folder.mkdir()
    command = [sys.executable, "-m", "test.ranks.programs", str(folder), str(devices), *programs]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RANKS_TIMEOUT": "1", **settings}
    if processes > 1:
        command = [str(launcher()), "-n", str(processes), *command]
        environment |= {"RANKS": "mpi", "RANK_DEVICES": str(devices // processes)}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(
    folder: Path, *programs: str, devices: int = 2, processes: int = 1, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run programs as `start` does, and wait for their end."""
    started = start(folder, *programs, devices=devices, processes=processes, **settings)
    try:
        output, errors = started.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(started.args, started.returncode, output, errors)


def all_end(folder: Path) -> bool:
    """Whether the processes that have a folder in their command end soon after the launcher."""
    end = time.monotonic() + LIMIT_S
    while is_running := _is_running(folder):
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    return not is_running


def _is_running(folder: Path) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in path.read_bytes():
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "devices"), [(2, 2), (2, 4), (4, 4)])
def test_every_rank_has_the_values_of_one_process(
    processes: int, devices: int, tmp_path: Path
) -> None:
    programs = ["layouts", "writes", "training", "mesh", "local_parts", "files", "lifetimes"]
    programs += ["collects_alone", "exits_at_once_on_all"]
    one = run(tmp_path / "one", *programs, devices=devices)
    several = run(tmp_path / "several", *programs, devices=devices, processes=processes)
    assert (one.returncode, several.returncode) == (0, 0), several.stderr
    wanted = (tmp_path / "one" / "0").read_text()
    assert wanted.count("\n") == 21
    for rank in range(processes):
        assert (tmp_path / "several" / str(rank)).read_text() == wanted
    # ranks write the file of one process, so any number of them can go on from it
    saved = [tmp_path / f"{name}-saved" / "values.safetensors" for name in ("one", "several")]
    assert saved[0].read_bytes() == saved[1].read_bytes()


@pytest.mark.slow
def test_the_example_has_one_progress_bar_and_the_values_of_one_process(tmp_path: Path) -> None:
    one = run(tmp_path / "one", "example")
    several = run(tmp_path / "several", "example", processes=2)
    assert (one.returncode, several.returncode) == (0, 0), several.stderr
    for rank in range(2):
        found = (tmp_path / "several" / str(rank)).read_text()
        assert found == (tmp_path / "one" / "0").read_text()
    assert several.stderr.count("\n  0%|") == 1


@pytest.mark.slow
def test_the_example_learns_mnist_on_two_ranks() -> None:
    done = subprocess.run(
        [str(launcher()), "-n", "2", sys.executable, "examples/beautiful_mnist_multigpu.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "STEPS": "35", "TARGET_EVAL_ACC_PCT": "95"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.count("reaches 95") == 1


FAILURES = {
    "raises": "rank 1 of 2 ends all ranks:",
    "is_killed": "EXIT CODE: 9",
    "computes_another_value": "ranks diverged at step",
    "loops": "rank 1 is at {programs}:",
    "exits": "rank 1 does the end of the program",
    "stops": "rank 1 does not answer",
    "has_no_memory": "CPU:1 cannot allocate",
    "ends_early": "rank 1 does the end of the program",
    "exits_at_once": "rank 1 does the end of the program at {programs}:",
    "exits_at_once_with_an_error": "os._exit(3) at {programs}:",
    "ends_with_another_step": "ranks diverged at step",
    "reads_on_one": "ranks diverged at step",
    "reads_unequal_arrays": "ranks diverged at step",
    "computes_alone": "realize the tensor before",
}
"""Programs that fail on one rank, and what is said of it."""
QUICK = ("raises", "is_killed")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        pytest.param(program, message, marks=() if program in QUICK else pytest.mark.slow)
        for program, message in FAILURES.items()
    ],
)
def test_a_failure_of_one_rank_ends_all(program: str, message: str, tmp_path: Path) -> None:
    done = run(tmp_path / "output", program, processes=2)
    assert done.returncode != 0
    programs = Path(__file__).with_name("programs.py")
    assert message.format(programs=programs) in done.stdout + done.stderr
    if "diverged" in message or program == "loops":
        # the lines of both ranks
        assert done.stderr.count("test/ranks/programs.py:") >= 2
    assert all_end(tmp_path)


@pytest.mark.slow
def test_an_interrupt_ends_all_ranks(tmp_path: Path) -> None:
    started = start(tmp_path / "output", "waits_for_ever", processes=2)
    outputs = [tmp_path / "output" / str(rank) for rank in range(2)]
    while not all(path.exists() and path.read_text() for path in outputs):
        assert started.poll() is None
        time.sleep(0.05)
    os.killpg(started.pid, signal.SIGINT)
    _, errors = started.communicate(timeout=LIMIT_S)
    assert started.returncode
    assert "ends all ranks:" in errors and "KeyboardInterrupt" in errors
    assert all_end(tmp_path)


@pytest.mark.slow
def test_ranks_of_two_hosts_reduce_inside_of_hosts_first(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    program = [sys.executable, "-m", "test.ranks.programs", str(tmp_path / "output"), "4", "hosts"]
    on_host = [["-n", "2", "env", f"RANK_HOST={name}", *program] for name in ("one", "two")]
    subprocess.run(
        [str(launcher()), *on_host[0], ":", *on_host[1]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RANKS": "mpi"},
        check=True,
        timeout=LIMIT_S,
    )
    nodes = "[['NULL:0', 'NULL:1'], ['NULL:2', 'NULL:3']]"
    for rank in range(4):
        printed = (tmp_path / "output" / str(rank)).read_text().splitlines()
        assert printed == ["True", nodes, "hierarchical"]


@pytest.mark.slow
def test_a_file_that_one_rank_cannot_write_stays_as_it_was(tmp_path: Path) -> None:
    done = run(tmp_path / "output", "saves_where_one_rank_cannot", processes=2)
    assert done.returncode == 0, done.stderr
    printed = [(tmp_path / "output" / str(rank)).read_text().split() for rank in range(2)]
    assert printed == [["True", "True", "True", "1"], ["True", "False", "True", "1"]]


@pytest.mark.slow
def test_a_launcher_of_another_mpi_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path / "output", "layouts", RANKS="mpi", OMPI_COMM_WORLD_SIZE="2")
    assert done.returncode != 0
    assert "use the launcher of the same MPI" in done.stderr
