"""Jobs in processes that may crash or hang: what each did is in a file from the start on.

A worker runs jobs in order, and appends a line of JSON before and after each. It skips jobs that
the file names. So when a worker dies or is killed, another one goes on behind the job that it was
running, which has failed. Several workers may append to one file.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from test.emulator import emulated_cuda
from tinygrad.device import Device

POLL_S = 0.05
START_S = 180.0
"""How long a worker may take until its first job."""
KILL_S = 10.0
"""How long a process may take to end that was killed."""
MAX_TEXT = 6000
"""Characters of the end of an output that are kept."""
MAX_LINE = 160
"""Characters of the line that says most of a failure."""
LOST = 3
"""The exit status of a worker whose device cannot be used any more."""

Values = dict[str, Any]


class Journal:
    """The file of a worker, which has a name of its own among those that append to it."""

    def __init__(self, path: Path, worker: str = "") -> None:
        self.path = path
        self.worker = worker

    def append(self, **values: Any) -> None:
        """Appends a line, in one write, so that those of several processes do not mix."""
        line = json.dumps({"worker": self.worker, **values}, default=str) + "\n"
        with self.path.open("ab", buffering=0) as file:
            file.write(line.encode())

    def start(self, name: str) -> None:
        """Notes that a job begins."""
        self.append(start=name)

    def finish(self, name: str, **values: Any) -> None:
        """Notes what a job found; `failed` says why it failed."""
        self.append(name=name, **values)

    def lines(self) -> list[Values]:
        """All whole lines of the file."""
        if not self.path.exists():
            return []
        text = self.path.read_text(errors="replace")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def known(self) -> set[str]:
        """The jobs that were started."""
        return {line["start"] for line in self.lines() if "start" in line}


def results(path: Path) -> list[Values]:
    """What the jobs found that are done."""
    return [line for line in Journal(path).lines() if "name" in line]


def main_line(text: str) -> str:
    """The line of a message that says most: that of the error, or the first one."""
    lines = [x.strip() for x in text.strip().splitlines() if x.strip()] or [""]
    shown = [x[1:].strip() for x in lines if x.startswith("E  ")]
    raised = [x for x in lines if "Error" in x.partition(":")[0]]
    return (shown[0] if shown else raised[-1] if raised else lines[0])[:MAX_LINE]


# ---- in the worker ----


def work(jobs: Iterable[tuple[str, Callable[[], Values]]], journal: Journal) -> None:
    """Runs all jobs that the file does not name. Ends the process if the device is lost."""
    show_stacks_when_asked()
    known = journal.known()
    for name, job in jobs:
        if name in known:
            continue
        journal.start(name)
        try:
            found = job()
        except Exception:  # the others may still run
            found = {"failed": traceback.format_exc()[-MAX_TEXT:]}
        if error := lost_device():
            found.setdefault("failed", error)
        journal.finish(name, **found)
        if error:
            journal.append(lost=error)
            sys.exit(LOST)
    journal.append(end=True)


def lost_device() -> str:
    """Why a device of this process cannot be used any more; empty if all can. Waits for them."""
    for device in list(Device._open.values()):
        try:
            device.synchronize()
        except RuntimeError as error:
            return str(error)
    return ""


def show_stacks_when_asked() -> None:
    """Lets the signal that `supervise` sends to a worker that hangs write its stacks to a file."""
    faulthandler.register(signal.SIGUSR1, file=_stacks(os.getpid()).open("w"))


def _stacks(process: int) -> Path:
    return Path(tempfile.gettempdir(), f"stacks.{process}")


# ---- in the parent ----


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module, on the emulator where this process does."""
    emulator = ["-m", "test.emulator"] if emulated_cuda.is_installed() else []
    return [sys.executable, *emulator, "-m", module, *arguments]


def supervise(
    command: Sequence[str],
    journal: Journal,
    limit_s: float,
    end: float,
    log: Path,
    environment: dict[str, str] | None = None,
) -> None:
    """Runs workers, which append to `journal`, until all jobs are done or the time is `end`.

    A job that takes longer than `limit_s` fails, and so does one during which a worker dies. What
    workers print is appended to `log`.
    """
    while time.monotonic() < end:
        worker = _Worker(command, journal, log, environment)
        why = worker.wait(limit_s, end)
        if not why and not worker.is_done:
            journal.append(unfinished=worker.running or "its start", output=worker.output())
        if worker.is_done or not why:
            return
        if worker.running:
            journal.finish(worker.running, failed=why)
        elif not worker.has_begun:
            # the next would not get further
            journal.finish(f"start of worker {journal.worker}", failed=why)
            return


class _Worker:
    """A process that runs jobs, as its parent sees it."""

    def __init__(
        self, command: Sequence[str], journal: Journal, log: Path, environment: Values | None
    ) -> None:
        self.journal = journal
        self.log = log
        self.seen = journal.path.stat().st_size if journal.path.exists() else 0
        self.log_start = log.stat().st_size if log.exists() else 0
        self.running = ""
        self.is_done = self.has_begun = False
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
                process_group=0,
            )

    def wait(self, limit_s: float, end: float) -> str:
        """Waits until the process ends, or kills it. Why its job failed; empty if time is over."""
        last, limit = time.monotonic(), START_S
        while self.process.poll() is None:
            time.sleep(POLL_S)
            now = time.monotonic()
            if self._read():
                last, limit = now, limit_s
            if now > end:
                self._kill()
                return ""
            if now > last + limit:
                stacks = self._show_stacks()
                self._kill()
                # it may have gone on meanwhile
                self._read()
                return f"no answer for {limit:.0f} s\n{stacks}{self.output()}"
        self._read()
        _stacks(self.process.pid).unlink(missing_ok=True)
        return f"the process ended with status {self.process.returncode}\n{self.output()}"

    def _read(self) -> bool:
        """Reads the lines that the worker appended; returns whether there are any."""
        if not self.journal.path.exists():
            return False
        with self.journal.path.open("rb") as file:
            file.seek(self.seen)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.seen += len(whole)
        lines = [json.loads(line) for line in whole.splitlines()]
        own = [line for line in lines if line["worker"] == self.journal.worker]
        for line in own:
            if "start" in line:
                self.running, self.has_begun = line["start"], True
            elif "name" in line:
                self.running = ""
            self.is_done |= "end" in line
        return bool(own)

    def _show_stacks(self) -> str:
        """The stacks of a process that hangs, where it can show them."""
        path = _stacks(self.process.pid)
        if not path.exists():
            return ""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        return path.read_text()[-MAX_TEXT:]

    def _kill(self) -> None:
        """Ends the process and those that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        # a process may wait for a driver that does not answer
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(KILL_S)
        _stacks(self.process.pid).unlink(missing_ok=True)

    def output(self) -> str:
        """The end of what the process printed; of several workers with one log, also theirs."""
        return self.log.read_bytes()[self.log_start :].decode(errors="replace")[-MAX_TEXT:]
