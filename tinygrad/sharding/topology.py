"""The topology of devices, and the cost model of communication.

Input: device names, layouts, shapes. Output: seconds, by the alpha-beta model: a round of messages
takes the latency of its link (alpha) plus the bytes of the busiest device over the bandwidth
(beta). The messages of a round run concurrently, and so do links of different classes. Invariant:
with uniform links and large messages, the minimum time has the minimum bytes.
"""

from __future__ import annotations

import contextvars
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from tinygrad.errors import ArgumentError
from tinygrad.sharding.cover import as_layout, cover, known_elements, received_elements, scale_down
from tinygrad.sharding.layout import Partial, Shape, Sharding, ShardingError
from tinygrad.sharding.routes import Routes

ALGORITHMS: Final = ("peer", "direct", "nccl", "all2all", "hierarchical", "ring")
"""The algorithms of an all-reduce, those with fewer rounds first."""


NCCL_LATENCY_S: Final = 15e-6
MAX_PEERS: Final = 16
"""The partial sums that one kernel reads from the memory of its peers: each is an argument."""


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
        names = [_plain(name) for node in self.nodes for name in node]
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
        return {_plain(name): i for i, node in enumerate(self.nodes) for name in node}

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
        return self._node_of.get(_plain(device), -1) if self.nodes else -1, _kind(device)

    def processor(self, device: str) -> Processor:
        """The speed of a device."""
        return self.host_processor if _kind(device) in SHARED_MEMORY else self.accelerator

    def __enter__(self) -> Topology:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _entered.set(_entered.get()[:-1])


def _plain(name: str) -> str:
    """A device's name, without the number 0."""
    return name.removesuffix(":0")


def _kind(name: str) -> str:
    return name.partition(":")[0]


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


# ---- changes of layout ----


def transfer_seconds(
    src: Sharding | str,
    dst: Sharding | str,
    shape: Shape,
    itemsize: int,
    topology: Topology | None = None,
) -> float:
    """The time of a change between two layouts without `Partial`, as one round of messages.

    A symbolic size counts as 1.

    >>> four = tuple(f"CPU:{i}" for i in range(4))
    >>> transfer_seconds(Sharding(four), Sharding(four, 0), (1024, 1024), 4)
    0.0
    """
    if src is dst:
        return 0.0
    source, target = as_layout(src), as_layout(dst)
    smallest, factor = scale_down(source, target, shape)
    loads = _busiest(topology or current_topology(), source, target, smallest)
    nbytes = factor * itemsize
    return max((link.seconds(count * nbytes) for link, count in loads), default=0.0)


@lru_cache(maxsize=4096)
def _busiest(
    topology: Topology, src: Sharding, dst: Sharding, shape: Shape
) -> tuple[tuple[Link, int], ...]:
    """For each link, the maximum number of elements that one device sends or receives over it."""
    received = _received_per_link(topology, src, dst, shape)
    if received is not None:
        # the replicas of a piece share the load, so no device sends more than one receives
        return tuple((link, max(counts)) for link, counts in received)
    loads: Counter[tuple[Link, bool, str]] = Counter()
    for source, target, count in _messages(src, dst, shape):
        link = topology.link(source, target)
        loads[link, True, source] += count
        loads[link, False, target] += count
    busiest: dict[Link, int] = {}
    for (link, _, _), load in loads.items():
        busiest[link] = max(busiest.get(link, 0), load)
    return tuple(busiest.items())


@lru_cache(maxsize=4096)
def elements_per_link(
    topology: Topology, src: Sharding | str, dst: Sharding | str, shape: Shape
) -> tuple[tuple[Link, int], ...]:
    """The elements that a change of layout sends over each link; a symbolic size counts as 1."""
    source, target = as_layout(src), as_layout(dst)
    smallest, factor = scale_down(source, target, shape)
    sent = _elements_per_link(topology, source, target, smallest)
    return tuple((link, factor * count) for link, count in sent)


@lru_cache(maxsize=4096)
def _elements_per_link(
    topology: Topology, src: Sharding, dst: Sharding, shape: Shape
) -> tuple[tuple[Link, int], ...]:
    received = _received_per_link(topology, src, dst, shape)
    if received is not None:
        return tuple((link, sum(counts)) for link, counts in received)
    sent: dict[Link, int] = {}
    for source, target, count in _messages(src, dst, shape):
        link = topology.link(source, target)
        sent[link] = sent.get(link, 0) + count
    return tuple(sent.items())


def _received_per_link(
    topology: Topology, src: Sharding, dst: Sharding, shape: Shape
) -> list[tuple[Link, Sequence[int]]] | None:
    """For each link, the elements that each device receives over it, where all devices have one
    link inside of their node and one to others. None if devices differ or have more links.
    """
    links = _max_peers(topology, src.devices)
    if src.devices != dst.devices or not links:
        return None
    total = received_elements(src, dst, shape)
    if len(links) == 1:
        return [(links[0][0], total)]
    places = [topology.place(name) for name in src]
    nodes: dict[int, list[int]] = {}
    for number, (node, _) in enumerate(places):
        nodes.setdefault(node, []).append(number)
    if len({kind for _, kind in places}) > 1 or len(links) > 2:
        return None
    inner = next((link for link, _ in links if link != topology.network), None)
    if inner is None:
        return None
    routes = Routes(src, dst, shape)
    inside = [0] * len(total)
    for members in nodes.values():
        for receiver, count in routes.elements_between(members):
            inside[receiver] += count
    across = [count - within for count, within in zip(total, inside, strict=True)]
    return [(inner, inside), (topology.network, across)]


def _messages(src: Sharding, dst: Sharding, shape: Shape) -> Iterator[tuple[str, str, int]]:
    """The sender, the receiver and the number of elements of each message."""
    for target, pieces in zip(dst, cover(src, dst, shape), strict=True):
        for piece in pieces:
            if src.devices[piece.source] != target:
                yield src.devices[piece.source], target, known_elements(piece.region)


# ---- all-reduce ----


def allreduce_seconds(
    source: Sharding, nbytes: int, algorithm: str = "", topology: Topology | None = None
) -> float:
    """The time of an all-reduce of partial values of `nbytes` on each device.

    Groups along the partial mesh dimensions run concurrently. Each device reads the partial values
    that it reduces from its own memory. `algorithm` is one of `ALGORITHMS`, or "" for the fastest.

    >>> four = Sharding(tuple(f"CPU:{i}" for i in range(4)), Partial("ADD"))
    >>> allreduce_seconds(four, 1 << 20, "all2all") < allreduce_seconds(four, 1 << 20, "direct")
    True
    """
    topology = topology or current_topology()
    return _allreduce_seconds(
        topology, source, nbytes, algorithm or fastest_allreduce(topology, source, nbytes)
    )


@lru_cache(maxsize=4096)
def fastest_allreduce(topology: Topology, source: Sharding, nbytes: int) -> str:
    """The algorithm with the least time; ties go to the one with fewer rounds."""
    names = ["direct", "all2all"]
    if node_size(topology, source) is not None:
        names.append("hierarchical")
    if are_readable(topology, source):
        names.insert(0, "peer")
    if topology.nccl and all(_are_peers(topology, group) for group in partial_groups(source)):
        names.append("nccl")
    # a ring sends as many bytes as all2all, in more rounds
    return min(names, key=lambda name: _allreduce_seconds(topology, source, nbytes, name))


def are_readable(topology: Topology, source: Sharding) -> bool:
    """Whether a kernel may read the partial sums of all devices of its group."""
    return all(
        1 < len(group) <= MAX_PEERS
        and all(link.is_readable for link, _ in _max_peers(topology, group))
        for group in partial_groups(source)
    )


def _are_peers(topology: Topology, group: tuple[str, ...]) -> bool:
    """Whether a group has several devices, all linked as peers."""
    return [link for link, _ in _max_peers(topology, group)] == [topology.peer]


def _allreduce_seconds(topology: Topology, source: Sharding, nbytes: int, algorithm: str) -> float:
    if algorithm not in ALGORITHMS:
        raise ArgumentError(f"no all-reduce algorithm {algorithm!r}; use {', '.join(ALGORITHMS)}")
    groups = partial_groups(source)
    return max(_group_seconds(topology, group, nbytes, algorithm) for group in groups)


@lru_cache(maxsize=4096)
def _group_seconds(
    topology: Topology, group: tuple[str, ...], nbytes: int, algorithm: str
) -> float:
    count = len(group)
    if count == 1:
        return 0.0
    memory = topology.processor(group[0]).bandwidth
    piece = nbytes / count
    if algorithm == "peer":
        return _round(topology, group, nbytes) + nbytes / memory
    if algorithm == "direct":
        return _round(topology, group, nbytes) + count * nbytes / memory
    if algorithm == "nccl":
        sent = 2 * (count - 1) * piece
        return NCCL_LATENCY_S + sent / min(x.bandwidth for x, _ in _max_peers(topology, group))
    if algorithm == "all2all":
        return 2 * _round(topology, group, piece) + nbytes / memory
    if algorithm == "ring":
        pairs = zip(group, (*group[1:], group[0]), strict=True)
        step = max(topology.link(first, second).seconds(piece) for first, second in pairs)
        return (count - 1) * (step + 2 * piece / memory) + _round(topology, group, piece)
    inner = _node_size(topology, group)
    if inner is None:
        return _group_seconds(topology, group, nbytes, "all2all")
    inside = 2 * _round(topology, group[:inner], nbytes / inner) + nbytes / memory
    return inside + _group_seconds(topology, group[::inner], -(-nbytes // inner), "all2all")


def _round(topology: Topology, group: tuple[str, ...], nbytes: float) -> float:
    """The time in which each device of a group sends `nbytes` to each other device."""
    return max(link.seconds(peers * nbytes) for link, peers in _max_peers(topology, group))


@lru_cache(maxsize=4096)
def _max_peers(topology: Topology, group: tuple[str, ...]) -> tuple[tuple[Link, int], ...]:
    """For each link of a group, the maximum number of peers that one device reaches over it."""
    maximum: dict[Link, int] = {}
    # devices in one place have equal links to all others
    places: dict[tuple[int, str], list[str]] = {}
    in_node: Counter[int] = Counter()
    for device in group:
        place = topology.place(device)
        places.setdefault(place, []).append(device)
        in_node[place[0]] += 1
    for (node, _), members in places.items():
        peers: Counter[Link] = Counter()
        if len(group) > in_node[node]:
            peers[topology.network] += len(group) - in_node[node]
        if in_node[node] > len(members):
            peers[topology.host] += in_node[node] - len(members)
        if len(members) > 1:
            peers[topology.link(members[0], members[1])] += len(members) - 1
        for link, count in peers.items():
            maximum[link] = max(maximum.get(link, 0), count)
    return tuple(maximum.items())


@lru_cache(maxsize=4096)
def partial_groups(source: Sharding) -> tuple[tuple[str, ...], ...]:
    """The groups of devices whose partial values are reduced together."""
    groups: dict[tuple[int, ...], list[str]] = {}
    partial = [isinstance(placement, Partial) for placement in source.axes]
    for number, name in enumerate(source):
        place = zip(source.coordinates(number), partial, strict=True)
        groups.setdefault(tuple(-1 if member else c for c, member in place), []).append(name)
    return tuple(map(tuple, groups.values()))


@lru_cache(maxsize=4096)
def node_size(topology: Topology, source: Sharding) -> int | None:
    """The number of consecutive devices of each group in one node, if groups span several nodes.

    None if the links within a group are uniform, or groups differ.
    """
    sizes = {_node_size(topology, group) for group in partial_groups(source)}
    return sizes.pop() if len(sizes) == 1 else None


@lru_cache(maxsize=4096)
def _node_size(topology: Topology, group: tuple[str, ...]) -> int | None:
    links = sorted({link for link, _ in _max_peers(topology, group)}, key=lambda x: -x.bandwidth)
    if len(links) < 2:
        return None
    for size in range(len(group) // 2, 1, -1):
        if len(group) % size == 0 and _are_nodes(topology, group, size, links[0]):
            return size
    return None


def _are_nodes(topology: Topology, group: tuple[str, ...], size: int, fast: Link) -> bool:
    """Whether devices are linked by `fast` exactly within consecutive groups of `size`."""
    # one device of each place in each of the groups: links between places are those of these
    found: dict[tuple[int, tuple[int, str]], str] = {}
    for number, device in enumerate(group):
        key = number // size, topology.place(device)
        if key in found and topology.link(found[key], device) != fast:
            return False
        found.setdefault(key, device)
    if size > 1 and len(found) == len(group) // size and _in_nodes_of_their_own(topology, found):
        return topology.network != fast
    return all(
        (topology.link(first, second) == fast) == (i == j)
        for (i, a), first in found.items()
        for (j, b), second in found.items()
        if (i, a) != (j, b)
    )


def _in_nodes_of_their_own(
    topology: Topology, found: dict[tuple[int, tuple[int, str]], str]
) -> bool:
    """Whether each of the places is in another node."""
    return len({node for _, (node, _) in found}) == len(found)
