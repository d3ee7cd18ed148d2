"""Programs that save while they go on."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import numpy as np

from tinygrad import Sharding, Tensor, TinyJit, nn, ranks

Devices = tuple[str, ...]
SHARED: list[str] = []
"""The path of a file that all ranks see."""


def shared_folder() -> Path:
    """The folder of that file."""
    folder = Path(SHARED[0]).parent
    folder.mkdir(exist_ok=True)
    return folder


def saves_beside(devices: Devices) -> None:
    """A snapshot is saved while replays and reads go on."""
    path = shared_folder()
    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = Tensor(values).shard(devices, 0).realize()
    tensors = {"rows": x, "columns": x.to(Sharding(devices, 1)), "one": Tensor(values) + 1}

    @TinyJit
    def step() -> Tensor:
        x.assign(x + x.sum(0)).realize()
        return x.max().realize()

    for number in range(3):
        Tensor.realize(*tensors.values())
        wanted = {name: tensor.tolist() for name, tensor in tensors.items()}
        saving = nn.state.async_save(tensors, path / f"{number}.safetensors")
        print([step().item() for _ in range(4)])
        if number < 2:
            saving.wait()
    # the last one is finished at the end
    found = nn.state.safe_load(path / "1.safetensors")
    print({name: tensor.shape for name, tensor in found.items()}, saving.nbytes > 0)
    x.assign(Tensor(values).shard(devices, 0)).realize()
    saving.wait()
    found = nn.state.safe_load(saving.path)
    print({name: tensor.tolist() for name, tensor in found.items()} == wanted, saving.progress)


def saves_beside_where_one_rank_cannot(devices: Devices) -> None:
    """What fails on one rank is raised on all, and the old file stays."""
    value = Tensor(np.ones((64, 64), np.float32)).shard(devices, 0)
    path = shared_folder()
    file = path / "x.safetensors"
    nn.state.safe_save({"x": value}, file)
    if ranks.rank() == 1:
        # a write past the limit is an error, not the end of the process
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    saving = nn.state.async_save({"x": value + 1}, file)
    total = value.sum().item()
    try:
        saving.wait()
    except OSError as error:
        print("File too large" in str(error), "on rank 1" in str(error), total)
    print(nn.state.safe_load(file)["x"].tolist() == value.tolist(), len(list(path.iterdir())))


def saves_on_one(devices: Devices) -> None:
    """Rank 1 does not save."""
    x = Tensor(np.ones((8, 8), np.float32)).shard(devices, 0).realize()
    if ranks.rank() == 0:
        nn.state.async_save({"x": x}, SHARED[0])
    print(x.sum().item())
