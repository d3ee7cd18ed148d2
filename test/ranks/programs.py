"""Programs that print values: in one process with all devices, or in several that share them.

    python -m test.ranks.programs FOLDER DEVICES PROGRAM ...

Each rank prints to the file in FOLDER that has its number as name.
"""

from __future__ import annotations

import contextlib
import os
import resource
import runpy
import signal
import sys
import time
import weakref
from pathlib import Path

import numpy as np

from test.ranks import replays as replay_programs
from test.ranks import saves
from test.ranks.saves import SHARED
from test.test_examples import plain_digits
from tinygrad import GlobalCounters, Mesh, P, Sharding, Tensor, TinyJit, nn, ranks
from tinygrad.engine import CommTrace
from tinygrad.garbage import collect_if_alone
from tinygrad.nn import datasets
from tinygrad.ranks import mpi
from tinygrad.runtime.support.host_memory import used_slabs
from tinygrad.sharding import current_topology

Devices = tuple[str, ...]

# of programs that hang: many times what a rank on a busy machine takes to say where it is
HARD_LIMIT = 8


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-8, 8, shape).astype(np.float32)


def layouts(devices: Devices) -> None:
    x = Tensor(array(8, 12)).shard(devices, 0).realize()
    print(x.tolist(), x.to(Sharding(devices, 1)).tolist(), x.to(devices[-1]).tolist())
    print(x.sum(0).tolist(), (x @ x.T).tolist(), x.max().item(), x[3:].flip(0).tolist())
    print([shard.tolist() for shard in x.shards], x[Tensor([1, 0]).shard(devices)].tolist())
    uneven = Tensor(array(7, 3)).shard(devices, 0).realize()
    print(x[:0].to(Sharding(devices, 1)).contiguous().realize().shape)
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


def local_parts(devices: Devices) -> None:
    whole = array(8, 8)
    block = 8 // ranks.size()
    # messages are copied from huge pages
    assert (used_slabs() is not None) == (ranks.size() > 1)
    own = slice(block * ranks.rank(), block * (ranks.rank() + 1))
    x = Tensor.from_local(whole[own], Sharding(devices, 0))
    y = Tensor.from_local(whole[:, own], Sharding(devices, 1))
    print(x.tolist(), (x @ y).tolist())
    # the last rank has one row less
    uneven = Tensor.from_local(whole[:7][own], Sharding(devices, 0), shape=(7, 8))
    print(uneven.tolist())
    mine = x.realize().shards[len(devices) // ranks.size() * ranks.rank()]
    with ranks.alone():
        found = mine.numpy()
    assert (found == whole[own][: len(found)]).all()


def lifetimes(devices: Devices) -> None:
    """What a function has dies when it returns, since no thread holds its frame: what is alive
    decides what is computed.
    """

    def work() -> weakref.ref[Tensor]:
        x = Tensor(array(4, 4)).shard(devices, 0).realize()
        time.sleep(0.7)  # longer than the time after which a rank looks for what others ask
        return weakref.ref(x)

    print(work()())


def hosts(devices: Devices) -> None:
    print(Tensor(array(8, 4)).shard(devices, 0).sum(0).tolist() == array(8, 4).sum(0).tolist())
    print([[name for name in node if "NULL" in name] for node in current_topology().nodes])
    # devices that are peers within a host
    peers = tuple(name.replace("CPU", "NULL") for name in devices)
    x = Tensor.empty(4, 1 << 18, device=Sharding(peers, 0)).realize()
    with CommTrace() as trace:
        x.sum(0).realize()
    print(*{record.algorithm for record in trace.records})


def files(devices: Devices) -> None:
    layouts = [Sharding(devices, 0), Sharding(devices, 1), Sharding(devices), devices[-1], None]
    saved = {str(layout): Tensor(array(7, 8), device=layout) for layout in layouts}
    path = Path(SHARED[0])
    nn.state.safe_save(saved, path)
    print(path.stat().st_size)
    for name, tensor in nn.state.safe_load(path).items():
        print(name, tensor.tolist(), [tensor.to(layout).tolist() for layout in layouts[:-1]])
    model = nn.Linear(8, 7)
    model.weight.shard_(devices, 1)
    nn.state.load_state_dict(
        model, {"weight": nn.state.safe_load(path)["None"], "bias": Tensor.zeros(7)}, verbose=False
    )
    print(model.weight.device, model.weight.tolist())


def saves_where_one_rank_cannot(devices: Devices) -> None:
    path = Path(SHARED[0])
    value = Tensor(array(64, 64)).shard(devices, 0)
    nn.state.safe_save({"x": value}, path)
    if ranks.rank() == 1:
        limit = 10_000
        # a write past the limit is an error, not the end of the process
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        nn.state.safe_save({"x": value + 1}, path)
    except OSError as error:
        print("File too large" in str(error), "on rank 1" in str(error))
    print(
        nn.state.safe_load(path)["x"].tolist() == value.tolist(), len(list(path.parent.iterdir()))
    )


def example(devices: Devices) -> None:
    datasets.mnist = plain_digits
    os.environ |= {"GPUS": str(len(devices)), "BS": "32", "STEPS": "4"}
    path = Path(__file__).parents[2] / "examples" / "beautiful_mnist_multigpu.py"
    sys.path.insert(0, str(path.parent))
    found = runpy.run_path(str(path), run_name="__main__")
    print(found["loss"].item(), found["test_acc"], found["model"].layers[0].weight.tolist())


def loops(devices: Devices) -> None:
    mpi.HARD_LIMIT = HARD_LIMIT
    while ranks.rank() == 1:
        pass
    layouts(devices)


def exits(devices: Devices) -> None:
    if ranks.rank() == 1:
        sys.exit("no more on rank 1")
    layouts(devices)


def stops(devices: Devices) -> None:
    mpi.HARD_LIMIT = HARD_LIMIT
    if ranks.rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    layouts(devices)


def has_no_memory(devices: Devices) -> None:
    Tensor.ones(2).shard(devices, 0).contiguous().realize()
    if ranks.rank() == 1:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (256 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    Tensor.ones(1 << 28).shard(devices, 0).contiguous().realize()


def waits_for_ever(devices: Devices) -> None:
    print("waits", flush=True)
    time.sleep(1000)


def exchanges_for_ever(devices: Devices) -> None:
    mpi.HARD_LIMIT = HARD_LIMIT
    x = Tensor(array(8, 4)).shard(devices, 0).realize()
    while True:
        x.sum(0).realize()
        print("exchanges", flush=True)


def raises(devices: Devices) -> None:
    if ranks.rank() == 1:
        raise ValueError("on rank 1")
    layouts(devices)


def ends_early(devices: Devices) -> None:
    if ranks.rank() == 0:
        layouts(devices)


def exits_at_once(devices: Devices) -> None:
    if ranks.rank() == 1:
        os._exit(0)
    layouts(devices)


def exits_at_once_with_an_error(devices: Devices) -> None:
    if ranks.rank() == 1:
        os._exit(3)
    layouts(devices)


def exits_at_once_on_all(devices: Devices) -> None:
    """A program that skips its exit hooks, once nothing is left to do."""
    Tensor(array(8, 4)).shard(devices, 0).realize()
    sys.stdout.flush()
    if ranks.rank() == 1 and os.fork() == 0:
        os._exit(0)  # a child is no rank
    os._exit(0)


def ends_with_another_step(devices: Devices) -> None:
    layouts(devices)
    x = Tensor(array(4)).realize()
    if ranks.rank() == 1:
        # no message follows that would tell
        (x + 1).realize()


def collects_alone(devices: Devices) -> None:
    """A lazy reader in a reference cycle is alive on all ranks, or on none."""
    x = Tensor(array(8, 4)).shard(devices, 0).realize()
    cycle = [x.sum()]
    cycle.append(cycle)
    del cycle
    if ranks.rank() == 1:
        # as when memory runs out
        collect_if_alone()
    GlobalCounters.reset()
    x.assign(x + 1)
    print(x.tolist(), GlobalCounters.kernel_count > 0)


def is_killed(devices: Devices) -> None:
    if ranks.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    layouts(devices)


def reads_on_one(devices: Devices) -> None:
    x = Tensor(array(8, 4)).shard(devices, 0).realize()
    if ranks.rank() == 0:
        print(x.sum().item())
    print(x.max(0).tolist())


def reads_unequal_arrays(devices: Devices) -> None:
    x = Tensor(array(8, 4) + ranks.rank()).shard(devices, 0)
    print(x.tolist())


def computes_alone(devices: Devices) -> None:
    x = Tensor(array(8, 4)).shard(devices, 0).realize()
    with ranks.alone():
        print(x.sum().item())


def computes_another_value(devices: Devices) -> None:
    x = Tensor(array(8, 4)).shard(devices, 0).realize()
    print((x.sum() if ranks.rank() == 0 else x.max()).item())


def main() -> None:
    folder, count, *names = sys.argv[1:]
    path = Path(folder, str(ranks.rank()))
    SHARED.append(f"{folder}-saved/values.safetensors")
    with path.open("w") as output, contextlib.redirect_stdout(output):
        for name in names:
            modules = vars(replay_programs) | vars(saves) | globals()
            program = modules[name]
            program(tuple(f"CPU:{number}" for number in range(int(count))))


if __name__ == "__main__":
    main()
