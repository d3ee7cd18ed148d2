"""What ranks measure: prints "name ours peer", in milliseconds, a line for each.

    mpiexec -n 2 python -m test.benchmark.rank_programs transfers allreduces step

`step` and `mnist` measure in one process too, with all devices, and have no peer of their own.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from test.benchmark.mnist_step import training_step
from tinygrad import Sharding, Tensor, TinyJit, ranks

DEVICES = ("CPU:0", "CPU:1")
TRANSFERS = (1 << 20, 1 << 24, 1 << 26)
ALLREDUCES = (256, 4096, 32768, 1 << 26)
CHAIN = 16
"""The small all-reduces of a captured function, each of which needs the last."""
RUNS = 31


def barrier() -> None:
    """Waits for all ranks."""
    if ranks.size() > 1:
        from mpi4py import MPI

        MPI.COMM_WORLD.Barrier()


def medians_ms(functions: Sequence[Callable[[], object]], batch: int) -> list[float]:
    """The median times of functions that run in turn; a run takes as long as on the last rank."""
    times: list[list[float]] = [[] for _ in functions]
    for run in range(RUNS + 2):
        for function, found in zip(functions, times, strict=True):
            barrier()
            start = time.perf_counter()
            for _ in range(batch):
                function()
            elapsed_ms = (time.perf_counter() - start) * 1e3 / batch
            if run >= 2:
                found.append(max(ranks.gather(elapsed_ms)))
    return [statistics.median(found) for found in times]


def show(name: str, milliseconds: Sequence[float]) -> None:
    """Prints what was measured, on one rank."""
    if ranks.rank() == 0:
        print("measured", name, *milliseconds, flush=True)


def replayed(function: Callable[[], Tensor]) -> TinyJit[[], Tensor]:
    """A captured function that is ready to be replayed."""
    step = TinyJit(lambda: function().realize())
    for _ in range(3):
        step()
    return step


def raw_exchange(nbytes: int) -> Callable[[], None]:
    """Persistent requests that exchange arrays with the other rank."""
    from mpi4py import MPI

    world, own = MPI.COMM_WORLD, np.ones(nbytes, np.uint8)
    other, kept = 1 - world.rank, np.empty(nbytes, np.uint8)
    requests = [world.Recv_init(kept, other, 1), world.Send_init(own, other, 1)]

    def exchange() -> None:
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)

    return exchange


def transfers() -> None:
    """Blocks that two ranks exchange."""
    for nbytes in TRANSFERS:
        count = 2 * nbytes // 4
        x = Tensor(np.arange(count, dtype=np.float32)).shard(DEVICES, 0).realize()
        ours = replayed(lambda x=x: x.to(Sharding(DEVICES[::-1], 0)))  # type: ignore[misc]
        batch = max((1 << 26) // nbytes, 1)
        show(f"transfer-{nbytes}", medians_ms([ours, raw_exchange(nbytes)], min(batch, 16)))


def raw_all_to_all(nbytes: int) -> Callable[[], None]:
    """An all-reduce of two ranks by messages, of partial sums that they compute: each reduces one
    half.
    """
    from mpi4py import MPI

    world, count = MPI.COMM_WORLD, nbytes // 8
    other = 1 - world.rank
    values, own, result = (np.ones(2 * count, np.float32) for _ in range(3))
    received = np.empty(count, np.float32)
    mine, theirs = (slice(r * count, (r + 1) * count) for r in (world.rank, other))

    def exchange(receive: Any, send: Any) -> None:
        MPI.Request.Waitall([world.Irecv(receive, other, 2), world.Isend(send, other, 2)])

    def allreduce() -> None:
        np.multiply(values, 2, out=own)
        exchange(received, own[theirs])
        np.add(own[mine], received, out=result[mine])
        exchange(result[theirs], result[mine])

    return allreduce


def chained_allreduces(nbytes: int) -> Callable[[], None]:
    """Small all-reduces by MPI, with the arithmetic of `chain`."""
    from mpi4py import MPI

    count, world = nbytes // 4, MPI.COMM_WORLD
    own, total, found = (np.ones(count, np.float32) for _ in range(3))

    def allreduces() -> None:
        np.copyto(found, own)
        for _ in range(CHAIN):
            world.Allreduce(found, total)
            np.multiply(total, 0.25, out=total)
            np.add(own, total, out=found)

    return allreduces


def chain(x: Tensor) -> Tensor:
    """Small all-reduces, each of which needs the last."""
    found = x
    for _ in range(CHAIN):
        found = x + found.sum(0) * 0.25
    return found


def allreduces() -> None:
    """All-reduces by replays and by MPI; a small one is one of a chain."""
    for nbytes in ALLREDUCES:
        rows = np.ones((2, nbytes // 4), np.float32)
        x = Tensor(rows).shard(DEVICES, 0).realize()
        if nbytes < 1 << 16:
            ours = replayed(lambda x=x: chain(x))  # type: ignore[misc]
            found = medians_ms([ours, chained_allreduces(nbytes)], 20)
            show(f"allreduce-{nbytes}", [milliseconds / CHAIN for milliseconds in found])
        else:
            ours = replayed(lambda x=x: (x * 2).sum(0))  # type: ignore[misc]
            show(f"allreduce-{nbytes}", medians_ms([ours, raw_all_to_all(nbytes)], 1))


def step() -> None:
    """A captured step with a small all-reduce, and reading its replicated result."""
    x = Tensor(np.ones((64, 64), np.float32)).shard(DEVICES, 0).realize()
    w = Tensor(np.eye(64, dtype=np.float32)).shard(DEVICES).realize()
    captured = replayed(lambda: (x @ w).square().mean(0))
    result = captured()
    show("step", medians_ms([captured], 100))
    show("numpy", medians_ms([result.numpy], 100))


def mnist() -> None:
    """A training step of the MNIST network."""
    captured = training_step(2)
    for _ in range(3):
        captured()
    show("mnist", medians_ms([captured], 1))


def main() -> None:
    ranks.join()
    for name in sys.argv[1:]:
        globals()[name]()


if __name__ == "__main__":
    main()
