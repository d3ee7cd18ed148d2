"""Tests on several ranks: every rank runs the same tests in the same order.

    mpiexec -n 2 python -m pytest -p test.ranks.plugin -p no:cacheprovider test/test_multitensor.py

The ranks agree on the outcome after each phase of a test (see `agreement`). Rank 0 reports.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from test.ranks.agreement import agree_as_ranks
from tinygrad import ranks
from tinygrad.settings import RANKS_TIMEOUT

# before the output of tests is captured
AGREEMENT = agree_as_ranks()


def pytest_configure(config: pytest.Config) -> None:
    """All ranks draw the same examples."""
    phases = [Phase.explicit, Phase.generate]
    settings.register_profile(
        "ranks", settings.get_profile("ci"), database=None, deadline=None, phases=phases
    )
    settings.load_profile("ranks")
    RANKS_TIMEOUT.value = 2


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers() -> int:
    """A rank runs its tests itself."""
    return 0


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """One folder that all ranks see."""
    return Path(ranks.gather(tmp_path)[0])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of all ranks together."""
    report = yield
    if AGREEMENT is not None:
        phase = f"the {report.when} of {item.nodeid}"
        if wrong := AGREEMENT.agree(phase, report.outcome, report.longreprtext):
            report.outcome, report.longrepr = "failed", wrong
    return report
