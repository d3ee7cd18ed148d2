"""Worker processes that compile kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.execution.realize import FEW_KERNELS
from tinygrad.runtime.support import compile_workers as module
from tinygrad.runtime.support.compile_workers import JOBS_PER_WORKER, CompileWorkers
from tinygrad.settings import Context


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompileWorkers]:
    monkeypatch.setattr(module, "thread_count", lambda: 2)
    made = CompileWorkers()
    yield made
    made.stop()


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def compress(workers: CompileWorkers, count: int) -> None:
    for i in range(count):
        workers.submit(i, zlib.compress, b"%d" % i)


def test_what_a_worker_began_is_its_result(workers: CompileWorkers) -> None:
    compress(workers, JOBS_PER_WORKER)
    wait_until(lambda: workers._workers)
    results = [workers.take(i) for i in range(JOBS_PER_WORKER)]
    assert any(results)
    assert all(x in (None, zlib.compress(b"%d" % i)) for i, x in enumerate(results))
    assert workers.take(0) is None


def test_few_jobs_and_a_single_core_start_no_worker(
    workers: CompileWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    compress(workers, JOBS_PER_WORKER - 1)
    monkeypatch.setattr(module, "thread_count", lambda: 1)
    compress(workers, 3 * JOBS_PER_WORKER)
    assert not workers._threads
    assert workers.take(0) is None


def test_a_job_that_raises_and_a_worker_that_is_killed_leave_it_to_the_caller(
    workers: CompileWorkers,
) -> None:
    workers.submit("text", zlib.compress, "text")
    workers.submit("long", time.sleep, 600)
    compress(workers, JOBS_PER_WORKER)
    wait_until(lambda: "long" in workers._begun and workers._workers)
    assert workers.take("text") is None
    (worker,) = workers._workers
    worker.process.kill()
    assert workers.take("long") is None
    assert workers.take(0) is None
    wait_until(lambda: not workers._threads)


def test_kernels_of_workers_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "thread_count", lambda: 2)
    count = 2 * FEW_KERNELS
    arrays = [np.arange(i + 3, dtype=np.float32) for i in range(count)]
    tensors = [Tensor(x).realize() for x in arrays]
    with Context(CACHELEVEL=0):
        results = [(x * 3 + i / 7).sum() for i, x in enumerate(tensors)]
        Tensor.realize(*results)
    for i, (x, result) in enumerate(zip(arrays, results, strict=True)):
        np.testing.assert_allclose(result.item(), (x * 3 + i / 7).sum(), rtol=1e-5)


PROGRAM = """
import os, signal, sys, time
from tinygrad.runtime.support import compile_workers as module
module.thread_count = lambda: 2
workers = module.compile_workers
for i in range(20):
    workers.submit(i, time.sleep, 0.2)
while not workers._workers:
    time.sleep(0.01)
(worker,) = workers._workers
print(worker.process.pid, flush=True)
if sys.argv[1] == "fork":
    child = os.fork()
    if not child:
        assert workers.take(19) is None and not workers._workers
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("how", ["exit", "kill", "fork"])
def test_workers_end_with_the_process(how: str) -> None:
    command = [sys.executable, "-c", PROGRAM, how]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    pid, *status = map(int, found.stdout.split())
    assert status == ([0] if how == "fork" else []), found.stderr
    wait_until(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
