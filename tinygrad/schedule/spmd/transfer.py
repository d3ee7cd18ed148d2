"""Moving a value between two layouts, in the per-device graph.

In: the local value on the source's devices, and two layouts without partial sums. Out: the local
value on the destination's. Each destination covers its part piece by piece, from its own memory
first, then from the peers in turn. Broadcast, scatter, gather, all-gather, all-to-all, the exchange
of halos and transfers between meshes are all this one function.

Where all parts are equal blocks, the pieces are the largest boxes that lie within one part on both
sides. Else they are runs along the axis that is cut differently.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

from tinygrad.dtype import dtypes
from tinygrad.helpers import all_int, argsort, prod
from tinygrad.schedule.spmd.local import (
    along,
    deinterleave,
    device_of,
    interleave,
    is_host_source,
    local_shape,
    max_shape,
    moved,
    pad_to_max_shape,
    pad_to_shape,
    padded,
    part_numbers,
    part_starts,
    slice_local,
)
from tinygrad.schedule.storage_views import contiguous_range, is_storage
from tinygrad.sharding import (
    Interval,
    Placement,
    Sharding,
    common_mesh,
    cover,
    moved_elements,
    placement_axis,
)
from tinygrad.uop import Ops
from tinygrad.uop.args import CommInfo, Message, TransferArg
from tinygrad.uop.device_value import TensorDevice, device_names
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.sint import smin

# messages for one piece
MAX_RUNS_OF_A_PIECE = 16


def transfer(
    value: UOp,
    source: TensorDevice,
    target: TensorDevice,
    shape: tuple[sint, ...],
    reason: CommInfo,
) -> UOp:
    """The local value on the devices of `target`. `shape` is the global one."""
    have, want = local_shape(source, shape), local_shape(target, shape)
    if not all_int(shape) and (have != shape or want != shape):
        # where a piece starts must not depend on a size that is known when the kernels run
        whole = transfer(pad_to_max_shape(value), source, target, max_shape(shape), reason)
        return whole.shrink(tuple((0, d) for d in want))
    if isinstance(target, Sharding) and stays(source, target, shape):
        if 0 in shape:
            # nothing messages, but a part may be longer along an axis that has a size
            shared = zip(value.shape, want, strict=True)
            return pad_to_shape(value.shrink(tuple((0, smin(a, b)) for a, b in shared)), want)
        return slice_local(value, cast(Sharding, source), target, shape)
    changed = _changed_axes(source, target, shape)
    if len(changed) < 2 and not _all_even(source, target, shape):
        axis = changed[0] if changed else _uneven_axis(cast(Sharding, source), shape)
        return _transfer_runs(value, source, target, shape, axis, reason)
    blocks = _whole_blocks(source, target, shape)
    if blocks is not None:
        return _transfer_pieces(value, source, target, shape, blocks, reason)
    # one axis after the other
    assert isinstance(source, Sharding) and isinstance(target, Sharding), "parts of one device"
    between = _layout_between(source, target, shape, changed)
    value = transfer(value, source, between, shape, reason)
    return transfer(value, between, target, shape, reason)


def _layout_between(
    source: Sharding, target: Sharding, shape: tuple[sint, ...], changed: list[int]
) -> Sharding:
    """The layout on the way by which the fewest elements move: one of `changed`, the axes that are
    cut differently, is whole, or cut as in the target already; or all are whole.
    """
    found = [source.replicated()]
    mesh = (source.devices == target.devices and common_mesh(source, target)) or []
    sizes = [size for size, _, _ in mesh]
    ends = ([None for _ in mesh], [a for _, a, _ in mesh], [b for _, _, b in mesh])
    complete = [_intervals(placements) for placements in ends]
    for axis, is_whole in itertools.product(changed, (False, True)):
        axes = [
            (None if is_whole else b) if axis in {placement_axis(a), placement_axis(b)} else a
            for _, a, b in mesh
        ]
        split = [p for p in axes if p is not None]
        if _intervals(axes) not in complete:
            # intervals along only some of their mesh dimensions do not hold every element
            continue
        if mesh and len({placement_axis(p) for p in split}) == len(set(split)):
            found.append(Sharding(source.devices, axes, sizes))
    return min(
        (layout for layout in found if layout not in {source, target}),
        key=lambda x: moved_elements(source, x, shape) + moved_elements(x, target, shape),
    )


def _intervals(placements: Sequence[Placement]) -> list[Interval | None]:
    """The interval of each mesh dimension that has one."""
    return [p if isinstance(p, Interval) else None for p in placements]


def _all_even(source: TensorDevice, target: TensorDevice, shape: tuple[sint, ...]) -> bool:
    return all(x.is_even(shape) for x in (source, target) if isinstance(x, Sharding))


def _uneven_axis(layout: Sharding, shape: tuple[sint, ...]) -> int:
    """An axis whose blocks are not equal."""
    return next(
        axis
        for axis in layout.split_axes
        if axis in layout.interval_axes or cast(int, shape[axis]) % layout.shards(axis)
    )


def _whole_blocks(
    source: TensorDevice, target: TensorDevice, shape: tuple[sint, ...]
) -> tuple[sint, ...] | None:
    """`shape` filled up, so that both sides cut it into equal blocks; None if that cannot be."""
    if any(isinstance(x, Sharding) and x.has_intervals for x in (source, target)):
        return None
    filled: list[sint] = []
    for axis, size in enumerate(shape):
        counts = {
            layout.shards(axis): layout.local_shape(shape)[axis]
            for layout in (source, target)
            if isinstance(layout, Sharding) and layout.shards(axis) > 1
        }
        sizes = {count * block for count, block in counts.items()} or {size}
        if len(sizes) > 1:
            return None
        filled += sizes
    return tuple(filled)


def _changed_axes(source: TensorDevice, target: TensorDevice, shape: tuple[sint, ...]) -> list[int]:
    """The axes that are cut differently."""
    axes = range(len(shape))
    return [axis for axis in axes if _cut(source, axis, shape) != _cut(target, axis, shape)]


def _cut(layout: TensorDevice, axis: int, shape: tuple[sint, ...]) -> tuple[Any, ...]:
    if not isinstance(layout, Sharding):
        return (), (0, 0, shape[axis])
    return tuple(layout.block_strides(axis)), layout.span(axis, shape)


def stays(source: TensorDevice, target: Sharding, shape: tuple[sint, ...]) -> bool:
    """Whether each device's part of `target` is one slice of what it holds."""
    return (
        isinstance(source, Sharding)
        and source.devices == target.devices
        and not moved_elements(source, target, shape)
        and all(
            source.shards(axis) == 1
            or (source.span(axis, shape) == target.span(axis, shape))
            or (source.is_even(shape) and target.is_even(shape))
            for axis in range(len(shape))
        )
    )


def _transfer_pieces(
    value: UOp,
    source: TensorDevice,
    target: TensorDevice,
    shape: tuple[sint, ...],
    blocks: tuple[sint, ...],
    reason: CommInfo,
) -> UOp:
    """Cut the array, filled up to whole `blocks`, into the largest boxes that lie within one part
    on both sides. Where the array ends within such a piece, it is one of cells of a `unit`.
    """
    have, want = local_shape(source, blocks), local_shape(target, blocks)
    piece = tuple(_piece(a, b) for a, b in zip(have, want, strict=True))
    unit = tuple(
        p if a is b or a == b else math.gcd(cast(int, p), cast(int, b))
        for p, a, b in zip(piece, blocks, shape, strict=True)
    )
    cells = _grid(piece, unit)
    inner = (piece,) if prod(cells) == 1 else (cells, unit)
    grid, target_grid = _grid(have, piece), _grid(want, piece)
    packed = deinterleave(pad_to_shape(value, have), grid, *inner)
    if is_host_source(source) and contiguous_range(packed) is None:
        return transfer_from_host(value, cast(str, source), target, shape, reason)
    arg = TransferArg(
        device=device_of(target),
        shape=(prod(target_grid) * prod(cells), *(cast(int, u) for u in unit)),
        messages=_messages(source, target, shape, blocks, piece, unit),
        reason=reason,
    )
    moved = interleave(UOp(Ops.TRANSFER, value.dtype, (packed,), arg), target_grid, *inner)
    return moved.shrink(tuple((0, size) for size in local_shape(target, shape)))


def _transfer_runs(
    value: UOp,
    source: TensorDevice,
    target: TensorDevice,
    shape: tuple[sint, ...],
    axis: int,
    reason: CommInfo,
) -> UOp:
    """Runs of elements along `axis`, which alone is cut differently."""
    if isinstance(target, Sharding) and target.has_intervals and isinstance(source, Sharding):
        is_cut_alike = source.block_strides(axis) == target.block_strides(axis)
        if is_cut_alike and source.span(axis, shape)[1] == target.span(axis, shape)[1]:
            return _exchange_halo(value, source, target, shape, axis, reason)
    order = (axis, *(a for a in range(len(shape)) if a != axis))
    packed = moved(value, order)
    if is_host_source(source) and contiguous_range(packed) is None:
        return transfer_from_host(value, cast(str, source), target, shape, reason)
    target_starts, source_starts = (part_starts(x, axis, shape) for x in (target, source))
    messages = []
    for k, pieces in enumerate(cover(source, target, shape)):
        for piece in pieces:
            low, high = piece.region[axis]
            messages.append(
                Message(
                    target=k,
                    target_slot=low - target_starts[k],
                    source=piece.source,
                    source_slot=low - source_starts[piece.source],
                    count=high - low,
                )
            )
    want = local_shape(target, shape)
    runs = tuple(cast(int, want[a]) for a in order)
    arg = TransferArg(device_of(target), runs, tuple(messages), reason)
    return moved(UOp(Ops.TRANSFER, value.dtype, (packed,), arg), tuple(argsort(order)))


def _exchange_halo(
    value: UOp,
    source: Sharding,
    target: Sharding,
    shape: tuple[sint, ...],
    axis: int,
    reason: CommInfo,
) -> UOp:
    """Each device's own block, with the elements around it that its neighbours hold."""
    block = source.span(axis, shape)[2]
    first, _, size = target.span(axis, shape)
    numbers, starts = part_numbers(source, axis), part_starts(target, axis, shape)
    order = (axis, *(a for a in range(len(shape)) if a != axis))
    pieces = cover(source, target, shape)
    parts: list[UOp] = []
    for distance in range(first // block, (first + size - 1) // block + 1):
        # what the device that is so far along the axis holds of this one's part
        low, high = max(first, distance * block), min(first + size, (distance + 1) * block)
        part = along(value, axis, low - distance * block, high - distance * block)
        if distance:
            messages: list[Message] = []
            for k, wanted in enumerate(pieces):
                for piece in wanted:
                    if numbers[piece.source] - numbers[k] == distance:
                        start, end = piece.region[axis]
                        slot = start - starts[k] - (low - first)
                        messages.append(Message(k, slot, piece.source, slot, end - start))
            packed = moved(part, order)
            rows = cast(tuple[int, ...], packed.shape)
            arg = TransferArg(device_of(target), rows, tuple(messages), reason)
            part = moved(UOp(Ops.TRANSFER, value.dtype, (packed,), arg), tuple(argsort(order)))
        parts.append(padded(part, axis, low - first, first + size - high))
    join = Ops.OR if value.dtype is dtypes.bool else Ops.ADD
    whole = functools.reduce(lambda a, b: a.alu(join, b), parts)
    return UOp(Ops.CONTIGUOUS, value.dtype, (whole,))


def transfer_from_host(
    value: UOp, source: str, target: TensorDevice, shape: tuple[sint, ...], reason: CommInfo
) -> UOp:
    """Data that must be rearranged first goes to the first device as it is."""
    first = device_names(target)[0]
    value = from_host(value, source, first, reason)
    return value if first == target else transfer(value, first, target, shape, reason)


def from_host(value: UOp, source: str, target: str, reason: CommInfo) -> UOp:
    """Copy the memory below, then compute on the device what the host cannot."""
    done: dict[UOp, UOp] = {}
    for node in value.toposort(gate=lambda u: not is_storage(u)):
        if is_storage(node):
            done[node] = transfer(node, source, target, node.shape, reason)
        else:
            done[node] = node.replace(src=tuple(done[x] for x in node.src))
    return done[value]


def _piece(have: sint, want: sint) -> sint:
    if isinstance(have, int) and isinstance(want, int):
        return math.gcd(have, want)
    assert have is want, "an axis of symbolic size is never split"
    return have


def _grid(local: Sequence[sint], piece: Sequence[sint]) -> tuple[int, ...]:
    return tuple(
        1 if not isinstance(a, int) or p == 0 else a // cast(int, p)
        for a, p in zip(local, piece, strict=True)
    )


def _first_cells(
    layout: TensorDevice, shape: tuple[sint, ...], piece: tuple[sint, ...]
) -> list[tuple[int, ...]]:
    if not isinstance(layout, Sharding):
        return [(0,) * len(shape)]
    return [
        tuple(
            start // p if isinstance(start, int) and isinstance(p, int) and p else 0
            for (start, _), p in zip(region, piece, strict=True)
        )
        for region in layout.regions(shape)
    ]


@functools.lru_cache(maxsize=1024)
def _messages(
    source: TensorDevice,
    target: TensorDevice,
    shape: tuple[sint, ...],
    blocks: tuple[sint, ...],
    piece: tuple[sint, ...],
    unit: tuple[sint, ...],
) -> tuple[Message, ...]:
    """For every piece of every destination, the source to take it from, which sends least so far;
    none for what lies behind the array's end.
    """
    cells = _grid(piece, unit)
    count = prod(cells)
    grid = _grid(local_shape(source, blocks), piece)
    holders: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for j, first in enumerate(_first_cells(source, blocks, piece)):
        for slot, cell in enumerate(itertools.product(*map(range, grid))):
            place = tuple(a + b for a, b in zip(first, cell, strict=True))
            holders.setdefault(place, []).append((j, slot))
    source_names, target_names = device_names(source), device_names(target)
    sent = [0] * len(source_names)
    messages: list[Message] = []
    target_grid = _grid(local_shape(target, blocks), piece)
    for k, first in enumerate(_first_cells(target, blocks, piece)):
        for slot, cell in enumerate(itertools.product(*map(range, target_grid))):
            place = tuple(a + b for a, b in zip(first, cell, strict=True))
            if blocks != shape and _is_behind(place, piece, shape):
                continue
            options = holders[place]
            own = [x for x in options if source_names[x[0]] == target_names[k]]
            turn = (k + slot) % len(options)
            others = options[turn:] + options[:turn]
            j, source_slot = own[0] if own else min(others, key=lambda x: sent[x[0]])
            sent[j] += not own
            for start, length in _runs_inside(place, piece, unit, cells, shape):
                at, taken = slot * count + start, source_slot * count + start
                messages.append(Message(k, at, j, taken, length))
    return tuple(messages)


def _runs_inside(
    place: tuple[int, ...],
    piece: tuple[sint, ...],
    unit: tuple[sint, ...],
    cells: tuple[int, ...],
    shape: tuple[sint, ...],
) -> list[tuple[int, int]]:
    """The cells of a piece that lie within the array, as runs: where each starts, and its length.
    Some more, where these would be many messages.
    """
    inside = [
        n if n == 1 else min(n, (cast(int, size) - at * cast(int, p)) // cast(int, u))
        for at, p, u, n, size in zip(place, piece, unit, cells, shape, strict=True)
    ]
    # the axes behind this one are whole
    last = max((i for i, (a, n) in enumerate(zip(inside, cells, strict=True)) if a < n), default=0)
    strides = [prod(cells[i + 1 :]) for i in range(len(cells))]
    length = inside[last] * strides[last] if cells else 1
    starts = [
        sum(number * stride for number, stride in zip(numbers, strides))
        for numbers in itertools.product(*(range(n) for n in inside[:last]))
    ]
    if len(starts) > MAX_RUNS_OF_A_PIECE:
        return [(0, starts[-1] + length)]
    return [(start, length) for start in starts]


def _is_behind(place: tuple[int, ...], piece: tuple[sint, ...], shape: tuple[sint, ...]) -> bool:
    """Whether a piece starts behind the end of the array along some axis."""
    return any(
        isinstance(size, int) and number * cast(int, length) >= size > 0
        for number, length, size in zip(place, piece, shape)
    )
