"""Ranks save one file while they go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.ranks.test_mpi import all_end, pytestmark, run

__all__ = ["pytestmark"]


@pytest.mark.slow
def test_ranks_save_a_snapshot_while_they_go_on(tmp_path: Path) -> None:
    one = run(tmp_path / "one", "saves_beside")
    several = run(tmp_path / "several", "saves_beside", processes=2)
    assert (one.returncode, several.returncode) == (0, 0), several.stderr
    wanted = (tmp_path / "one" / "0").read_text()
    assert wanted.endswith("True 1.0\n")
    for rank in range(2):
        assert (tmp_path / "several" / str(rank)).read_text() == wanted
    for number in range(3):
        saved = [tmp_path / f"{x}-saved" / f"{number}.safetensors" for x in ("one", "several")]
        assert saved[0].read_bytes() == saved[1].read_bytes()


@pytest.mark.slow
def test_a_rank_that_cannot_write_beside_is_an_error_of_all(tmp_path: Path) -> None:
    done = run(tmp_path / "output", "saves_beside_where_one_rank_cannot", processes=2)
    assert done.returncode == 0, done.stderr
    printed = [(tmp_path / "output" / str(rank)).read_text().split() for rank in range(2)]
    kept = ["True", "1"]
    assert printed == [["True", "True", "4096.0", *kept], ["True", "False", "4096.0", *kept]]


@pytest.mark.slow
def test_a_rank_that_saves_alone_is_told_so(tmp_path: Path) -> None:
    done = run(tmp_path / "output", "saves_on_one", processes=2)
    assert done.returncode != 0
    assert "an async_save" in done.stderr and "ranks diverged" in done.stderr
    assert all_end(tmp_path)
