"""The shapes of an array's shards, and the array's shape from those of its shards.

Input: a layout, and the global shape or that of each shard. Output: the other. Invariant: a shard
has no padding, so where a size does not divide, the last shards are shorter than a block, or empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.placement import ShardingError
from tinygrad.sharding.sizes import Shape


def shard_shapes(layout: Sharding, shape: Shape) -> tuple[Shape, ...]:
    """The shape of the shard on each device. Raises as `Sharding.check` does."""
    return tuple(
        tuple(
            stop - start if axis in layout.split_axes else shape[axis]
            for axis, (start, stop) in enumerate(region)
        )
        for region in layout.regions(shape)
    )


def replica_count(layout: Sharding) -> int:
    """The number of devices that hold each shard."""
    return len(layout) // prod(layout.shards(axis) for axis in layout.split_axes)


def global_shape(layout: Sharding, shapes: Sequence[Shape]) -> Shape:
    """The shape of the array whose shards have these shapes, if there is one: along a sharded axis,
    sizes add up over the shards that differ in this axis alone.

    Raises:
        ShardingError: there is no such axis, or its size is 1 or not known.
    """
    shape: list[Any] = list(shapes[0])
    for axis in layout.split_axes:
        if any(len(shard) <= axis for shard in shapes):
            raise ShardingError(f"{layout} shards axis {axis}, which a shard lacks")
        strides = layout.block_strides(axis)
        sizes = {
            sum(device // stride % size * weight for stride, size, weight in strides): shard[axis]
            for device, shard in reversed(list(enumerate(shapes)))
        }
        if not all(isinstance(size, int) for size in sizes.values()):
            raise ShardingError(f"{layout} shards axis {axis}, whose sizes are symbolic in a shard")
        shape[axis] = sum(sizes.values())
    layout.check(tuple(shape))
    return tuple(shape)
