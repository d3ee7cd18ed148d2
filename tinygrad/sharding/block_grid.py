"""The blocks into which a layout cuts an array, by number: where they lie, and who holds them.

Input: a layout without `Partial`, and a shape. Output: for a device, the numbers of its block along
the sharded axes; for a block, its bounds and its holders. Invariant: nothing is enumerated, so a
question takes the time of its answer, however many devices there are.
"""

from __future__ import annotations

from functools import cached_property
from math import prod

from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.placement import placement_axis
from tinygrad.sharding.sizes import Region, Shape, max_size

Block = tuple[int, ...]
"""The number of a block along each sharded axis, in the order of `Sharding.split_axes`."""


class AxisBlocks:
    """The blocks of one sharded axis, which are the ranges of a `Span`."""

    def __init__(self, layout: Sharding, axis: int, shape: Shape) -> None:
        self.span = layout.span(axis, shape)
        self.size = max_size(shape[axis])
        self.count = layout.shards(axis)
        self.strides = layout.block_strides(axis)

    def number(self, device: int) -> int:
        """The number of a device's block."""
        return sum(device // stride % size * weight for stride, size, weight in self.strides)

    def base(self, number: int) -> int:
        """The first device with block `number` of this axis, and block 0 of every other axis."""
        return sum(number // weight % size * stride for stride, size, weight in self.strides)

    def bounds(self, number: int) -> tuple[int, int]:
        """The elements of a block that lie within the array."""
        start, stop = self.span.start(number), self.span.stop(number)
        return min(max(0, start), self.size), min(max(0, stop), self.size)

    def overlapping(self, low: int, high: int) -> range:
        """The numbers of the blocks that hold elements of a range within the array. Of blocks of
        every `stride`-th element, and of listed ones, some of these may hold none.
        """
        first, step, length, stride, listed = self.span
        if low >= high or not length:
            return range(0)
        if listed:
            found = [c for c, (start, stop) in enumerate(listed) if start < high and stop > low]
            return range(found[0], found[-1] + 1) if found else range(0)
        # of blocks of every `stride`-th element, those whose range before the selection overlaps
        low, high = low * stride, (high - 1) * stride + 1
        if not step:
            return range(self.count if first < high and first + length > low else 0)
        # start + length > low and start < high, with starts that grow by |step|
        lowest = first if step > 0 else first + (self.count - 1) * step
        begin = max(0, (low - length - lowest) // abs(step) + 1)
        end = min(self.count, -((lowest - high) // abs(step)))
        if step < 0:
            begin, end = self.count - end, self.count - begin
        return range(begin, max(begin, end))


class BlockGrid:
    """The blocks of a layout on an array of `shape`.

    Devices that hold the same block are its replicas, numbered in the order of their numbers.
    """

    def __init__(self, layout: Sharding, shape: Shape) -> None:
        self.layout = layout
        self.shape = shape
        self.axes = {axis: AxisBlocks(layout, axis, shape) for axis in layout.split_axes}
        # (stride, size) of the mesh dimensions that shard no axis, outer first
        self._free: list[tuple[int, int]] = []
        stride = len(layout)
        for placement, size in zip(layout.axes, layout.mesh_shape, strict=True):
            stride //= size
            if placement_axis(placement) is None:
                self._free.append((stride, size))
        self.replicas = prod(size for _, size in self._free)

    @cached_property
    def block_count(self) -> int:
        """The number of blocks."""
        return len(self.layout) // self.replicas

    def block(self, device: int) -> Block:
        """The block of a device."""
        return tuple(axis.number(device) for axis in self.axes.values())

    def replica(self, device: int) -> int:
        """The number of a device among the replicas of its block."""
        found = 0
        for stride, size in self._free:
            found = found * size + device // stride % size
        return found

    def replica_base(self, replica: int) -> int:
        """The device with this number among the replicas of the block whose numbers are all 0."""
        found = 0
        for stride, size in reversed(self._free):
            replica, coordinate = divmod(replica, size)
            found += coordinate * stride
        return found

    def block_base(self, block: Block) -> int:
        """The first replica of a block."""
        return sum(
            axis.base(number) for axis, number in zip(self.axes.values(), block, strict=True)
        )

    def bounds(self, block: Block) -> dict[int, tuple[int, int]]:
        """The bounds of a block along each sharded axis."""
        return {
            axis: blocks.bounds(number)
            for (axis, blocks), number in zip(self.axes.items(), block, strict=True)
        }

    def region(self, device: int) -> Region:
        """The box of the array on a device."""
        bounds = self.bounds(self.block(device))
        return tuple(bounds.get(axis, (0, size)) for axis, size in enumerate(self.shape))
