"""Layout changes in the per-device graph: one function for every one of them.

Input: the local value on the source's devices, and two layouts without partial sums. Output: the
local value on the target's devices. Invariant: each device receives exactly the elements of its
block that it lacks, and takes the others from its own memory.

Broadcast, scatter, gather, all-gather, all-to-all, halo exchange and transfers between meshes are
cases of `transfer`. Where both layouts cut the array into equal blocks, it sends tiles: boxes that
lie within one block on both sides (`tile_messages.py`). Where blocks differ in size or overlap, it
sends ranges along the one axis that is sharded differently. Where several axes are, it goes by way
of another layout.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from tinygrad.dtype import dtypes
from tinygrad.helpers import all_int, argsort, prod
from tinygrad.schedule.spmd.local import (
    deinterleave,
    device_block,
    device_start,
    interleave,
    is_host_source,
    local_device,
    local_shape,
    pad_axis,
    pad_to_max_shape,
    pad_to_shape,
    permute_axes,
    slice_axis,
    slice_block,
)
from tinygrad.schedule.spmd.local_messages import LocalPiece, local_pieces
from tinygrad.schedule.spmd.tile_messages import Tiles, tile_counts, tile_messages, tile_shape
from tinygrad.schedule.storage_views import contiguous_range, is_storage
from tinygrad.sharding import (
    Interval,
    NodeStages,
    Placement,
    Routes,
    Sharding,
    Span,
    as_layout,
    common_mesh,
    current_local_devices,
    gather_stages,
    is_local_slice,
    max_shape,
    moved_elements,
    placement_axis,
)
from tinygrad.uop import Ops
from tinygrad.uop.args import CommInfo, Message, TransferArg
from tinygrad.uop.device_value import TensorDevice, device_names
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.sint import smin

Ints = tuple[int, ...]


def transfer(
    value: UOp,
    source: TensorDevice,
    target: TensorDevice,
    shape: tuple[sint, ...],
    info: CommInfo,
) -> UOp:
    """The local value on the devices of `target`. `shape` is the global one."""
    target_shape = local_shape(target, shape)
    if not all_int(shape) and (_is_sharded(source) or _is_sharded(target)):
        # messages are known before the kernels run, so they cannot depend on a symbolic size
        full = transfer(pad_to_max_shape(value), source, target, max_shape(shape), info)
        return full.shrink(tuple((0, d) for d in target_shape))
    if isinstance(target, Sharding) and is_local_slice(source, target, shape):
        if 0 in shape:
            # no elements, but local sizes may differ along the other axes
            shared = zip(value.shape, target_shape, strict=True)
            value = value.shrink(tuple((0, smin(a, b)) for a, b in shared))
            return pad_to_shape(value, target_shape)
        return slice_block(value, cast(Sharding, source), target, shape)
    if isinstance(source, Sharding) and isinstance(target, Sharding):
        stages = gather_stages(source, target, cast(Ints, shape), value.dtype.itemsize)
        if stages is not None:
            return _gather_in_stages(value, stages, target, shape, info)
    changed = _changed_axes(source, target, shape)
    if len(changed) < 2 and not _all_even(source, target, shape):
        axis = changed[0] if changed else _uneven_axis(cast(Sharding, source), shape)
        return _transfer_ranges(value, source, target, shape, axis, info)
    padded = _shape_of_equal_blocks(source, target, shape)
    if padded is not None:
        return _transfer_tiles(value, source, target, shape, padded, info)
    between = _intermediate_layout(as_layout(source), as_layout(target), shape, changed)
    value = transfer(value, source, between, shape, info)
    return transfer(value, between, target, shape, info)


def _is_sharded(layout: TensorDevice) -> bool:
    """Whether blocks are ranges of the array, also if they are as long as the array."""
    return isinstance(layout, Sharding) and bool(layout.split_axes)


def _gather_in_stages(
    value: UOp, stages: NodeStages, target: Sharding, shape: tuple[sint, ...], info: CommInfo
) -> UOp:
    """All-gather between nodes, then within each."""
    info = replace(info, algorithm="hierarchical")
    value = value.reshape(stages.sharded.local_shape(stages.shape))
    value = transfer(value, stages.sharded, stages.between, stages.shape, info)
    value = transfer(value, stages.between, stages.unsharded, stages.shape, info)
    block = local_shape(target, shape)
    padded = [
        stages.counts[axis] * -(-cast(int, size) // stages.counts[axis])
        if axis in stages.counts
        else block[axis]
        for axis, size in enumerate(shape)
    ]
    return value.reshape(tuple(padded)).shrink(tuple((0, size) for size in block))


# ---- the choice of messages ----


def _intermediate_layout(
    source: Sharding, target: Sharding, shape: tuple[sint, ...], changed: list[int]
) -> Sharding:
    """The layout by way of which the fewest elements move. In it one of `changed`, the axes that
    are sharded differently, is unsharded or sharded as in the target; or it is replicated.
    """
    found = [source.replicated()]
    if source.has_intervals:
        placed = [placement_axis(p) for p in source.axes]
        found.append(source.with_axes([None if a is None or shape[a] == 1 else a for a in placed]))
    mesh = (source.devices == target.devices and common_mesh(source, target)) or []
    sizes = [size for size, _, _ in mesh]
    ends = ([None for _ in mesh], [a for _, a, _ in mesh], [b for _, _, b in mesh])
    complete = [_intervals(placements, axis) for placements in ends for axis in changed]
    for axis, is_unsharded in itertools.product(changed, (False, True)):
        axes = [
            (None if is_unsharded else b) if axis in {placement_axis(a), placement_axis(b)} else a
            for _, a, b in mesh
        ]
        sharded = [p for p in axes if p is not None]
        if any(_intervals(axes, other) not in complete for other in changed):
            # intervals along only some of their mesh dimensions do not hold every element
            continue
        if mesh and len({placement_axis(p) for p in sharded}) == len(set(sharded)):
            found.append(Sharding(source.devices, axes, sizes))
    return min(
        (layout for layout in found if layout not in {source, target}),
        key=lambda x: moved_elements(source, x, shape) + moved_elements(x, target, shape),
    )


def _intervals(placements: Sequence[Placement], axis: int) -> list[Interval | None]:
    """The interval along a tensor axis of each mesh dimension that has one."""
    return [p if isinstance(p, Interval) and p.axis == axis else None for p in placements]


def _changed_axes(source: TensorDevice, target: TensorDevice, shape: tuple[sint, ...]) -> list[int]:
    """The axes that are sharded differently."""
    axes = range(len(shape))
    return [axis for axis in axes if _blocks(source, axis, shape) != _blocks(target, axis, shape)]


def _blocks(layout: TensorDevice, axis: int, shape: tuple[sint, ...]) -> tuple[Any, ...]:
    """Which device has which block of an axis, and where the blocks lie."""
    if not isinstance(layout, Sharding):
        return (), Span(0, 0, cast(int, shape[axis]))
    return tuple(layout.block_strides(axis)), layout.span(axis, shape)


def _all_even(source: TensorDevice, target: TensorDevice, shape: tuple[sint, ...]) -> bool:
    return all(x.is_even(shape) for x in (source, target) if isinstance(x, Sharding))


def _uneven_axis(layout: Sharding, shape: tuple[sint, ...]) -> int:
    """An axis with padding in its blocks, or with blocks that overlap."""
    return next(
        axis
        for axis in layout.split_axes
        if axis in layout.interval_axes or cast(int, shape[axis]) % layout.shards(axis)
    )


def _shape_of_equal_blocks(
    source: TensorDevice, target: TensorDevice, shape: tuple[sint, ...]
) -> tuple[sint, ...] | None:
    """`shape` padded so that both layouts cut it into equal blocks; None if no padding does."""
    if any(isinstance(x, Sharding) and x.has_intervals for x in (source, target)):
        return None
    padded: list[sint] = []
    for axis, size in enumerate(shape):
        blocks = {
            layout.shards(axis): layout.local_shape(shape)[axis]
            for layout in (source, target)
            if isinstance(layout, Sharding) and layout.shards(axis) > 1
        }
        sizes = {count * block for count, block in blocks.items()} or {size}
        if len(sizes) > 1:
            return None
        padded += sizes
    return tuple(padded)


# ---- tiles ----


def _transfer_tiles(
    value: UOp,
    source: TensorDevice,
    target: TensorDevice,
    shape: tuple[sint, ...],
    padded: tuple[sint, ...],
    info: CommInfo,
) -> UOp:
    """Send tiles of the array, padded to equal blocks. A device that is sent to reads its block
    through a RESHAPE and a PERMUTE of the tiles; one that sends packs them if its block is not a
    sequence of tiles already. Where the array ends within a tile, the cells inside are sent.
    """
    block, target_block = local_shape(source, padded), local_shape(target, padded)
    tile = tile_shape(block, target_block)
    cell = tuple(
        t if a is b or a == b else math.gcd(cast(int, t), cast(int, b))
        for t, a, b in zip(tile, padded, shape, strict=True)
    )
    cells = tile_counts(tile, cell)
    levels = (tile,) if prod(cells) == 1 else (cells, cell)
    packed = deinterleave(pad_to_shape(value, block), tile_counts(block, tile), *levels)
    if is_host_source(source) and contiguous_range(packed) is None:
        return _transfer_from_host(value, cast(str, source), target, shape, info)
    target_counts = tile_counts(target_block, tile)
    arg = TransferArg(
        device=local_device(target),
        shape=(prod(target_counts) * prod(cells), *(cast(int, c) for c in cell)),
        messages=tile_messages(
            Tiles(source, target, shape, padded, tile, cell), current_local_devices()
        ),
        info=info,
    )
    received = interleave(UOp(Ops.TRANSFER, value.dtype, (packed,), arg), target_counts, *levels)
    return received.shrink(tuple((0, size) for size in local_shape(target, shape)))


# ---- ranges along one axis ----


def _transfer_ranges(
    value: UOp,
    source: TensorDevice,
    target: TensorDevice,
    shape: tuple[sint, ...],
    axis: int,
    info: CommInfo,
) -> UOp:
    """Send contiguous ranges along `axis`, the only one that is sharded differently."""
    if isinstance(target, Sharding) and target.has_intervals and isinstance(source, Sharding):
        same_devices = source.block_strides(axis) == target.block_strides(axis)
        if same_devices and _are_neighbours(source.span(axis, shape), target.span(axis, shape)):
            return _exchange_halo(value, source, target, shape, axis, info)
    order = _axis_first(axis, len(shape))
    packed = permute_axes(value, order)
    if is_host_source(source) and contiguous_range(packed) is None:
        return _transfer_from_host(value, cast(str, source), target, shape, info)
    routes = Routes(as_layout(source), as_layout(target), shape)
    messages = []
    for piece in local_pieces(routes, current_local_devices()):
        low, high = piece.region[axis]
        messages.append(
            Message(
                target=piece.target,
                target_slot=low - device_start(target, axis, shape, piece.target),
                source=piece.source,
                source_slot=low - device_start(source, axis, shape, piece.source),
                pieces=high - low,
            )
        )
    return _received(packed, order, local_shape(target, shape), target, messages, info)


def _received(
    packed: UOp,
    order: tuple[int, ...],
    block: tuple[sint, ...],
    target: TensorDevice,
    messages: list[Message],
    info: CommInfo,
) -> UOp:
    """A block of shape `block` of what each device receives of a value whose axes are permuted to
    `order`.
    """
    sizes = tuple(cast(int, block[a]) for a in order)
    arg = TransferArg(local_device(target), sizes, tuple(sorted(messages)), info)
    received = UOp(Ops.TRANSFER, packed.dtype, (packed,), arg)
    return permute_axes(received, tuple(argsort(order)))


def _axis_first(axis: int, rank: int) -> tuple[int, ...]:
    return (axis, *(a for a in range(rank) if a != axis))


def _are_neighbours(source: Span, target: Span) -> bool:
    """Whether ranges are those of contiguous blocks, shifted or widened."""
    if source.bounds or target.bounds:
        return False
    source, target = source.reduced, target.reduced
    is_block = source.stride == 1 and source.step == source.size
    return is_block and target.stride == 1 and source.step == target.step


def _exchange_halo(
    value: UOp,
    source: Sharding,
    target: Sharding,
    shape: tuple[sint, ...],
    axis: int,
    info: CommInfo,
) -> UOp:
    """Each device's own block, and the halo around it from its neighbours. There is one TRANSFER
    for each distance along the axis, so that no device sends to itself.
    """
    held = source.span(axis, shape).reduced
    block = held.size
    wanted = target.span(axis, shape).reduced
    first, size = wanted.first, wanted.size
    first -= held.first
    order = _axis_first(axis, len(shape))
    pieces: defaultdict[int, list[LocalPiece]] = defaultdict(list)
    for piece in local_pieces(Routes(source, target, shape), current_local_devices()):
        ends = [device_block(source, axis, d) for d in (piece.source, piece.target)]
        pieces[ends[0] - ends[1]].append(piece)
    parts: list[UOp] = []
    for distance in range(first // block, (first + size - 1) // block + 1):
        # the range that the neighbour at this distance holds of the target's block
        low, high = max(first, distance * block), min(first + size, (distance + 1) * block)
        part = slice_axis(value, axis, low - distance * block, high - distance * block)
        if distance:
            messages: list[Message] = []
            for piece in pieces[distance]:
                start, end = piece.region[axis]
                slot = start - device_start(target, axis, shape, piece.target) - low + first
                messages.append(Message(piece.target, slot, piece.source, slot, end - start))
            packed = permute_axes(part, order)
            part = _received(packed, order, part.shape, target, messages, info)
        parts.append(pad_axis(part, axis, low - first, first + size - high))
    join = Ops.OR if value.dtype is dtypes.bool else Ops.ADD
    joined = functools.reduce(lambda a, b: a.alu(join, b), parts)
    return UOp(Ops.CONTIGUOUS, value.dtype, (joined,))


# ---- host data that has to be packed first ----


def _transfer_from_host(
    value: UOp, source: str, target: TensorDevice, shape: tuple[sint, ...], info: CommInfo
) -> UOp:
    """No kernel can pack host data: it goes to the first device unpacked, and on from there."""
    first = device_names(target)[0]
    value = _computed_on(value, source, first, info)
    return value if first == target else transfer(value, first, target, shape, info)


def _computed_on(value: UOp, source: str, target: str, info: CommInfo) -> UOp:
    """`value` computed on `target` from a copy of the memory that it reads on `source`."""
    done: dict[UOp, UOp] = {}
    for node in value.toposort(gate=lambda u: not is_storage(u)):
        if is_storage(node):
            done[node] = transfer(node, source, target, node.shape, info)
        else:
            done[node] = node.replace(src=tuple(done[x] for x in node.src))
    return done[value]
