"""Groups of devices that communicate, and the links between their members.

Input: a partial layout and a topology. Output: the groups that reduce together, the links within a
group, and the nodes that it spans.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.placement import Partial
from tinygrad.sharding.topology import Link, Topology


@lru_cache(maxsize=4096)
def max_peers(topology: Topology, group: tuple[str, ...]) -> tuple[tuple[Link, int], ...]:
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
    sizes = {group_node_size(topology, group) for group in partial_groups(source)}
    return sizes.pop() if len(sizes) == 1 else None


@lru_cache(maxsize=4096)
def group_node_size(topology: Topology, group: tuple[str, ...]) -> int | None:
    links = sorted({link for link, _ in max_peers(topology, group)}, key=lambda x: -x.bandwidth)
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
