"""Programs that print values: in one process with all devices, or in several that share them.

    python -m test.ranks.programs FOLDER DEVICES PROGRAM ...

Each rank prints to the file in FOLDER that has its number as name.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys
from pathlib import Path

import numpy as np

from test.test_examples import plain_digits
from tinygrad import Mesh, P, Sharding, Tensor, TinyJit, nn, ranks
from tinygrad.nn import datasets

Devices = tuple[str, ...]


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-8, 8, shape).astype(np.float32)


def layouts(devices: Devices) -> None:
    x = Tensor(array(8, 12)).shard(devices, 0).realize()
    print(x.tolist(), x.to(Sharding(devices, 1)).tolist(), x.to(devices[-1]).tolist())
    print(x.sum(0).tolist(), (x @ x.T).tolist(), x.max().item(), x[3:].flip(0).tolist())
    print([shard.tolist() for shard in x.shards], x[Tensor([1, 0]).shard(devices)].tolist())
    uneven = Tensor(array(7, 3)).shard(devices, 0).realize()
    print(uneven.cumsum(0).tolist(), uneven.sort(0)[0].tolist(), uneven.reshape(-1).tolist())


def writes(devices: Devices) -> None:
    x = Tensor(array(8, 4)).shard(devices, 0).realize()
    view = x[1:3]
    x[2:5] = 7.0
    print(x.tolist(), view.tolist())
    x.assign(x + 1)
    print(x.tolist(), x.masked_select(x > 3).tolist())


def training(devices: Devices) -> None:
    Tensor.manual_seed(3)
    model = [nn.Linear(8, 16), Tensor.relu, nn.Linear(16, 4)]
    parameters = nn.state.get_parameters(model)
    for parameter in parameters:
        parameter.shard_(devices)
    optimizer = nn.optim.Adam(parameters, lr=0.01)
    x = Tensor(array(16, 8)).shard(devices, 0).realize()
    y = (Tensor.arange(16) % 4).shard(devices, 0).realize()

    @TinyJit
    @Tensor.train()
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        hidden = x.sequential(model).dropout(0.2)
        loss = hidden.sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    print([step(x + number).item() for number in range(6)])
    print(parameters[0].tolist())


def mesh(devices: Devices) -> None:
    grid = Mesh((2, len(devices) // 2), ("dp", "tp"), devices)
    x = Tensor(array(8, 8)).shard(grid, P("dp")).realize()
    w = Tensor(array(8, 4)).shard(grid, P("tp")).realize()
    print((x @ w).relu().tolist(), (x @ w).square().mean().item())


def example(devices: Devices) -> None:
    datasets.mnist = plain_digits
    os.environ |= {"GPUS": str(len(devices)), "BS": "32", "STEPS": "4"}
    path = Path(__file__).parents[2] / "examples" / "beautiful_mnist_multigpu.py"
    found = runpy.run_path(str(path), run_name="__main__")
    print(found["loss"].item(), found["test_acc"], found["model"].layers[0].weight.tolist())


def raises(devices: Devices) -> None:
    if ranks.rank() == 1:
        raise ValueError("on rank 1")
    layouts(devices)


def ends_early(devices: Devices) -> None:
    if ranks.rank() == 0:
        layouts(devices)


def is_killed(devices: Devices) -> None:
    if ranks.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    layouts(devices)


def reads_on_one(devices: Devices) -> None:
    x = Tensor(array(8, 4)).shard(devices, 0).realize()
    if ranks.rank() == 0:
        print(x.sum().item())
    print(x.max(0).tolist())


def computes_another_value(devices: Devices) -> None:
    x = Tensor(array(8, 4)).shard(devices, 0).realize()
    print((x.sum() if ranks.rank() == 0 else x.max()).item())


def main() -> None:
    folder, count, *names = sys.argv[1:]
    path = Path(folder, str(ranks.rank()))
    with path.open("w") as output, contextlib.redirect_stdout(output):
        for name in names:
            globals()[name](tuple(f"CPU:{number}" for number in range(int(count))))


if __name__ == "__main__":
    main()
