"""The name of a change of layout, by what happens in each group of devices.

Input: two layouts without `Partial`, or device names. Output: the kind that `CommTrace` shows.
"""

from __future__ import annotations

from tinygrad.sharding.common_layout import common_mesh
from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.placement import Interval, placement_axis


def transfer_kind(source: Sharding | str | None, target: Sharding | str | None) -> str:
    """`copy`, `broadcast`, `scatter`, `gather`; `send` to other devices; `halo` and `permute`,
    which take ranges of an axis from other devices; `all_gather` in the groups along some mesh
    dimensions, after a slice along others; and `all_to_all` for what is none of these.
    """
    if not isinstance(source, Sharding):
        if not isinstance(target, Sharding):
            return "copy"
        return "broadcast" if target.is_replicated else "scatter"
    if not isinstance(target, Sharding):
        return "gather"
    if target.has_intervals:
        return _range_kind(target)
    if source.has_intervals:
        blocks = source.with_axes([placement_axis(p) for p in source.axes])
        return _range_kind(source) if blocks == target else transfer_kind(blocks, target)
    if source.devices != target.devices and set(source.devices) != set(target.devices):
        return "send"
    if target.is_replicated or _adds_to_blocks(source, target):
        return "all_gather"
    return "permute" if _are_within_blocks(source, target) else "all_to_all"


def _range_kind(layout: Sharding) -> str:
    """The kind of a change from or to these intervals."""
    steps = [p.step for p in layout.axes if isinstance(p, Interval)]
    if not any(steps):
        return "broadcast"
    return "halo" if min(steps) >= 0 else "permute"


def _adds_to_blocks(source: Sharding, target: Sharding) -> bool:
    """Whether each device keeps its block, or a slice of it, and receives others next to it: some
    of the mesh dimensions that shard an axis, the inner ones, no longer do.
    """
    mesh = common_mesh(source, target) if source.devices == target.devices else None
    if mesh is None or any(a is not None and b not in {a, None} for _, a, b in mesh):
        return False
    for axis in source.split_axes:
        before = [number for number, (_, a, _) in enumerate(mesh) if a == axis]
        after = [number for number, (_, _, b) in enumerate(mesh) if b == axis]
        if after != before[: len(after)]:
            return False
    return any(target.shards(axis) < source.shards(axis) for axis in source.split_axes)


def _are_within_blocks(source: Sharding, target: Sharding) -> bool:
    """Whether each block of `target` is within one of `source`: it comes from one device."""
    return all(target.shards(axis) % source.shards(axis) == 0 for axis in source.split_axes)
