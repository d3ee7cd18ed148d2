"""The time of communication: of a change of layout, and of an all-reduce.

Input: layouts, shapes and a topology. Output: seconds, by the alpha-beta model: a round of messages
takes the latency of its link (alpha) plus the bytes of the busiest device over the bandwidth
(beta). The messages of a round run concurrently, and so do links of different classes. Invariant:
with uniform links and large messages, the minimum time has the minimum bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from tinygrad.errors import ArgumentError
from tinygrad.sharding.cover import as_layout, cover, known_elements, received_elements, scale_down
from tinygrad.sharding.device_groups import group_node_size, max_peers, node_size, partial_groups
from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.routes import Routes
from tinygrad.sharding.sizes import Shape
from tinygrad.sharding.topology import Link, Topology, current_topology

ALGORITHMS: Final = ("peer", "direct", "nccl", "all2all", "hierarchical", "ring")
"""The algorithms of an all-reduce, those with fewer rounds first."""
NCCL_LATENCY_S: Final = 15e-6
MAX_PEERS: Final = 16
"""The partial sums that one kernel reads from the memory of its peers: each is an argument."""

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
    links = max_peers(topology, src.devices)
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

    >>> from tinygrad.sharding import Partial
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
        and all(link.is_readable for link, _ in max_peers(topology, group))
        for group in partial_groups(source)
    )


def _are_peers(topology: Topology, group: tuple[str, ...]) -> bool:
    """Whether a group has several devices, all linked as peers."""
    return [link for link, _ in max_peers(topology, group)] == [topology.peer]


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
        return NCCL_LATENCY_S + sent / min(x.bandwidth for x, _ in max_peers(topology, group))
    if algorithm == "all2all":
        return 2 * _round(topology, group, piece) + nbytes / memory
    if algorithm == "ring":
        pairs = zip(group, (*group[1:], group[0]), strict=True)
        step = max(topology.link(first, second).seconds(piece) for first, second in pairs)
        return (count - 1) * (step + 2 * piece / memory) + _round(topology, group, piece)
    inner = group_node_size(topology, group)
    if inner is None:
        return _group_seconds(topology, group, nbytes, "all2all")
    inside = 2 * _round(topology, group[:inner], nbytes / inner) + nbytes / memory
    return inside + _group_seconds(topology, group[::inner], -(-nbytes // inner), "all2all")


def _round(topology: Topology, group: tuple[str, ...], nbytes: float) -> float:
    """The time in which each device of a group sends `nbytes` to each other device."""
    return max(link.seconds(peers * nbytes) for link, peers in max_peers(topology, group))
