"""Replays on several ranks have the values of one process, and notice that ranks diverge."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.ranks.test_mpi import all_end, pytestmark, run

__all__ = ["pytestmark"]

PROGRAMS = [
    *("replays", "captures", "one_note_a_replay", "one_start_an_exchange", "memory_of_one_rank"),
    *("arguments_in_one_buffer", "writes_of_one_shard"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "devices"), [(2, 2), (2, 4), (4, 4)])
def test_replays_have_the_values_of_one_process(
    processes: int, devices: int, tmp_path: Path
) -> None:
    one = run(tmp_path / "one", *PROGRAMS, devices=devices)
    several = run(tmp_path / "several", *PROGRAMS, devices=devices, processes=processes)
    assert (one.returncode, several.returncode) == (0, 0), several.stderr
    wanted = (tmp_path / "one" / "0").read_text()
    for rank in range(processes):
        assert (tmp_path / "several" / str(rank)).read_text() == wanted
    # all requests were freed
    assert "persistent request" not in several.stderr


@pytest.mark.slow
def test_ranks_that_replay_different_captures_are_told_so(tmp_path: Path) -> None:
    done = run(tmp_path / "output", "replays_another", processes=2)
    assert done.returncode != 0
    assert "a replay of a captured function" in done.stderr
    assert done.stderr.count("test/ranks/replays.py:") >= 2
    assert all_end(tmp_path)
