"""Host arrays and files on several devices: sharded on the host.

Input: graphs that copy a host array to a layout whose shards are not contiguous in it, such as
columns. Output: the shards in the memory of their devices. Invariant: no device receives more of
the array than its shard. Contiguous shards are left to the transfer, which sends them directly.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, cast

from tinygrad.device import Buffer, Device
from tinygrad.execution.buffers import bind_buffers, note_host_array
from tinygrad.execution.wire import current_wire
from tinygrad.sharding import BlockGrid, Region, Sharding, ShardingError, current_local_devices
from tinygrad.storage.host.arrays import any_on_host, is_on_host
from tinygrad.storage.live_tensors import live_tensors
from tinygrad.uop import Ops
from tinygrad.uop.device_value import DeviceValue
from tinygrad.uop.ops import UOp


def shard_on_host(roots: Iterable[UOp]) -> dict[UOp, UOp]:
    """For each such copy in the graphs of `roots`, a BUFFER that holds the shards.

    Copies whose source is still the value of a live tensor stay: its gradient may be asked for.
    """
    if not any_on_host():
        return {}
    copies = [node for node in UOp.sink(*roots).toposort() if node.op is Ops.COPY]
    chains = {node: _sources(node) for node in copies if _has_strided_shards(node.arg)}
    if not chains:
        return {}
    held = {x.uop for x in live_tensors.lazy()}
    return {
        node: shards_of_array(chain[-1], node.arg)
        for node, chain in chains.items()
        if is_on_host(chain[-1]) and 0 not in node.shape and held.isdisjoint(chain)
    }


def shards_of_array(array: UOp, layout: Sharding) -> UOp:
    """A BUFFER in `layout` with the content of a host array, or of a mapped file."""
    shape = cast(tuple[int, ...], array.shape)
    note_host_array(array)
    return _placed(array, layout, shape, (0,) * len(shape))


def shards_of_local_array(array: UOp, layout: Sharding, shape: tuple[int, ...] | None) -> UOp:
    """A BUFFER in `layout`: the shards of the local devices are cut from a host array, which covers
    just them.

    The array is a box of a value of `shape`, by default one of which each process has an equal box.
    Raises ShardingError for an array of another shape than the box, and for shards that form none.
    """
    own = cast(tuple[int, ...], array.shape)
    if shape is None:
        shape = _shape_of_equal_boxes(own, layout)
    box = _local_box(layout, shape)
    expected = tuple(stop - start for start, stop in box)
    if own != expected:
        raise ShardingError(
            f"from_local: of a value of shape {shape} in {layout}, this process has the elements "
            f"{_shown(box)}, of shape {expected}; the array has shape {own}"
        )
    current_wire().note(
        repr((shape, layout, array.dtype)).encode(), f"from_local of shape {shape} in {layout}"
    )
    return _placed(array, layout, shape, tuple(start for start, _ in box))


def _placed(array: UOp, layout: Sharding, shape: tuple[int, ...], origin: tuple[int, ...]) -> UOp:
    """The BUFFER of a value of `shape` whose local shards are in a host array, which starts at
    `origin` of the value.
    """
    import numpy as np

    block, itemsize = layout.local_shape(shape), array.dtype.itemsize
    content = array.buffer.as_memoryview()
    whole: Any = np.frombuffer(content, np.uint8).reshape(*array.shape, itemsize)
    parts = []
    grid = BlockGrid(layout, shape)
    for number in current_local_devices().numbers(layout.devices):
        device, region = layout[number], grid.region(number)
        part = Buffer(device, prod(block), array.dtype).allocate()
        addressable = Device[device].allocator.addressable
        memory = part.as_memoryview() if addressable else memoryview(bytearray(part.nbytes))
        # the padding of the last shards, past the end of the array, is unspecified
        inside = tuple(slice(stop - start) for start, stop in region)
        here = np.frombuffer(memory, np.uint8).reshape(*block, itemsize)
        source = zip(region, origin, strict=True)
        here[inside] = whole[tuple(slice(start - at, stop - at) for (start, stop), at in source)]
        if not addressable:
            part.copyin(memory)
        parts.append(part)
    return bind_buffers(UOp.new_buffer(layout, shape, array.dtype), parts)


def _local_box(layout: Sharding, shape: tuple[int, ...]) -> Region:
    """The smallest box of a value that holds the shards of the local devices. Raises ShardingError
    if other shards are in it too.
    """
    grid = BlockGrid(layout, shape)
    numbers = current_local_devices().numbers(layout.devices)
    regions = {grid.region(number) for number in numbers}
    if not regions:
        raise ShardingError(f"from_local: no device of {layout} is one of this process")
    filled = [region for region in regions if all(start < stop for start, stop in region)]
    bounds = zip(*(filled or regions), strict=True)
    box = tuple((min(a for a, _ in axis), max(b for _, b in axis)) for axis in bounds)
    if sum(map(_volume, filled)) != _volume(box):
        listed = ", ".join(map(_shown, filled))
        raise ShardingError(
            f"from_local: the shards of {layout} in this process, {listed}, are not together one "
            "box of the value; give each its own with from_shards"
        )
    return box


def _shape_of_equal_boxes(own: tuple[int, ...], layout: Sharding) -> tuple[int, ...]:
    """The shape of a value of which each process has a box of shape `own`."""
    for axis in layout.split_axes:
        if axis >= len(own):
            raise ShardingError(f"from_local: {layout} shards axis {axis} of the shape {own}")
    # of a value with one element in each block
    blocks = tuple(
        layout.shards(axis) if axis in layout.split_axes else 1 for axis in range(len(own))
    )
    here = tuple(stop - start for start, stop in _local_box(layout, blocks))
    for axis, (size, count) in enumerate(zip(own, here, strict=True)):
        if count != blocks[axis] and size % count:
            raise ShardingError(
                f"from_local: axis {axis} of the shape {own} is not a multiple of the {count} "
                f"shards that this process has in {layout}; give the shape of the value"
            )
    return tuple(
        size if count == total else size // count * total
        for size, count, total in zip(own, here, blocks, strict=True)
    )


def _volume(box: Region) -> int:
    return prod(stop - start for start, stop in box)


def _shown(box: Region) -> str:
    return f"[{', '.join(f'{start}:{stop}' for start, stop in box)}]"


def _has_strided_shards(layout: DeviceValue) -> bool:
    # an Interval is what one reader needs; its source is what is to be stored
    if not isinstance(layout, Sharding) or layout.has_intervals:
        return False
    return layout.split_axes not in {(), (0,)}


def _sources(node: UOp) -> list[UOp]:
    """The source of a COPY, and the sources below it through further COPYs."""
    chain = [node.src[0]]
    while chain[-1].op is Ops.COPY:
        chain.append(chain[-1].src[0])
    return chain
