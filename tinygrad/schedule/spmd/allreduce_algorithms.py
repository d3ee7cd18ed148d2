"""The algorithms of an all-reduce, which replicate the reduction of partial sums.

Input: the local value of a partial value, and its layout. Output: the reduction on every device.
Invariant: every algorithm but *peer* and *nccl* is a change of layout of a *stack*, the array of
all partial sums along a new leading axis that the group's mesh dimensions shard, and a local
reduction.

- *peer* sends nothing: the kernel of each device reads the partial sums in the memory of the
  others, where links are readable.
- *nccl* is one call of the library that GPUs have.
- *direct* replicates the stack and reduces it: one round, the most bytes.
- *all2all* shards the elements of the stack instead, reduces them and all-gathers the sums.
- *hierarchical* does so within each node first, and with the results across nodes.
- *ring* passes chunks around a ring and reduces them on the way; on a mesh of one dimension only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import cast

from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import prod
from tinygrad.schedule.spmd.local import device_number, local_device, pad_flat
from tinygrad.schedule.spmd.transfer import transfer
from tinygrad.sharding import (
    Partial,
    Sharding,
    current_local_devices,
    current_topology,
    group_size,
    node_size,
    partial_groups,
)
from tinygrad.uop import Ops
from tinygrad.uop.args import CommInfo, Message, PeerArg, PieceArg, Reduction, TransferArg
from tinygrad.uop.ops import ReduceArg, UOp

MAX_PIECES = 4
"""The maximum number of partial sums that a kernel takes as one argument each."""


def all_reduce_by(
    algorithm: str, value: UOp, source: Sharding, op: Ops, comm: CommInfo, count: int
) -> UOp:
    """The reduction of the partial values, replicated over the devices of each group."""
    if algorithm == "peer":
        return _read_peers(value, source, op, comm, count)
    if algorithm == "nccl":
        return _reduce_by_library(value, source, comm)
    if algorithm == "ring":
        return _ring(value, len(source), op, source.without_partial(), comm)
    if algorithm == "direct":
        row = value.reshape((1, value.size))
        return _exchange_chunks(row, source, op, comm, count).reshape(value.shape)
    inner = node_size(current_topology(), source) if algorithm == "hierarchical" else None
    levels = _levels(source, inner or group_size(source))
    return _scatter_and_gather(value, levels, op, comm, count)


def reduce_leading_axis(value: UOp, op: Ops) -> UOp:
    """Reduce axis 0 by `op`; it is kept with size 1."""
    return value if value.shape[0] == 1 else reduce_axis(value, op, 0)


def reduce_axis(value: UOp, op: Ops, axis: int) -> UOp:
    """Reduce an axis. Narrow floats are rounded once."""
    wide = dtypes.float if _is_rounded(op, value.dtype) else value.dtype
    found = UOp(Ops.REDUCE_AXIS, wide, (value.cast(wide),), ReduceArg(op, (axis,)))
    return found.cast(value.dtype)


def _is_rounded(op: Ops, dtype: DType) -> bool:
    """Whether partial results of a reduction would be rounded to a narrow float dtype."""
    return op is not Ops.MAX and dtypes.is_float(dtype) and dtype.itemsize < 4


@dataclass(frozen=True)
class _Levels:
    """A mesh whose partial dimensions belong to levels of a hierarchy; level 0 is the innermost.

    `level[i]` is the level of mesh dimension i, None where the dimension is not partial.
    """

    devices: tuple[str, ...]
    mesh: tuple[int, ...]
    level: tuple[int | None, ...]

    @property
    def counts(self) -> list[int]:
        """The number of devices that reduce together in each level."""
        sizes = list(zip(self.level, self.mesh, strict=True))
        numbers = sorted({level for level in self.level if level is not None})
        return [prod([size for level, size in sizes if level == n]) for n in numbers]

    def layout(self, axes: Sequence[int | None], others: int) -> Sharding:
        """The layout in which level n shards `axes[n]`, and the other dimensions shard `others`."""
        placements = [others if level is None else axes[level] for level in self.level]
        return Sharding(self.devices, placements, self.mesh)


def _levels(source: Sharding, inner: int) -> _Levels:
    """Two levels: groups of `inner` neighbouring devices, and the devices at one place in each."""
    mesh: list[int] = []
    level: list[int | None] = []
    for placement, size in zip(reversed(source.axes), reversed(source.mesh_shape), strict=True):
        neighbours = math.gcd(size, inner) if isinstance(placement, Partial) else 1
        if not isinstance(placement, Partial):
            parts: list[tuple[int, int | None]] = [(size, None)]
        else:
            parts = [(neighbours, 0), (size // neighbours, 1)]
            inner //= neighbours
        for part, number in parts:
            if part > 1:
                mesh.append(part)
                level.append(number)
    return _Levels(source.devices, tuple(reversed(mesh)), tuple(reversed(level)))


def _scatter_and_gather(value: UOp, levels: _Levels, op: Ops, info: CommInfo, count: int) -> UOp:
    """Reduce-scatter level by level, from the innermost, and all-gather on the way back.

    The axes of the stack are: the partial sums of each level, the groups, the chunks of each level,
    the elements of a chunk. With one level, only the first `count` partial sums are sent.
    """
    counts = levels.counts
    depth = len(counts)
    others = len(levels.devices) // prod(counts)
    flat = pad_flat(value, prod(counts))
    length = cast(int, flat.shape[0]) // prod(counts)
    stack = flat.reshape((*(1 for _ in counts), 1, *counts, length))
    axes: list[int | None] = list(range(depth))
    shape = [*counts, others, *counts, length]
    if depth == 1:
        shape[0] = count

    def reshard(local: UOp, level: int, axis: int | None) -> UOp:
        source = levels.layout(axes, depth)
        axes[level] = axis
        return transfer(local, source, levels.layout(axes, depth), tuple(shape), info)

    if depth == 1 and has_pieces(levels.layout(axes, depth), count):
        chunks = flat.reshape((counts[0], length))
        chunk = _exchange_chunks(chunks, levels.layout(axes, depth), op, info, count)
        stack = chunk.reshape((1, 1, 1, length))
        axes[0], shape[0] = 2, 1
    else:
        for level in range(depth):
            chunks = reshard(stack, level, depth + 1 + level)
            stack = reduce_axis(chunks, op, level)
            shape[level] = 1
    for level in reversed(range(depth)):
        stack = reshard(stack, level, None)
    full = stack.reshape((length * prod(counts),))
    return full.shrink(((0, value.size),)).reshape(value.shape)


def has_pieces(layout: Sharding, count: int) -> bool:
    """Whether the kernel that reduces takes each partial sum as an argument: all devices are one
    group, and there are few sums. With many, copying a device's own sum next to those that it
    receives costs little.
    """
    return len(layout.mesh_shape) == 1 and 1 < count <= MAX_PIECES


def _exchange_chunks(chunks: UOp, layout: Sharding, op: Ops, info: CommInfo, count: int) -> UOp:
    """The reduction of the chunk of each device, of the first `count` partial sums. `chunks` are
    rows, one for each device, or one for all.

    The kernel that reduces reads a device's own chunk where it is, so that nothing is copied.
    """
    rows, length = cast(tuple[int, int], chunks.shape)
    devices, local = range(len(layout)), current_local_devices().numbers(layout.devices)
    here = set(local)
    kept = [number if rows > 1 else 0 for number in devices]
    pieces = [PieceArg(member, kept[member], (length,)) for member in range(count)]
    messages = [
        Message(target, piece.row(target), piece.member, kept[target])
        for piece in pieces
        for target in devices
        if target != piece.member and not here.isdisjoint({target, piece.member})
    ]
    shape = (min(count, len(layout) - 1), length)
    arg = TransferArg(local_device(layout), shape, tuple(sorted(messages)), info)
    received = UOp(Ops.TRANSFER, chunks.dtype, (chunks,), arg)
    parts = [UOp(Ops.PIECE, chunks.dtype, (chunks, received), piece) for piece in pieces]
    return _combine(parts, op)


def _combine(parts: list[UOp], op: Ops) -> UOp:
    """The combination of values in order. Narrow floats are rounded once, as by `reduce_axis`."""
    dtype = parts[0].dtype
    wide = [part.cast(dtypes.float) for part in parts] if _is_rounded(op, dtype) else parts
    return functools.reduce(lambda a, b: a.alu(op, b), wide).cast(dtype)


def _read_peers(value: UOp, source: Sharding, op: Ops, info: CommInfo, count: int) -> UOp:
    """One kernel on each device reads the first `count` partial sums of its group, in order, so
    that all devices have equal results.
    """
    numbers = {name: number for number, name in enumerate(source)}
    groups = {name: group for group in partial_groups(source) for name in group}
    found: list[UOp] = []
    for member in range(count):
        peers = tuple(numbers[groups[name][member]] for name in source)
        found.append(UOp(Ops.PEER, value.dtype, (value,), PeerArg(peers, info)))
    return UOp(Ops.CONTIGUOUS, value.dtype, (_combine(found, op),))


def can_library_reduce(op: Ops, dtype: DType) -> bool:
    """Whether NCCL has an operation for the dtype."""
    from tinygrad.runtime.support.cuda.nccl import can_reduce

    return can_reduce(op.name, dtype)


def _reduce_by_library(value: UOp, source: Sharding, info: CommInfo) -> UOp:
    """One call for all devices."""
    numbers = {name: number for number, name in enumerate(source)}
    groups = tuple(tuple(numbers[name] for name in group) for group in partial_groups(source))
    arg = TransferArg(
        device=local_device(source),
        shape=(1, *cast(tuple[int, ...], value.shape)),
        messages=tuple(Message(number, 0, number, 0) for number in range(len(source))),
        info=info,
        reduction=Reduction(source.partial_ops[0], groups),
    )
    return UOp(Ops.TRANSFER, value.dtype, (value,), arg).reshape(value.shape)


def _ring(value: UOp, count: int, op: Ops, reduced: Sharding, info: CommInfo) -> UOp:
    """Reduce-scatter around the ring, a chunk a step; then all devices send their chunk to all."""
    flat = pad_flat(value, count)
    length = cast(int, flat.shape[0]) // count
    number = device_number(count)

    def own_chunk(step: int) -> UOp:
        start = (number + (count - step)) % count * length
        return flat.shrink(((start, start + length),))

    def send(chunk: UOp, chunks: int, messages: list[Message]) -> UOp:
        arg = TransferArg(local_device(reduced), (chunks, length), tuple(messages), info)
        return UOp(Ops.TRANSFER, value.dtype, (chunk,), arg).reshape((chunks * length,))

    # messages of which a local device is an end
    devices, here = range(count), current_local_devices().numbers(reduced.devices)
    senders = sorted({*here, *((d - 1) % count for d in here)})
    chunk = own_chunk(0)
    for step in range(1, count):
        received = send(chunk, 1, [Message((j + 1) % count, 0, j, 0) for j in senders])
        chunk = UOp(op, value.dtype, (received, own_chunk(step)))
    # device d now holds the reduction of chunk (d + 1) % count
    pairs = chain(product(here, devices), product(set(devices).difference(here), here))
    gathered = [Message(k, (j + 1) % count, j, 0) for k, j in pairs]
    full = send(chunk, count, sorted(gathered))
    return full.shrink(((0, value.size),)).reshape(value.shape)
