"""Saving while the program goes on: a snapshot, its errors, and what a crash leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path

import numpy as np
import pytest

from tinygrad import Sharding, Tensor, TinyJit
from tinygrad.nn.state import Saving, async_save, safe_load, safe_save
from tinygrad.nn.state.shard_io import Piece

DEVICES = ("CPU", "CPU:1")
VALUES = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Nothing but the header is written before this event."""
    event = threading.Event()
    write = Piece.write

    def wait_and_write(piece: Piece, file: BufferedRandom) -> Iterator[int]:
        assert piece.starts[0] == 0 or event.wait(30)
        yield from write(piece, file)

    monkeypatch.setattr(Piece, "write", wait_and_write)
    yield event
    event.set()


def test_a_snapshot_is_saved_whatever_is_written_meanwhile(
    tmp_path: Path, gate: threading.Event
) -> None:
    layouts = [None, Sharding(DEVICES, 0), Sharding(DEVICES, 1), Sharding(DEVICES)]
    tensors = {str(layout): Tensor(VALUES, device=layout).contiguous() for layout in layouts}
    tensors |= {"lazy": Tensor(VALUES).T + 1, "empty": Tensor([]), "view": tensors["None"][1:, :2]}
    path, other = tmp_path / "t.safetensors", tmp_path / "u.safetensors"
    gate.set()
    safe_save(tensors, path, {"step": "1"})
    wanted = path.read_bytes()
    safe_save({"old": Tensor([5.0])}, path)
    gate.clear()

    written = [tensors[str(layout)] for layout in layouts]

    @TinyJit
    def change() -> None:
        for x in written:
            x.assign(x * 2 + 1)
        Tensor.realize(*written)

    for _ in range(3):
        change()
        for x in written:
            x.assign(Tensor(VALUES).to(x.device)).realize()
    saving = async_save(tensors, path, {"step": "1"})
    change()
    # the old file is there until the new one is whole
    old = safe_load(path)
    assert (list(old), saving.done(), 0 <= saving.progress < 1) == (["old"], False, True)
    gate.set()
    saving.wait()
    assert (saving.done(), saving.progress, saving.written) == (True, 1, saving.nbytes)
    assert path.read_bytes() == wanted
    # a tensor of the file that was replaced while it was saved
    assert old["old"].tolist() == [5]
    assert written[1].tolist() == (VALUES * 2 + 1).tolist()
    # calls are in order, and each waits for the last
    first = async_save({"x": Tensor([1.0])}, other)
    safe_save({"x": Tensor([2.0])}, other)
    assert first.done() and safe_load(other)["x"].tolist() == [2]
    assert sorted(tmp_path.iterdir()) == [path, other]


def test_an_error_is_raised_once_by_wait_or_by_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, x = tmp_path / "t.safetensors", {"x": Tensor([1.0])}

    def failing_save() -> Saving:
        def fail(piece: Piece, file: BufferedRandom) -> Iterator[int]:
            raise OSError("no space left")

        with monkeypatch.context() as patch:
            patch.setattr(Piece, "write", fail)
            saving = async_save(x, path)
            while not saving.done():
                time.sleep(0.01)
        return saving

    saving = failing_save()
    with pytest.raises(OSError, match="no space left"):
        saving.wait()
    saving.wait()
    for save in (safe_save, async_save):
        failing_save()
        with pytest.raises(OSError, match="no space left"):
            save(x, path)
        assert not list(tmp_path.iterdir())
    safe_save(x, path)
    # names and dtypes are checked at once
    with pytest.raises(ValueError, match="__metadata__"):
        async_save({"__metadata__": Tensor([1])}, path)


PROGRAM = """
import sys, threading, time
from tinygrad import Tensor
from tinygrad.nn.state import async_save, safe_save
from tinygrad.nn.state.shard_io import Piece
path, how = sys.argv[1:]
x = Tensor([1.0, 2.0])
safe_save({"x": x}, path)
if how == "killed":
    def wait(piece, file):
        print("waits", flush=True)
        yield threading.Event().wait()
    Piece.write = wait
saving = async_save({"x": x + 1}, path if how != "fails" else path + "/t.safetensors")
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ends", "killed", "fails"])
def test_a_process_that_ends_finishes_its_file_and_a_killed_one_leaves_the_old(
    how: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.safetensors"
    command = [sys.executable, "-c", PROGRAM, str(path), how]
    done = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    if how == "killed":
        assert done.stdout is not None and done.stdout.readline() == "waits\n"
        done.kill()
    _, errors = done.communicate(timeout=60)
    assert safe_load(path)["x"].tolist() == ([2, 3] if how == "ends" else [1, 2])
    assert ("Error" in errors) == (how == "fails")
    # the next to save removes what a killed one left
    safe_save({"x": Tensor([7.0])}, path)
    assert list(tmp_path.iterdir()) == [path]
