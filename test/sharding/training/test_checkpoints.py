"""Checkpoints: saving on one mesh and loading on another, and recovery from a killed save."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from test.devices import DEVICE, device_names, only_one_process
from test.sharding.common import Array, array
from test.together import CommTrace, GlobalCounters
from tinygrad import Mesh, P, Sharding, Tensor, nn
from tinygrad.nn.optim import AdamW
from tinygrad.nn.state import (
    get_parameters,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_save,
)
from tinygrad.runtime.disk import DiskFile

ROOT = Path(__file__).parents[3]
EIGHT = device_names(8)
GRID = Mesh((2, 2), ("data", "model"), EIGHT[:4])


class Layout:
    """The layouts of a matrix and a vector."""

    def __init__(self, matrix: Any, vector: Any) -> None:
        self.matrix, self.vector = matrix, vector

    def of(self, x: Tensor) -> Any:
        places = {2: self.matrix, 1: self.vector}
        copies = self.matrix.replicated() if isinstance(self.matrix, Sharding) else self.matrix
        return copies if x.numel() == 1 else places.get(x.ndim, copies)


MESHES = {
    "2 x 2": Layout(GRID.sharding(P("model", "data")), GRID.sharding(P("model"))),
    "4": Layout(Sharding(EIGHT[:4], 0), Sharding(EIGHT[:4], 0)),
    "4 columns": Layout(Sharding(EIGHT[:4], 1), Sharding(EIGHT[:4])),
    "8": Layout(Sharding(EIGHT, 0), Sharding(EIGHT, 0)),
    "3, which does not divide": Layout(Sharding(EIGHT[:3], 1), Sharding(EIGHT[:3], 0)),
    "1": Layout(DEVICE, DEVICE),
}


class Training:
    """A small network, its optimizer, and training steps; the step number determines the data."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.model = [nn.Linear(16, 32), nn.Linear(32, 8)]
        for parameter in get_parameters(self.model):
            parameter.to_(layout.of(parameter))
        self.optimizer = AdamW(get_parameters(self.model), lr=0.01)

    @property
    def state(self) -> dict[str, Tensor]:
        return {
            **get_state_dict(self.model, "model."),
            **get_state_dict(self.optimizer, "optimizer."),
        }

    def run(self, *steps: int) -> list[float]:
        losses = []
        copies = self.layout.of(Tensor(0.0))
        for step in steps:
            x = Tensor(array(8, 16, seed=step)).to(copies)
            with Tensor.train():
                self.optimizer.zero_grad()
                loss = (self.model[1](self.model[0](x).relu()) - 1).square().mean().backward()
                losses.append(loss.realize(*self.optimizer.schedule_step()).item())
        return losses


def values(state: dict[str, Tensor]) -> dict[str, Array]:
    return {name: x.numpy() for name, x in state.items()}


@contextmanager
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Collects the size of each file read."""
    found: list[int] = []
    read = DiskFile.read

    def counted(self: DiskFile, file: Any, offset: int, destination: memoryview) -> None:
        found.append(destination.nbytes)
        read(self, file, offset, destination)

    with monkeypatch.context() as patch:
        patch.setattr(DiskFile, "read", counted)
        yield found


CHANGES = [
    ("2 x 2", "4"),
    ("2 x 2", "4 columns"),
    ("8", "3, which does not divide"),
    ("3, which does not divide", "8"),
    ("8", "1"),
    ("1", "2 x 2"),
]


@pytest.mark.sample(8, values=False)
@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_checkpoint_is_loaded_on_another_mesh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    first = Training(MESHES[before])
    first.run(0, 1)
    with CommTrace() as trace:
        safe_save(first.state, tmp_path / "step.safetensors")
    saved = values(first.state)
    further = first.run(2, 3)

    second = Training(MESHES[after])
    state = second.state
    layouts = {name: x.device for name, x in state.items()}
    with trace, bytes_read(monkeypatch) as found:
        load_state_dict(
            {"model": second.model, "optimizer": second.optimizer},
            safe_load(tmp_path / "step.safetensors"),
            verbose=False,
        )
    assert trace.nbytes == 0
    for name, x in second.state.items():
        assert x.device == layouts[name]
        np.testing.assert_array_equal(x.numpy(), saved[name], err_msg=name)
    if after != "1":
        assert max(found) < max(x.nbytes() for x in state.values())
    np.testing.assert_allclose(second.run(2, 3), further, rtol=1e-5)


@pytest.mark.parametrize("mesh", MESHES)
def test_a_saved_file_does_not_depend_on_the_mesh(tmp_path: Path, mesh: str) -> None:
    tensors = {"matrix": Tensor(array(16, 12)), "vector": Tensor(array(13)), "one": Tensor([5.0])}
    safe_save({name: x.to(MESHES[mesh].of(x)) for name, x in tensors.items()}, tmp_path / "sharded")
    safe_save(tensors, tmp_path / "unsharded")
    assert (tmp_path / "sharded").read_bytes() == (tmp_path / "unsharded").read_bytes()
    loaded = safetensors.numpy.load_file(tmp_path / "sharded")
    np.testing.assert_array_equal(loaded["matrix"], array(16, 12))


def test_an_uneven_shard_takes_no_more_memory_than_its_block(tmp_path: Path) -> None:
    x = Tensor(array(1000, 64)).shard(EIGHT, 0).realize()
    safe_save({"x": x}, tmp_path / "x.safetensors")
    layout = Sharding(EIGHT[:3], 0)
    model = {"x": Tensor.empty(1000, 64).shard_(layout)}
    state = safe_load(tmp_path / "x.safetensors")
    GlobalCounters.reset()
    before = dict(GlobalCounters.mem_used_per_device)
    load_state_dict(model, state, verbose=False)
    for device in layout:
        assert GlobalCounters.mem_peak_per_device[device] - before[device] == 334 * 64 * 4
    np.testing.assert_array_equal(model["x"].numpy(), array(1000, 64))


# ---- interrupted saves ----

# saves a sharded model whose every element is the second argument; prints its progress, and waits
# for an answer before it continues
SAVER = """
import os, sys
from pathlib import Path
from tinygrad import Sharding, Tensor
from tinygrad.nn.state import safe_save, save

path, number = Path(sys.argv[1]), float(sys.argv[2])

def announced(function, moment, concerns=lambda *arguments: True):
    def call(*arguments):
        if concerns(*arguments):
            print(moment, flush=True)
            sys.stdin.readline()
        return function(*arguments)
    return call

devices = ("CPU", "CPU:1", "CPU:2")
state = {f"weight {i}": Tensor.full((300, 100), number).shard(devices, i % 2) for i in range(3)}
Tensor.realize(*state.values())
save._header = announced(save._header, "nothing written")
save.shard_pieces = announced(save.shard_pieces, "a tensor is next")
os.fsync = announced(os.fsync, "written")
# kernels are kept on disk in the same way
Path.replace = announced(Path.replace, "synced", lambda aside, target: target == path)
safe_save(state, path)
print("saved", flush=True)
"""
MOMENTS = ["nothing written", *["a tensor is next"] * 3, "written", "synced", "written"]


class Saver:
    """A process that saves, stopping at each checkpoint of progress; killed when the block ends."""

    def __init__(self, path: Path, number: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(path), str(number)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Saver:
        assert self._reached() == MOMENTS[0]
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.kill()
        self.process.communicate()

    def go_on(self) -> str:
        """Lets the process continue; returns its next position."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._reached()

    def _reached(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def content(path: Path) -> set[float]:
    """The distinct numbers in a file, which must be complete."""
    state = safetensors.numpy.load_file(path)
    assert [x.shape for x in state.values()] == [(300, 100)] * 3
    return {float(number) for x in state.values() for number in np.unique(x)}


@pytest.mark.slow
@only_one_process("kills a process of its own")
@pytest.mark.parametrize("steps", range(len(MOMENTS)))
def test_a_killed_save_leaves_the_old_file_and_the_next_one_cleans_up(
    tmp_path: Path, steps: int
) -> None:
    path = tmp_path / "model.safetensors"
    safe_save({f"weight {i}": Tensor.full((300, 100), 1.0) for i in range(3)}, path)
    with Saver(path, 2) as saver:
        reached = [MOMENTS[0], *(saver.go_on() for _ in range(steps))]
    assert reached == MOMENTS[: steps + 1]
    is_replaced = "synced" in reached[:-1]
    assert content(path) == {2.0 if is_replaced else 1.0}
    left = [p for p in tmp_path.iterdir() if p != path]
    assert len(left) == (0 if is_replaced or steps == 0 else 1)
    # the unfinished files are not read as a checkpoint
    assert all(p.name.startswith(".") and p.suffix != ".safetensors" for p in left)
    safe_save({f"weight {i}": Tensor.full((300, 100), 3.0) for i in range(3)}, path)
    assert list(tmp_path.iterdir()) == [path]
    assert content(path) == {3.0}


@pytest.mark.slow
@only_one_process("saves to the file that a process of its own saves to")
def test_the_files_of_a_save_in_progress_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with Saver(path, 2) as saver:
        assert [saver.go_on() for _ in range(2)] == MOMENTS[1:3]
        safe_save({f"weight {i}": Tensor.full((300, 100), 3.0) for i in range(3)}, path)
        assert content(path) == {3.0}
        assert [saver.go_on() for _ in range(5)] == [*MOMENTS[3:], "saved"]
    assert content(path) == {2.0}
    assert list(tmp_path.iterdir()) == [path]
