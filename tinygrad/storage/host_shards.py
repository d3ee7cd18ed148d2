"""Host arrays and files on several devices: sharded on the host.

Input: graphs that copy a host array to a layout whose shards are not contiguous in it, as columns
are. Output: the shards in the memory of their devices. Invariant: no device receives more of the
array than its shard. Contiguous shards are left to the transfer, which sends them as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, cast

from tinygrad.device import Buffer, Device
from tinygrad.execution.buffers import bind_buffers
from tinygrad.sharding import BlockGrid, Sharding, current_local_devices
from tinygrad.storage.host_arrays import any_on_host, is_on_host
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
    import numpy as np

    shape = cast(tuple[int, ...], array.shape)
    block, itemsize = layout.local_shape(shape), array.dtype.itemsize
    content = array.buffer.as_memoryview()
    whole: Any = np.frombuffer(content, np.uint8).reshape(*shape, itemsize)
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
        here[inside] = whole[tuple(slice(start, stop) for start, stop in region)]
        if not addressable:
            part.copyin(memory)
        parts.append(part)
    return bind_buffers(UOp.new_buffer(layout, shape, array.dtype), parts)


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
