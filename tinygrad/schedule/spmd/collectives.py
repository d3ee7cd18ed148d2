"""ALLREDUCE in the per-device graph: partial sums become their reduction.

Input: the local value of a partial value, its layout, and the layout of the result. Output: the
local result. Invariant: every algorithm but *peer* and *nccl* is a change of layout of a *stack*,
the array of all partial sums along a new leading axis that the group's mesh dimensions shard, and a
local reduction.

- *peer* sends nothing: the kernel of each device reads the partial sums in the memory of the
  others, where links are readable.
- *nccl* is one call of the library that GPUs have.
- *direct* replicates the stack and reduces it: one round, the most bytes.
- *all-to-all* shards the elements of the stack instead, reduces them and all-gathers the sums.
- *hierarchical* does so within each node first, and with the results across nodes.
- *ring* passes chunks around a ring and reduces them on the way; on a mesh of one dimension only.

Where the layout asked for is sharded, the change of layout is a reduce-scatter; where it is one
device, a reduce. Where it is sharded along some of the partial dimensions alone, a reduce-scatter
along these comes first, if that is faster. The topology decides which algorithm is the fastest. On
a mesh, each group of devices along the partial dimensions communicates by itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import cast

from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import all_int, ceildiv, prod
from tinygrad.schedule.spmd.local import (
    device_number,
    local_device,
    local_shape,
    pad_flat,
    pad_to_max_shape,
    slice_block,
)
from tinygrad.schedule.spmd.transfer import transfer
from tinygrad.settings import ALL2ALL, RING
from tinygrad.sharding import (
    NodeStages,
    Partial,
    Sharding,
    current_local_devices,
    current_topology,
    fastest_allreduce,
    group_size,
    max_shape,
    next_axis,
    node_size,
    partial_groups,
    scatter_stages,
    scattered_first,
    scattered_stack,
    sliced_source,
    stack_layout,
    stack_shape,
)
from tinygrad.uop import Ops
from tinygrad.uop.args import CommInfo, Message, PeerArg, PieceArg, Reduction, TransferArg
from tinygrad.uop.device_value import TensorDevice
from tinygrad.uop.ops import ReduceArg, UOp, sint
from tinygrad.uop.user_line import UserLine

MAX_PIECES = 4
"""The partial sums that a kernel reads as arguments of their own, where they are sent to it."""


def reduce_leading_axis(value: UOp, op: Ops) -> UOp:
    """Reduce axis 0 by `op`; it is kept with size 1."""
    return value if value.shape[0] == 1 else _reduced(value, op, 0)


def _reduced(value: UOp, op: Ops, axis: int) -> UOp:
    """Reduce an axis. Narrow floats are rounded once."""
    wide = dtypes.float if _is_rounded(op, value.dtype) else value.dtype
    found = UOp(Ops.REDUCE_AXIS, wide, (value.cast(wide),), ReduceArg(op, (axis,)))
    return found.cast(value.dtype)


def _is_rounded(op: Ops, dtype: DType) -> bool:
    """Whether partial results of a reduction would be rounded to a narrow float dtype."""
    return op is not Ops.MAX and dtypes.is_float(dtype) and dtype.itemsize < 4


def partial_sum_count(node: UOp) -> int:
    """The number of devices in each group that hold a partial sum, the first ones. The others have
    the identity, as their blocks of the reduction axis are past its end.
    """
    group = group_size(node.layout)
    found: int = 0
    for x in node.toposort(gate=_is_partial):
        if not _is_partial(x) or any(map(_is_partial, x.src)):
            continue
        if x.op is not Ops.REDUCE_AXIS:
            return group
        layout, shape = x.src[0].layout, x.src[0].shape
        sharded = [axis for axis in x.arg.axes if layout.shards(axis) == group]
        if not sharded:
            return group
        block = layout.span(sharded[0], shape).length
        found = max(found, ceildiv(max_shape(shape)[sharded[0]], max(1, block)))
    return found if found > 1 else group


def _is_partial(node: UOp) -> bool:
    return isinstance(node.device, Sharding) and node.device.is_partial


def all_reduce(
    value: UOp,
    source: Sharding,
    target: TensorDevice,
    shape: tuple[sint, ...],
    line: UserLine | int,
    count: int,
) -> UOp:
    """The reduction of a value in the partial layout `source`, in the layout `target`.

    `value` and the result are local, `shape` is the global one. The first `count` devices of each
    group hold partial sums, see `partial_sum_count`. `line` is the user's.
    """
    if not all_int(shape):
        full = all_reduce(pad_to_max_shape(value), source, target, max_shape(shape), line, count)
        return full.shrink(tuple((0, d) for d in local_shape(target, shape)))
    op = Ops[source.partial_ops[0]]
    if isinstance(target, Sharding) and target.devices == source.devices:
        refined = sliced_source(source, target, shape)
        if refined != source:
            value, source = slice_block(value, source, refined, shape), refined
    reduced = source.without_partial()

    def info(kind: str, algorithm: str = "") -> CommInfo:
        return CommInfo(kind, str(source), str(target), line, algorithm)

    stack = value.reshape((1, *value.shape))
    if not isinstance(target, Sharding):
        gathered = transfer(stack, stack_layout(source), target, (count, *shape), info("reduce"))
        return reduce_leading_axis(gathered, op).reshape(shape)
    if target.devices != source.devices:
        between = _layout_to_send(source, target)
        local = all_reduce(value, source, between, shape, line, count)
        return transfer(local, between, target, shape, info("send"))
    if target == reduced:
        algorithm = _algorithm_of(value, source, op)
        comm = info("all_reduce", algorithm)
        if algorithm != "direct" or _has_pieces(source, count):
            return _all_reduce_by(algorithm, value, source, op, comm, count)
    else:
        comm = info("reduce_scatter")
        first = scattered_first(source, target, shape, value.dtype.itemsize, count)
        if first is not None:
            local = _scatter_some(value, source, first, shape, comm)
            return all_reduce(local, first, target, shape, line, group_size(first))
        stages = scatter_stages(source, target, shape, value.dtype.itemsize)
        if stages is not None and count == group_size(source):
            return _scatter_in_stages(value, stages, target, shape, comm)
    stack_target = target.with_axes([next_axis(p) for p in target.axes])
    received = transfer(stack, stack_layout(source), stack_target, (count, *shape), comm)
    return reduce_leading_axis(received, op).reshape(target.local_shape(shape))


def _algorithm_of(value: UOp, source: Sharding, op: Ops) -> str:
    """The fastest algorithm of an all-reduce that can reduce the value."""
    algorithm = choose_algorithm(source, value.nbytes)
    if algorithm == "nccl" and not _can_library_reduce(op, value.dtype):
        return "all2all"
    return algorithm


def _all_reduce_by(
    algorithm: str, value: UOp, source: Sharding, op: Ops, comm: CommInfo, count: int
) -> UOp:
    """The reduction of a value on every device that holds a partial one."""
    if algorithm == "peer":
        return _read_peers(value, source, op, comm, count)
    if algorithm == "nccl":
        return _reduce_by_library(value, source, comm)
    if algorithm == "ring":
        return _ring(value, len(source), op, source.without_partial(), comm)
    if algorithm == "direct":
        row = value.reshape((1, value.size))
        return _exchanged(row, source, op, comm, count).reshape(value.shape)
    inner = node_size(current_topology(), source) if algorithm == "hierarchical" else None
    levels = _levels(source, inner or group_size(source))
    return _scatter_and_gather(value, levels, op, comm, count)


def _layout_to_send(source: Sharding, target: Sharding) -> Sharding:
    """The layout of a reduction on the source's devices, before it is sent to other devices.

    It is sharded like the target if there are as many devices: then each sends one block.
    """
    if target.is_replicated or len(target) != len(source):
        return source.without_partial()
    return Sharding(source.devices, target.axes, target.mesh_shape)


def _scatter_some(
    value: UOp, source: Sharding, between: Sharding, shape: tuple[int, ...], info: CommInfo
) -> UOp:
    """Reduce-scatter along the partial dimensions that are not partial in `between`."""
    before, after = scattered_stack(source, between)
    stack = value.reshape((1, 1, *value.shape))
    received = transfer(stack, before, after, stack_shape(source, between, shape), info)
    reduced = reduce_leading_axis(received, Ops[source.partial_ops[0]])
    return reduced.reshape(between.local_shape(shape))


def _scatter_in_stages(
    value: UOp, stages: NodeStages, target: Sharding, shape: tuple[int, ...], info: CommInfo
) -> UOp:
    """Reduce-scatter within each node, then between nodes."""
    info = replace(info, algorithm="hierarchical")
    padding = [
        (0, -size % stages.counts[axis] if axis in stages.counts else 0)
        for axis, size in enumerate(shape)
    ]
    value = value.pad(tuple(padding)).reshape(stages.whole.local_shape(stages.shape))
    value = _scatter_some(value, stages.whole, stages.between, stages.shape, info)
    stack = stages.sharded.with_axes([next_axis(p) for p in stages.sharded.axes])
    count = group_size(stages.between)
    received = transfer(
        value.reshape((1, *value.shape)),
        stack_layout(stages.between),
        stack,
        (count, *stages.shape),
        info,
    )
    op = Ops[stages.whole.partial_ops[0]]
    return reduce_leading_axis(received, op).reshape(target.local_shape(shape))


def choose_algorithm(source: Sharding, nbytes: int) -> str:
    """The algorithm of an all-reduce of `nbytes`: the fastest, or the one that settings ask for.

    Settings choose among the algorithms for many bytes; for few it is always direct, or peer where
    no memory is that of another process.
    """
    fastest = fastest_allreduce(current_topology(), source, nbytes)
    if not current_local_devices().is_all:
        fastest = {"peer": "direct", "nccl": "all2all"}.get(fastest, fastest)
    if fastest in {"peer", "direct"}:
        return fastest
    if (RING or not ALL2ALL) and len(source.mesh_shape) == 1:
        return "ring"
    return "all2all" if ALL2ALL > 1 or RING or not ALL2ALL else fastest


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

    if depth == 1 and _has_pieces(levels.layout(axes, depth), count):
        chunks = flat.reshape((counts[0], length))
        chunk = _exchanged(chunks, levels.layout(axes, depth), op, info, count)
        stack = chunk.reshape((1, 1, 1, length))
        axes[0], shape[0] = 2, 1
    else:
        for level in range(depth):
            chunks = reshard(stack, level, depth + 1 + level)
            stack = _reduced(chunks, op, level)
            shape[level] = 1
    for level in reversed(range(depth)):
        stack = reshard(stack, level, None)
    full = stack.reshape((length * prod(counts),))
    return full.shrink(((0, value.size),)).reshape(value.shape)


def _has_pieces(layout: Sharding, count: int) -> bool:
    """Whether a kernel reads partial sums one by one, all of which are on devices of one group. Of
    many, a copy of one's own is little beside what is received.
    """
    return len(layout.mesh_shape) == 1 and 1 < count <= MAX_PIECES


def _exchanged(chunks: UOp, layout: Sharding, op: Ops, info: CommInfo, count: int) -> UOp:
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
    return _combined(parts, op)


def _combined(parts: list[UOp], op: Ops) -> UOp:
    """The combination of values in order. Narrow floats are rounded once, as by `_reduced`."""
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
    return UOp(Ops.CONTIGUOUS, value.dtype, (_combined(found, op),))


def _can_library_reduce(op: Ops, dtype: DType) -> bool:
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
