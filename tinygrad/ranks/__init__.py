"""Several processes run one program, each on its own devices.

Every process, a rank, runs the same Python and builds the same graph. It plans and runs what its
own devices do, and exchanges messages with the others. Reading a value on the host is done by all
ranks together, and gives the same value to all.

    mpiexec -n 2 env RANKS=mpi python program.py

or `tinygrad.ranks.join()` at the start of the program, which does nothing in one process. Device
`CPU:5` belongs to rank `5 // per_rank`.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from tinygrad.errors import ArgumentError
from tinygrad.execution.wire import current_wire, set_wire
from tinygrad.garbage import collect_with_others
from tinygrad.ranks.alone import alone
from tinygrad.ranks.ending import Ends
from tinygrad.ranks.mpi import MpiWire
from tinygrad.ranks.steps import RanksError
from tinygrad.settings import CPU_COUNT, DEBUG, RANK_DEVICES, RANK_HOST, RANKS, getenv
from tinygrad.sharding import (
    PROCESSES,
    LocalDevices,
    Rank,
    Topology,
    set_local_devices,
    set_topology,
)

__all__ = ["RanksError", "alone", "end_all", "gather", "join", "listen", "rank", "size", "tell"]

# the variables in which launchers tell a process how many there are; the last launcher may have
# started one of the others on each host
_LAUNCHERS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
# of each of which a rank has its own devices
_KINDS = ("CPU", "CUDA", "AMD", "METAL", "CL", "NULL")


class _Joined:
    rank: Rank | None = None
    wire: MpiWire | None = None
    ends: Ends | None = None


def rank() -> int:
    """The number of this process, 0 if it has not joined others."""
    return 0 if _Joined.rank is None else _Joined.rank.number


def size() -> int:
    """The number of processes."""
    return 1 if _Joined.rank is None else _Joined.rank.size


def gather(value: Any) -> list[Any]:
    """The value of each rank, in the order of ranks, on all ranks: a count, a name, a small array.

    All ranks call this together. A process that has not joined others gets its own value.

    >>> gather(3)
    [3]
    """
    return current_wire().gather(value)


def tell(value: Any) -> None:
    """Send a value from rank 0 to all others, each of which gets it from `listen`. Does nothing in
    a process that has not joined others.

    Raises:
        RanksError: this is not rank 0.
    """
    if rank():
        raise RanksError(f"rank {rank()} tells a value; let rank 0 do it, and all others listen")
    if _Joined.wire is not None:
        _Joined.wire.tell(value)


def listen() -> Any:
    """The next value that rank 0 tells. This rank sleeps until then, for any time.

    Raises:
        RanksError: this is rank 0, or no other one.
    """
    if _Joined.wire is None or not rank():
        raise RanksError("rank 0 listens to nobody; let it tell, and all others listen")
    return _Joined.wire.listen()


def end_all(reason: str) -> None:
    """End all ranks with status 1, after a report. Does nothing in a process that has not joined
    others.
    """
    if _Joined.ends is not None:
        _Joined.ends.end_all(1, reason)


def join(transport: str = "mpi", per_rank: int | None = None) -> None:
    """Join the other processes of an MPI launcher, each of which has `per_rank` devices of each
    kind, `RANK_DEVICES` if that is not given. Does nothing in a process that was started alone, or
    that has joined before. A launcher other than `mpiexec` and SLURM is noticed with `RANKS=mpi`.

    Raises:
        RanksError: `mpi4py` is missing, or the launcher is of another MPI than the library.
        ArgumentError: an unknown transport.
    """
    if _Joined.rank is not None:
        return
    if transport != "mpi":
        raise ArgumentError(f"no transport {transport!r}; use 'mpi'")
    launcher, told = _find_launcher()
    if told < 2 and not RANKS.value:
        return
    mpi = _load_mpi()
    world = mpi.COMM_WORLD
    if told > 1 and told != world.size:
        raise RanksError(
            f"the launcher started {told} processes ({launcher}), but the MPI library of mpi4py "
            f"sees {world.size}: use the launcher of the same MPI"
        )
    if world.size == 1:
        return
    # a process that is alone loads no runtime before it uses one
    from tinygrad.runtime.support.host_memory import use_huge_pages

    joined = _Joined.rank = Rank(world.rank, world.size, per_rank or RANK_DEVICES.value)
    hosts: list[str] = world.allgather(RANK_HOST.value or mpi.Get_processor_name())
    if not CPU_COUNT.value:
        on_host = hosts.count(hosts[joined.number])
        CPU_COUNT.value = max(1, len(os.sched_getaffinity(0)) // on_host)
    nodes = _devices_of_hosts(hosts, joined.per_rank) if len(set(hosts)) > 1 else ()
    set_topology(Topology(nodes=nodes, same_memory=PROCESSES))
    wire = _Joined.wire = MpiWire(mpi, joined)
    set_local_devices(LocalDevices(rank=joined))
    set_wire(wire)
    use_huge_pages()
    # from now on the wire collects garbage, at the same steps in all ranks
    collect_with_others()
    _Joined.ends = Ends(mpi, wire)
    if DEBUG >= 1:
        print(f"rank {joined.number} of {joined.size} joined by {mpi.Get_library_version()!r}")


def _devices_of_hosts(hosts: list[str], per_rank: int) -> tuple[tuple[str, ...], ...]:
    """The names of the devices of each host, given the host of each rank."""
    found: dict[str, list[str]] = {}
    for number, host in enumerate(hosts):
        devices = range(number * per_rank, (number + 1) * per_rank)
        found.setdefault(host, []).extend(f"{kind}:{n}" for kind in _KINDS for n in devices)
    return tuple(map(tuple, found.values()))


def _load_mpi() -> Any:
    try:
        return importlib.import_module("mpi4py.MPI")
    except ImportError as error:
        raise RanksError(
            f"ranks need an MPI library and mpi4py: pip install mpi4py mpich ({error})"
        ) from error


def _find_launcher() -> tuple[str, int]:
    """The variable of the launcher that started this process, and the number of processes in it; 0
    if there is none.
    """
    for name in _LAUNCHERS:
        if told := getenv(name):
            return name, told
    return "", 0
