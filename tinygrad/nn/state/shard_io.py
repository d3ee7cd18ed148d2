"""Read and write sharded tensors: each shard is transferred directly to or from the file.

A shard is a box of the row-major array, so in the file it is byte ranges of equal length. Input: a
tensor in a file, or one on several devices. Output: the other. Invariants: the host holds one shard
at a time, and a replicated shard is read or written once.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedRandom
from typing import Any, NamedTuple

from tinygrad.device import Buffer, Device, RemoteBuffer
from tinygrad.execution.buffers import bind_buffers
from tinygrad.helpers import prod
from tinygrad.nn.state.file_bytes import contiguous_memory, is_on_disk
from tinygrad.runtime.disk import DiskAllocator
from tinygrad.sharding import Sharding, current_local_devices
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Region = tuple[tuple[int, int], ...]
WRITTEN_BYTES = 1 << 24
"""At most this many bytes are written at once."""


def read_shards(value: Tensor, layout: Sharding) -> Tensor | None:
    """A tensor in a file, sharded over devices; each shard is read separately.

    None if `value` is not in a file, or not in row-major order there.
    """
    import numpy as np

    memory = contiguous_memory(value) if is_on_disk(value) else None
    if memory is None or 0 in value.shape:
        return None
    allocator = Device[memory.device].allocator
    assert isinstance(allocator, DiskAllocator), "files are on DISK"
    block = layout.local_shape(value.shape)
    numbers = current_local_devices().numbers(layout.devices)
    size = prod(block)
    parts = {n: Buffer(layout[n], size, value.dtype).allocate() for n in numbers}
    for region, devices in _holders(layout, value.shape).items():
        holders = [number for number in devices if number in parts]
        if not holders:
            continue
        first = parts[holders[0]]
        content = _host_memory(first)
        starts = range_starts(value.shape, region, value.dtype.itemsize)
        box = _box(content, block, region, value.dtype.itemsize)
        own = box if box.flags.c_contiguous else np.empty_like(box, order="C")
        allocator.copyout_ranges(own.reshape(-1).data, memory.handle, starts)
        if own is not box:
            box[...] = own
        for part in (parts[holder] for holder in holders):
            if part is not first or not _is_addressable(first):
                part.copyin(content)
    node = UOp.new_buffer(layout, value.shape, value.dtype)
    return Tensor(bind_buffers(node, list(parts.values())))


class Piece(NamedTuple):
    """Bytes of a file: ranges of equal length that begin at `starts`. `is_copy` if nothing else has
    the memory of `content`.
    """

    starts: list[int]
    content: memoryview
    is_copy: bool

    def copied(self) -> Piece:
        """The same bytes in memory that nothing else writes."""
        if self.is_copy:
            return self
        return Piece(self.starts, memoryview(bytes(self.content)), True)

    def write(self, file: BufferedRandom) -> Iterator[int]:
        """Write the bytes; yields how many, each time that some were written."""
        content = self.content.cast("B")
        size = content.nbytes // len(self.starts)
        for number, start in enumerate(self.starts):
            file.seek(start)
            end = (number + 1) * size
            for first in range(number * size, end, WRITTEN_BYTES):
                yield file.write(content[first : min(first + WRITTEN_BYTES, end)])


def shard_pieces(value: Tensor, layout: Sharding, origin: int) -> Iterator[Piece]:
    """The bytes of the shards of this process, of a row-major array that begins at `origin`."""
    import numpy as np

    node = value.contiguous().realize().uop
    while node.op in {Ops.RESHAPE, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD}:
        # a reshape that keeps the layout does not change the memory of a device
        node = node.src[0]
    block = layout.local_shape(value.shape)
    for region, holders in _holders(layout, value.shape).items():
        memory = node.buffer[holders[0]]
        if isinstance(memory, RemoteBuffer):
            # another process writes it
            continue
        box = _box(memory.as_memoryview(), block, region, value.dtype.itemsize)
        content = np.ascontiguousarray(box).reshape(-1).data
        starts = range_starts(value.shape, region, value.dtype.itemsize)
        is_copy = not (box.flags.c_contiguous and _is_addressable(memory))
        yield Piece([origin + start for start in starts], content, is_copy)


def range_starts(shape: tuple[int, ...], region: Region, itemsize: int) -> list[int]:
    """The start offsets of the byte ranges of a box, in order; the ranges have equal length."""
    import numpy as np

    cut = [axis for axis, bounds in enumerate(region) if bounds != (0, shape[axis])]
    if not cut:
        return [0]
    starts: Any = np.zeros(1, np.int64)
    for axis, (start, stop) in enumerate(region[: cut[-1]]):
        steps = np.arange(start, stop) * (prod(shape[axis + 1 :]) * itemsize)
        starts = (starts[:, None] + steps).reshape(-1)
    last = cut[-1]
    starts = starts + region[last][0] * prod(shape[last + 1 :]) * itemsize
    found: list[int] = starts.tolist()
    return found


def _holders(layout: Sharding, shape: tuple[Any, ...]) -> dict[Region, list[int]]:
    """The numbers of the devices that hold each shard, without devices with empty shards."""
    holders: dict[Region, list[int]] = {}
    for number, region in enumerate(layout.regions(shape)):
        if all(start < stop for start, stop in region):
            holders.setdefault(region, []).append(number)
    return holders


def _box(content: memoryview, block: tuple[int, ...], region: Region, itemsize: int) -> Any:
    """The bytes of a device's memory that are elements of the array, without the padding of the
    last blocks.
    """
    import numpy as np

    sizes = tuple(slice(stop - start) for start, stop in region)
    return np.frombuffer(content, np.uint8).reshape(*block, itemsize)[sizes]


def _is_addressable(part: Buffer) -> bool:
    return Device[part.device].allocator.addressable


def _host_memory(part: Buffer) -> memoryview:
    """The host memory in which a shard is prepared: its own, if the host can address it."""
    return part.as_memoryview() if _is_addressable(part) else memoryview(bytearray(part.nbytes))
