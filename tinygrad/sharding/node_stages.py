"""All-gathers and reduce-scatters in two stages, so that each byte crosses to another node once.

Input: the layouts on both sides, of which one shards axes that the other does not, and a shape.
Output: a shape with an axis for each mesh dimension, and the layouts before, between and after the
two stages. Invariant: between them, devices at one place in each node have the same blocks.
"""

from __future__ import annotations

import math
from math import prod
from typing import NamedTuple

from tinygrad.sharding.common_layout import common_mesh
from tinygrad.sharding.communication_time import transfer_seconds
from tinygrad.sharding.device_groups import node_size
from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.partial_layouts import (
    group_size,
    next_axis,
    scattered_stack,
    stack_layout,
    stack_shape,
)
from tinygrad.sharding.placement import Partial, Placement
from tinygrad.sharding.topology import current_topology

Ints = tuple[int, ...]


class NodeStages(NamedTuple):
    """The layouts of the two stages, on an array whose sharded axes are split.

    In `shape`, each axis with a number of shards in `counts` is replaced by one axis for each mesh
    dimension, and one for the block. `sharded` shards all axes of mesh dimensions, `between` those
    within a node, `unsharded` none.
    """

    shape: Ints
    counts: dict[int, int]
    sharded: Sharding
    between: Sharding
    unsharded: Sharding


def gather_stages(
    source: Sharding, target: Sharding, shape: Ints, itemsize: int
) -> NodeStages | None:
    """The stages of an all-gather: between nodes, then within each. None if one stage is faster."""
    found = _stages(source, target, shape)
    if found is None:
        return None
    seconds = transfer_seconds(found.sharded, found.between, found.shape, itemsize)
    seconds += transfer_seconds(found.between, found.unsharded, found.shape, itemsize)
    return found if seconds < transfer_seconds(source, target, shape, itemsize) else None


def scatter_stages(
    source: Sharding, target: Sharding, shape: Ints, itemsize: int
) -> NodeStages | None:
    """The stages of a reduce-scatter of partial values: within each node, then between nodes. None
    if one is faster.
    """
    found = _stages(target, source, shape)
    if found is None:
        return None
    stack = target.with_axes([next_axis(p) for p in target.axes])
    at_once = (group_size(source), *shape)
    inner = stack_shape(found.unsharded, found.between, found.shape)
    outer = found.sharded.with_axes([next_axis(p) for p in found.sharded.axes])
    seconds = transfer_seconds(
        *scattered_stack(found.unsharded, found.between), inner, itemsize
    ) + transfer_seconds(
        stack_layout(found.between), outer, (group_size(found.between), *found.shape), itemsize
    )
    return (
        found
        if seconds < transfer_seconds(stack_layout(source), stack, at_once, itemsize)
        else None
    )


def _stages(sharded: Sharding, unsharded: Sharding, shape: Ints) -> NodeStages | None:
    """The stages between a layout and one that does not shard some of its axes; None where one
    stage crosses to other nodes no more often.
    """
    if sharded.devices != unsharded.devices or not current_topology().nodes:
        return None
    mesh = common_mesh(unsharded, sharded)
    if mesh is None:
        return None
    moved = {b for _, a, b in mesh if a != b}
    kept = {a for _, a, b in mesh if a == b}
    if not all(isinstance(b, int) for b in moved) or moved & kept or sharded.has_intervals:
        return None
    if any(a is not None and not isinstance(a, Partial) for _, a, b in mesh if a != b):
        return None
    group = Sharding(
        sharded.devices,
        [Partial("ADD") if a != b else None for _, a, b in mesh],
        [size for size, _, _ in mesh],
    )
    near = node_size(current_topology(), group)
    return None if near is None else _by_level(sharded.devices, mesh, near, shape)


def _by_level(
    devices: tuple[str, ...], mesh: list[tuple[int, Placement, Placement]], near: int, shape: Ints
) -> NodeStages:
    """The stages for groups of `near` devices in one node. Each entry of `mesh` is the size of a
    dimension, its placement in the unsharded layout and that in the sharded one.
    """
    # each part of a mesh dimension, innermost first, and whether it is within a node
    parts: list[tuple[int, Placement, Placement, bool]] = []
    for size, a, b in reversed(mesh):
        inside = math.gcd(size, near) if a != b else size
        near //= inside if a != b else 1
        parts += [(inside, a, b, True), (size // inside, a, b, False)]
    parts = [part for part in reversed(parts) if part[0] > 1]
    sizes: list[int] = []
    axis_of: dict[int, int] = {}
    number_of: dict[int, int] = {}
    counts: dict[int, int] = {}
    for axis, size in enumerate(shape):
        own = [i for i, (_, a, b, _) in enumerate(parts) if a != b and b == axis]
        for i in own:
            number_of[i] = len(sizes)
            sizes.append(parts[i][0])
        axis_of[axis] = len(sizes)
        count = prod(parts[i][0] for i in own)
        if own:
            counts[axis] = count
        sizes.append(-(-size // count))

    def layout(levels: tuple[bool, ...]) -> Sharding:
        """The layout that shards the parts at these levels."""
        axes: list[Placement] = []
        for i, (_, a, _, is_inside) in enumerate(parts):
            moves = i in number_of
            kept = axis_of[a] if isinstance(a, int) else a
            axes.append(number_of[i] if moves and is_inside in levels else kept)
        return Sharding(devices, axes, [part[0] for part in parts])

    return NodeStages(tuple(sizes), counts, layout((True, False)), layout((True,)), layout(()))
