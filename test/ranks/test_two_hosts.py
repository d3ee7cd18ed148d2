"""Ranks on two hosts, which are network namespaces, where this machine allows it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from test.ranks.test_mpi import LIMIT_S, ROOT, all_end, launcher, needs_mpi, run
from test.ranks.two_hosts import TwoHosts, two_hosts

pytestmark = [pytest.mark.slow, needs_mpi]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[TwoHosts]:
    try:
        with two_hosts(tmp_path) as found:
            yield found
    except OSError as error:
        pytest.skip(f"no network namespaces: {error}")


def start(hosts: TwoHosts, folder: Path, *programs: str) -> subprocess.Popen[str]:
    folder.mkdir()
    program = [sys.executable, "-m", "test.ranks.programs", str(folder), "2", *programs]
    settings = {"PYTHONPATH": str(ROOT), "RANKS": "mpi", "RANKS_TIMEOUT": "1"}
    return subprocess.Popen(
        [*hosts.launcher(str(launcher())), *program],
        cwd=ROOT,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_two_hosts_have_the_values_of_one_process(hosts: TwoHosts, tmp_path: Path) -> None:
    programs = ["layouts", "training", "mesh", "files"]
    one = run(tmp_path / "one", *programs)
    started = start(hosts, tmp_path / "several", *programs, "hosts")
    output, _ = started.communicate(timeout=2 * LIMIT_S)
    assert (one.returncode, started.returncode) == (0, 0), output
    wanted = (tmp_path / "one" / "0").read_text()
    for rank in range(2):
        found = (tmp_path / "several" / str(rank)).read_text()
        assert found.startswith(wanted)
        # a node for each host
        assert "[['NULL:0'], ['NULL:1']]" in found


def test_a_link_that_goes_down_ends_all_ranks(hosts: TwoHosts, tmp_path: Path) -> None:
    folder = tmp_path / "output"
    started = start(hosts, folder, "exchanges_for_ever")
    while not all((folder / str(rank)).exists() for rank in range(2)) or not all(
        "exchanges" in (folder / str(rank)).read_text() for rank in range(2)
    ):
        assert started.poll() is None, started.communicate()[0]
        time.sleep(0.05)
    hosts.cut_link()
    output, _ = started.communicate(timeout=LIMIT_S)
    assert started.returncode
    assert "rank 0 waited" in output and "rank 1 does not answer" in output
    assert "test/ranks/programs.py:" in output and "RANKS_TIMEOUT" in output
    assert all_end(folder)
