"""Arrays of the host, and in files, that go to several devices: cut on the host.

In: graphs in which a copy of such an array is laid out so that a device's part is no run of its
memory, as columns are. Out: the parts in the memory of their devices. Always true: no device gets
more of the array than its part. Where parts are runs, the transfer itself sends them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, cast

from tinygrad.device import Buffer, Device, MultiBuffer
from tinygrad.mixin.core import live_tensors
from tinygrad.mixin.host import host_arrays
from tinygrad.sharding import Sharding
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, buffers


def cut_on_host(roots: Iterable[UOp]) -> dict[UOp, UOp]:
    """For each such copy in the graphs of `roots`, the BUFFER that holds its parts.

    Left out is what a tensor still is before it is laid out: somebody may ask for its gradient.
    """
    if not len(host_arrays):
        return {}
    copies = [node for node in UOp.sink(*roots).toposort() if node.op is Ops.COPY]
    chains = {node: _below(node) for node in copies if _cuts_rows(node.arg)}
    if not chains:
        return {}
    held = {x.uop for x in live_tensors.lazy()}
    return {
        node: parts_of_array(chain[-1], node.arg)
        for node, chain in chains.items()
        if chain[-1] in host_arrays and 0 not in node.shape and held.isdisjoint(chain)
    }


def _cuts_rows(layout: Any) -> bool:
    # a run of intervals is what one reader needs; the blocks below are what is to be stored
    if not isinstance(layout, Sharding) or layout.has_intervals:
        return False
    return layout.split_axes not in {(), (0,)}


def _below(node: UOp) -> list[UOp]:
    """What a copy is a copy of, through other copies."""
    chain = [node.src[0]]
    while chain[-1].op is Ops.COPY:
        chain.append(chain[-1].src[0])
    return chain


def parts_of_array(array: UOp, layout: Sharding) -> UOp:
    """A BUFFER in `layout` with the content of an array of the host, or of a file, mapped."""
    import numpy as np

    shape = cast(tuple[int, ...], array.shape)
    block, itemsize = layout.local_shape(shape), array.dtype.itemsize
    content = array.buffer.as_memoryview()
    whole: Any = np.frombuffer(content, np.uint8).reshape(*shape, itemsize)
    parts = []
    for device, region in zip(layout.devices, layout.regions(shape), strict=True):
        part = Buffer(device, prod(block), array.dtype).allocate()
        addressable = Device[device].allocator.addressable
        memory = part.as_memoryview() if addressable else memoryview(bytearray(part.nbytes))
        # what lies behind the end of the array, in the last blocks, is unspecified
        inside = tuple(slice(stop - start) for start, stop in region)
        here = np.frombuffer(memory, np.uint8).reshape(*block, itemsize)
        here[inside] = whole[tuple(slice(start, stop) for start, stop in region)]
        if not addressable:
            part.copyin(memory)
        parts.append(part)
    node = UOp.new_buffer(layout, shape, array.dtype)
    buffers[node] = MultiBuffer(tuple(parts))
    return node
