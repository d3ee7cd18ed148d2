"""Ranks of Open MPI have the values of one process, and a failure of one ends all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from test.ranks.open_mpi import open_mpi
from test.ranks.test_mpi import LIMIT_S, ROOT, all_end, needs_mpi, run

pytestmark = [pytest.mark.slow, needs_mpi]


def launch(folder: Path, *programs: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    mpi = open_mpi()
    own = {"PYTHONPATH": str(ROOT), "RANKS": "mpi", "RANKS_TIMEOUT": "1", "DEBUG": "1"}
    return subprocess.run(
        [
            *mpi.launcher,
            "-n",
            "2",
            sys.executable,
            "-m",
            "test.ranks.programs",
            str(folder),
            "2",
            *programs,
        ],
        cwd=ROOT,
        env=os.environ | mpi.settings | own,
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT_S,
    )


def test_ranks_of_open_mpi_have_the_values_of_one_process(tmp_path: Path) -> None:
    programs = ["layouts", "writes", "training", "mesh", "files", "exits_at_once_on_all"]
    one = run(tmp_path / "one", *programs)
    several = launch(tmp_path / "several", *programs)
    assert (one.returncode, several.returncode) == (0, 0), several.stderr
    assert "joined by 'Open MPI" in several.stdout
    for rank in range(2):
        found = (tmp_path / "several" / str(rank)).read_text()
        assert found == (tmp_path / "one" / "0").read_text()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raises", "rank 1 of 2 ends all ranks:"),
        ("loops", "rank 1 is at "),
        ("exits_at_once", "rank 1 does the end of the program at "),
        ("reads_on_one", "ranks diverged at step"),
        ("is_killed", "signal 9 (Killed)"),
    ],
)
def test_a_failure_of_one_rank_of_open_mpi_ends_all(
    program: str, message: str, tmp_path: Path
) -> None:
    done = launch(tmp_path / "output", program)
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
    assert all_end(tmp_path / "output")
