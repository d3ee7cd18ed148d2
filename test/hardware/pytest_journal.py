"""A plugin of pytest that appends what each test does to a journal.

    python -m pytest -p test.hardware.pytest_journal FILE

The environment names the journal. A test that the journal has is not run again. After each test it
waits for the device, so an error in a kernel is that of the test that ran it. Then the process
ends, as the device cannot be used any more, and another one goes on. Of a failing test, the text of
the kernels that it rendered or launched is kept.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from test.hardware.journal import LOST, MAX_TEXT, Journal, lost_device, show_stacks_when_asked
from tinygrad.renderer.cstyle.cuda import CUDARenderer
from tinygrad.uop.ops import UOp

JOURNAL, WORKER, PROCESSES = "HARDWARE_JOURNAL", "HARDWARE_WORKER", "HARDWARE_PROCESSES"
MAX_KERNELS_TEXT = 60_000
MAX_JOURNAL_BYTES = 8 << 20
"""The size of a journal from which it keeps no more kernels."""

COLLECTED = {
    pytest.ExitCode.OK,
    pytest.ExitCode.TESTS_FAILED,
    pytest.ExitCode.NO_TESTS_COLLECTED,
}

texts: dict[str, str] = {}
"""The last text of each kernel by its name."""
used: dict[str, None] = {}
"""The kernels of the test that is running, in order."""
journal = Journal(Path(os.environ.get(JOURNAL, os.devnull)), os.environ.get(WORKER, ""))
found: dict[str, Any] = {}
"""What is known of the test that is running."""


def pytest_configure() -> None:
    show_stacks_when_asked()
    _note_kernels()
    _share_memory(int(os.environ.get(PROCESSES, "1")))


def _note_kernels() -> None:
    """Keeps the text of each kernel, and notes launches."""
    from tinygrad.runtime.support.cuda.driver import Gpu

    render, end_kernels = CUDARenderer.render, Gpu.end_kernels

    def keep(self: CUDARenderer, function: str, linear: list[UOp]) -> str:
        text = render(self, function, linear)
        texts[function] = text
        used[function] = None
        return text

    def note(self: Gpu, name: str) -> None:
        used[name] = None
        end_kernels(self, name)

    CUDARenderer.render = keep  # type: ignore[method-assign]
    Gpu.end_kernels = note  # type: ignore[method-assign]


def _share_memory(processes: int) -> None:
    """Lets a device of this process keep no more than its share of the memory of its GPU."""
    from tinygrad.runtime.support.cuda.memory import CudaAllocator

    total = CudaAllocator.limit
    CudaAllocator.limit = lambda self: total(self) // processes  # type: ignore[method-assign]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = journal.known()
    items[:] = [item for item in items if item.nodeid not in known]


def pytest_runtest_logstart(nodeid: str) -> None:
    used.clear()
    found.clear()
    journal.start(nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    found["seconds"] = found.get("seconds", 0.0) + report.duration
    if report.failed:
        found["failed"] = str(report.longrepr)[-MAX_TEXT:]
    elif report.skipped:
        skip = report.longrepr
        found["skipped"] = skip[2] if isinstance(skip, tuple) else str(skip)


def pytest_runtest_logfinish(nodeid: str) -> None:
    error = lost_device()
    if error:
        found["failed"] = f"{found.get('failed', '')}\n{error}"
    if "failed" in found and journal.path.stat().st_size < MAX_JOURNAL_BYTES:
        kept = "\n".join(texts[name] for name in reversed(used) if name in texts)
        found["kernels"] = kept[:MAX_KERNELS_TEXT]
    journal.finish(nodeid, **found)
    if error:
        journal.append(lost=error)
        sys.stdout.flush()
        # not `exit`, which would run finalizers that call the driver
        os._exit(LOST)


def pytest_sessionfinish(exitstatus: int) -> None:
    # what is not collected has an error, which the output tells
    if exitstatus in COLLECTED:
        journal.append(end=True)
