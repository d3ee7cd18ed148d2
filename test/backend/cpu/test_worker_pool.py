"""The worker pool: every work item runs exactly once, for all grids, thread counts and callers."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from test.devices import only_cpu
from tinygrad.device import DeviceError
from tinygrad.runtime.support.c_compiler import FLAGS, find_compiler
from tinygrad.runtime.support.llvm import compile_llvm, link
from tinygrad.runtime.support.native import FOLDER, host_platform, load_ir
from tinygrad.runtime.support.worker_pool import WorkerPool, worker_pool

pytestmark = only_cpu

# Adds one to each item of buffer 0, and spins for value 0 iterations per item.
MARK_IR = """
define void @mark(ptr %buffers, ptr %values, i64 %begin, i64 %end) {
entry:
  %data = load ptr, ptr %buffers
  %count = load i64, ptr %values
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %done ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %exit
body:
  %place = getelementptr i32, ptr %data, i64 %i
  %old = load i32, ptr %place
  %new = add i32 %old, 1
  store i32 %new, ptr %place
  br label %spin
spin:
  %s = phi i64 [ 0, %body ], [ %s.next, %spin ]
  %s.next = add i64 %s, 1
  %still = load volatile i64, ptr %values
  %again = icmp slt i64 %s.next, %still
  br i1 %again, label %spin, label %done
done:
  %next = add i64 %i, 1
  br label %loop
exit:
  ret void
}
"""

# Two items wait for each other; then the second one spins for value 0 iterations.
MEET_IR = """
define void @meet(ptr %buffers, ptr %values, i64 %begin, i64 %end) {
entry:
  %data = load ptr, ptr %buffers
  %mine = getelementptr i32, ptr %data, i64 %begin
  %other = sub i64 1, %begin
  %theirs = getelementptr i32, ptr %data, i64 %other
  store atomic i32 1, ptr %mine seq_cst, align 4
  br label %wait
wait:
  %seen = load atomic i32, ptr %theirs seq_cst, align 4
  %alone = icmp eq i32 %seen, 0
  br i1 %alone, label %wait, label %met
met:
  %count = load volatile i64, ptr %values
  %rounds = mul i64 %count, %begin
  br label %spin
spin:
  %s = phi i64 [ 0, %met ], [ %s.next, %spin ]
  %s.next = add i64 %s, 1
  %unused = load volatile i64, ptr %values
  %again = icmp slt i64 %s.next, %rounds
  br i1 %again, label %spin, label %exit
exit:
  ret void
}
"""

MARK = link(compile_llvm(MARK_IR), "mark")
MEET = link(compile_llvm(MEET_IR), "meet")


def launch(pool: WorkerPool, marks: np.ndarray, grid: int, spin: int = 0) -> None:
    """Adds one to the first `grid` marks."""
    buffers = (ctypes.c_uint64 * 1)(marks.ctypes.data)
    values = (ctypes.c_int64 * 1)(spin)
    pool.launch(MARK["mark"], buffers, values, grid)


@pytest.fixture(scope="module", params=["shipped", "with condition variables"])
def pool_code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The object file of the pool: as shipped, or compiled here without futexes."""
    if request.param == "shipped":
        return compile_llvm(load_ir("runtime"))
    compiler, _ = find_compiler()
    output = tmp_path_factory.mktemp("pool") / "runtime.o"
    outline = ["-mno-outline-atomics"] if host_platform() == "aarch64-linux" else []
    flags = [*FLAGS, *outline, "-Wno-psabi", "-DUSE_CONDITION_VARIABLE"]
    command = [compiler, *flags, "-c", str(FOLDER / "runtime.c"), "-o", str(output)]
    subprocess.run(command, check=True)
    return output.read_bytes()


@pytest.fixture
def make_pool(pool_code: bytes) -> Iterator[object]:
    """Creates pools, and stops them after the test, before their code is unmapped."""
    made: list[WorkerPool] = []

    def make(threads: int, spin_ns: int = 30_000) -> WorkerPool:
        pool = WorkerPool(pool_code, threads, spin_ns)
        made.append(pool)
        return pool

    yield make
    for pool in made:
        pool.stop()


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("spin_ns", [0, 30_000])
def test_every_item_runs_exactly_once(make_pool, threads: int, spin_ns: int):
    pool = make_pool(threads, spin_ns)
    rng = np.random.default_rng(threads)
    expected = np.zeros(10_000, np.int32)
    marks = np.zeros(10_000, np.int32)
    for grid in [*range(1, 40), *rng.integers(1, 10_000, 400)]:
        launch(pool, marks, int(grid))
        expected[:grid] += 1
        assert marks[grid - 1] == expected[grid - 1]
    np.testing.assert_array_equal(marks, expected)


def test_thousands_of_small_launches(make_pool):
    pool = make_pool(4)
    marks = np.zeros(7, np.int32)
    for _ in range(5000):
        launch(pool, marks, 7)
    assert marks.tolist() == [5000] * 7


def test_sleeping_workers_wake_up(make_pool):
    pool = make_pool(3, 1000)
    marks = np.zeros(64, np.int32)
    pause = threading.Event()
    for _ in range(30):
        pause.wait(0.001)
        launch(pool, marks, 64, spin=2000)
    assert marks.tolist() == [30] * 64


@pytest.mark.parametrize("spin_ns", [0, 30_000])
def test_items_run_concurrently_and_a_launch_waits_for_the_last(make_pool, spin_ns: int):
    pool = make_pool(2, spin_ns)
    pause = threading.Event()
    for _ in range(20):
        met = np.zeros(2, np.int32)
        buffers = (ctypes.c_uint64 * 1)(met.ctypes.data)
        # long enough that the launching thread goes to sleep until the worker is done
        values = (ctypes.c_int64 * 1)(1_000_000)
        pool.launch(MEET["meet"], buffers, values, 2)
        assert met.tolist() == [1, 1]
        pause.wait(0.001)


def test_an_empty_grid_runs_nothing(make_pool):
    marks = np.zeros(4, np.int32)
    launch(make_pool(2), marks, 0)
    assert marks.tolist() == [0] * 4


def test_several_python_threads_share_the_pool(make_pool):
    pool = make_pool(3)
    marks = [np.zeros(500, np.int32) for _ in range(6)]

    def work(mine: np.ndarray) -> None:
        for _ in range(300):
            launch(pool, mine, 500)

    callers = [threading.Thread(target=work, args=(mine,)) for mine in marks]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all(mine.tolist() == [300] * 500 for mine in marks)


def test_a_launch_releases_the_interpreter_lock():
    pool = worker_pool()
    marks = np.zeros(2, np.int32)
    values = (ctypes.c_int64 * 1)(1 << 62)
    buffers = (ctypes.c_uint64 * 1)(marks.ctypes.data)
    caller = threading.Thread(target=pool.launch, args=(MARK["mark"], buffers, values, 1))
    caller.start()
    # the kernel reads the bound in each iteration: it ends only if this thread can run
    values[0] = 0
    caller.join(timeout=60)
    assert not caller.is_alive()
    assert marks.tolist() == [1, 0]


def test_a_stopped_pool_still_runs_kernels(make_pool):
    pool = make_pool(3)
    marks = np.zeros(100, np.int32)
    launch(pool, marks, 100)
    pool.stop()
    launch(pool, marks, 100)
    pool.stop()
    assert marks.tolist() == [2] * 100


def test_a_pool_restarts_after_a_reset(make_pool):
    pool = make_pool(3)
    marks = np.zeros(100, np.int32)
    for _ in range(3):
        launch(pool, marks, 100)
        pool.stop()
        pool.reset()
    launch(pool, marks, 100)
    assert marks.tolist() == [4] * 100


def test_a_system_without_posix_threads_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(DeviceError, match="needs POSIX threads, which win32 lacks"):
        host_platform()


def run_python(script: str) -> str:
    """Runs a program with 3 threads per pool. Returns its output; fails if it fails."""
    here = Path(__file__).parent
    root = here.parents[2]
    path = f"{root}:{here}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        env={"CPU_COUNT": "3", "PYTHONPATH": path, "PATH": "", "HOME": str(Path.home())},
        cwd=root,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


PRELUDE = """
import os, sys, threading
import numpy as np
from test_worker_pool import launch
from tinygrad.runtime.support.worker_pool import worker_pool
pool = worker_pool()
assert pool.threads == 3
marks = np.zeros(1000, np.int32)
launch(pool, marks, 1000)
"""


def run_script(body: str) -> str:
    """Runs a program that has launched a kernel on its pool."""
    return run_python(PRELUDE + textwrap.dedent(body))


@pytest.mark.slow
def test_a_forked_child_has_its_own_pool():
    output = run_script(
        """
        for _ in range(20):
            child = os.fork()
            if child == 0:
                for _ in range(100):
                    launch(pool, marks, 1000)
                workers = len(os.listdir("/proc/self/task")) - 1 if sys.platform == "linux" else 2
                os._exit(0 if (marks == 101).all() and workers == 2 else 1)
            launch(pool, np.zeros(1000, np.int32), 1000)
            assert os.waitpid(child, 0)[1] == 0
        launch(pool, marks, 1000)
        print("parent", (marks == 2).all())
        """
    )
    assert output == "parent True\n"


@pytest.mark.slow
def test_a_program_can_exit_while_kernels_run():
    output = run_script(
        """
        def forever():
            mine = np.zeros(100, np.int32)
            while True:
                launch(pool, mine, 100)
        for _ in range(3):
            threading.Thread(target=forever, daemon=True).start()
        for _ in range(100):
            launch(pool, marks, 1000)
        print("end")
        """
    )
    assert output == "end\n"


@pytest.mark.slow
def test_threads_that_start_together_share_one_pool():
    output = run_python(
        """
        import threading
        from tinygrad.runtime.support.worker_pool import worker_pool
        found, barrier = [], threading.Barrier(8)
        def find():
            barrier.wait()
            found.append(worker_pool())
        finders = [threading.Thread(target=find) for _ in range(8)]
        for finder in finders:
            finder.start()
        for finder in finders:
            finder.join()
        print(len(set(found)))
        """
    )
    assert output == "1\n"
