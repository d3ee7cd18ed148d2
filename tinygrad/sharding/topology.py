"""The topology: which link connects two devices, and how fast links and devices are.

Input: device names. Output: their links. `communication_time.py` computes the time of communication
from them.
"""

from __future__ import annotations

import contextvars
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from tinygrad.sharding.device_names import device_kind, short_name
from tinygrad.sharding.placement import ShardingError


class Link(NamedTuple):
    """A class of links: latency in seconds, bandwidth in bytes a second.

    `is_readable` says that a kernel of one end may read the memory of the other.
    """

    name: str
    latency_s: float
    bandwidth: float
    is_readable: bool = False

    def seconds(self, nbytes: float) -> float:
        """The time of one round in which a device sends, or receives, at most `nbytes`."""
        return self.latency_s + nbytes / self.bandwidth if nbytes else 0.0


class Processor(NamedTuple):
    """The speed of a device: operations a second, and bytes of its own memory a second."""

    flops: float
    bandwidth: float


SAME_MEMORY: Final = Link("same memory", 2e-6, 20e9)
# measured between replays on two ranks of a host
PROCESSES: Final = Link("processes", 10e-6, 4e9)
PEER: Final = Link("peer", 5e-6, 300e9)
HOST: Final = Link("host", 10e-6, 20e9)
NETWORK: Final = Link("network", 15e-6, 25e9)

HOST_PROCESSOR: Final = Processor(flops=50e9, bandwidth=8e9)
ACCELERATOR: Final = Processor(flops=400e12, bandwidth=2e12)

# device kinds whose devices are one processor and share its memory
SHARED_MEMORY: Final = frozenset({"CPU"})


@dataclass(frozen=True)
class Topology:
    """Which link connects two devices.

    Devices of one kind are peers, or share the host's memory; devices of different kinds
    communicate through the host. `nodes` are groups of devices; devices in different groups
    communicate through the network. `with topology:` makes this thread choose layouts and
    algorithms by it. With `nccl`, that library may all-reduce between peers.

    >>> names = tuple(f"NULL:{i}" for i in range(4))
    >>> topology = Topology(nodes=(names[:2], names[2:]))
    >>> topology.link("NULL:0", "NULL:1").name, topology.link("NULL:1", "NULL:2").name
    ('peer', 'network')

    Raises ShardingError for a device that is in two nodes.
    """

    nodes: tuple[tuple[str, ...], ...] = ()
    same_memory: Link = SAME_MEMORY
    peer: Link = PEER
    host: Link = HOST
    network: Link = NETWORK
    host_processor: Processor = HOST_PROCESSOR
    accelerator: Processor = ACCELERATOR
    nccl: bool = False

    def __post_init__(self) -> None:
        names = [short_name(name) for node in self.nodes for name in node]
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        if repeated:
            raise ShardingError(
                f"the nodes of a topology repeat {', '.join(repeated)}; "
                "name each device in one node, once"
            )

    @cached_property
    def _hash(self) -> int:
        links = (self.same_memory, self.peer, self.host, self.network)
        return hash((self.nodes, links, self.host_processor, self.accelerator, self.nccl))

    def __hash__(self) -> int:
        # layout caches have a topology in their keys, so this is called often
        return self._hash

    @classmethod
    def of_nodes(cls, devices: Sequence[str], per_node: int) -> Topology:
        """Nodes of `per_node` consecutive devices, with default links.

        >>> Topology.of_nodes(("NULL", "NULL:1", "NULL:2", "NULL:3"), 2).nodes
        (('NULL', 'NULL:1'), ('NULL:2', 'NULL:3'))
        """
        starts = range(0, len(devices), per_node)
        return cls(tuple(tuple(devices[start : start + per_node]) for start in starts))

    @cached_property
    def _node_of(self) -> dict[str, int]:
        return {short_name(name): i for i, node in enumerate(self.nodes) for name in node}

    def link(self, first: str, second: str) -> Link:
        """The link between two devices."""
        (node, kind), (other_node, other_kind) = self.place(first), self.place(second)
        if node != other_node:
            return self.network
        if kind != other_kind:
            return self.host
        return self.same_memory if kind in SHARED_MEMORY else self.peer

    def place(self, device: str) -> tuple[int, str]:
        """The number of a device's node, and its kind: devices with equal ones have equal links."""
        return self._node_of.get(short_name(device), -1) if self.nodes else -1, device_kind(device)

    def processor(self, device: str) -> Processor:
        """The speed of a device."""
        return self.host_processor if device_kind(device) in SHARED_MEMORY else self.accelerator

    def __enter__(self) -> Topology:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _entered.set(_entered.get()[:-1])


# the topologies of the `with` blocks that this thread has entered
_entered: contextvars.ContextVar[tuple[Topology, ...]] = contextvars.ContextVar(
    "topology", default=()
)


class _Process:
    topology = Topology()


def current_topology() -> Topology:
    """The topology by which this thread chooses layouts and algorithms."""
    entered = _entered.get()
    return entered[-1] if entered else _Process.topology


def set_topology(topology: Topology) -> Topology:
    """Choose layouts and algorithms by `topology`, outside of `with` blocks; return the previous
    one.
    """
    previous, _Process.topology = _Process.topology, topology
    return previous
