"""Processes that compile kernels while this one generates the code of others.

Input: jobs, each a key, a function of a module and its arguments. Output: results, as bytes.
LLVM compiles one module at a time in a process, so threads would not help. Invariants: a job that
no worker began is left to the caller, so no result is waited for that nobody computes; a worker
that fails, or cannot start, leaves its job to the caller too. Workers end when they are idle, and
with this process, whatever ends it: they read the end of their input.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from tinygrad.settings import ENVIRONMENT, thread_count

MAX_WORKERS = 8
JOBS_PER_WORKER = 8
"""Fewer are compiled before another process has imported the compiler."""
IDLE_S = 10.0
"""The time after which a worker without a job ends."""

_PROGRAM = "import sys; sys.path[:] = {path!r}; import {module} as m; m.serve({number})"


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Any


@dataclass(eq=False)
class Job:
    """A result to come: `done` is set once `result` is there, or None if the worker failed."""

    request: tuple[Callable[..., bytes], tuple[Any, ...]]
    result: bytes | None = None
    done: threading.Event = field(default_factory=threading.Event)


class CompileWorkers:
    """A queue of jobs, and the processes that do them."""

    def __init__(self) -> None:
        self.reset()
        atexit.register(self.stop)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.abandon)

    def reset(self) -> None:
        """No jobs and no processes."""
        self._changed = threading.Condition()
        self._waiting: dict[Hashable, Job] = {}
        self._begun: dict[Hashable, Job] = {}
        self._workers: set[_Worker] = set()
        self._threads = 0
        self._can_start = bool(sys.executable)

    def submit(self, key: Hashable, function: Callable[..., bytes], *arguments: Any) -> None:
        """Let a worker call a function of a module, if one is free before `take`."""
        with self._changed:
            if key in self._waiting or key in self._begun:
                return
            self._waiting[key] = Job((function, arguments))
            wanted = min(len(self._waiting) // JOBS_PER_WORKER, thread_count() - 1, MAX_WORKERS)
            while self._can_start and self._threads < wanted:
                self._threads += 1
                threading.Thread(target=self._work, name="compile", daemon=True).start()
            self._changed.notify()

    def take(self, key: Hashable) -> bytes | None:
        """The result of a job. None if there is no such job, no worker began it, or it failed."""
        with self._changed:
            self._waiting.pop(key, None)
            job = self._begun.pop(key, None)
        if job is None:
            return None
        job.done.wait()
        return job.result

    def stop(self) -> None:
        """End all workers."""
        with self._changed:
            self._waiting.clear()
            workers = list(self._workers)
        for worker in workers:
            worker.process.kill()
            worker.process.wait()

    def abandon(self) -> None:
        """In a forked process, which has none of the threads: leave the workers to its parent."""
        for worker in self._workers:
            worker.connection.close()
            # it is not a child of this process
            worker.process.returncode = 0
        self.reset()

    # ---- threads, one for each worker ----

    def _work(self) -> None:
        worker: _Worker | None = None
        job: Job | None = None
        try:
            while (job := self._next_job()) is not None:
                try:
                    if worker is None:
                        worker = _start()
                        with self._changed:
                            self._workers.add(worker)
                    worker.connection.send(job.request)
                    job.result = worker.connection.recv()
                finally:
                    job.done.set()
        except (OSError, EOFError, AttributeError, pickle.PicklingError):
            # it could not start, or was killed, or the function is not what its module has
            pass
        finally:
            with self._changed:
                self._threads -= 1
                # a system without processes is asked once
                self._can_start = worker is not None or job is None
                if not self._threads:
                    # what nobody took
                    self._begun.clear()
                if worker is not None:
                    self._workers.discard(worker)
            if worker is not None:
                worker.connection.close()
                worker.process.kill()
                worker.process.wait()

    def _next_job(self) -> Job | None:
        """The oldest job that no other has; None after a while without any."""
        with self._changed:
            if not self._waiting:
                self._changed.wait_for(lambda: bool(self._waiting), IDLE_S)
            key = next(iter(self._waiting), None)
            if key is None:
                return None
            job = self._begun[key] = self._waiting.pop(key)
            return job


def _start() -> _Worker:
    from multiprocessing.connection import Pipe

    ours, theirs = Pipe()
    with theirs:
        number = theirs.fileno()
        program = _PROGRAM.format(path=sys.path, module=__name__, number=number)
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[number],
            # it joins no ranks, and Ctrl-C is for this process
            env={**ENVIRONMENT, "RANKS": ""},
            start_new_session=True,
        )
    return _Worker(process, ours)


def serve(number: int) -> None:
    """Do the jobs that come by the connection with this file number until it ends. The result of
    one that raises is None: the process that asked computes it again, and sees the error.
    """
    from multiprocessing.connection import Connection

    with Connection(number) as connection:
        while True:
            try:
                function, arguments = connection.recv()
            except EOFError:
                return
            try:
                result: bytes | None = function(*arguments)
            except Exception:
                result = None
            connection.send(result)


compile_workers = CompileWorkers()
"""The workers of this process."""
