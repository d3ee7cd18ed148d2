"""Moving a value between two layouts, in the per-device graph.

In: the local value on the source's devices, and two layouts without partial sums. Out: the local
value on the destination's. The array is cut into the largest pieces that lie within one shard on
both sides; each destination covers its part piece by piece, from its own memory first, then from
the peers in turn. Broadcast, scatter, gather, all-gather, all-to-all and transfers between meshes
are all this one function.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import cast

from tinygrad.helpers import all_int, ceildiv, prod
from tinygrad.schedule.fuse import is_storage
from tinygrad.schedule.prepare import contiguous_range
from tinygrad.sharding import Sharding
from tinygrad.uop import Ops
from tinygrad.uop.args import Move, Reason, Spmd, TransferArg
from tinygrad.uop.ops import UOp, sint

Layout = str | Sharding
HOST_SOURCES = ("NPY", "PYTHON", "DISK")


def is_host_source(layout: Layout) -> bool:
    """Whether data only passes here on its way to a device: no kernel can run."""
    return isinstance(layout, str) and layout.partition(":")[0] in HOST_SOURCES


def names(layout: Layout) -> tuple[str, ...]:
    """The devices of a layout."""
    return layout.devices if isinstance(layout, Sharding) else (layout,)


def local_shape(layout: Layout, shape: tuple[sint, ...]) -> tuple[sint, ...]:
    """What each device holds of a global `shape`."""
    return layout.local_shape(shape) if isinstance(layout, Sharding) else shape


def device_of(layout: Layout) -> str | Spmd:
    """The layout as a device of the per-device graph."""
    return Spmd(layout.devices) if isinstance(layout, Sharding) else layout


def device_number(count: int) -> UOp:
    """The number of the device that runs the kernel, known when it runs."""
    return UOp.variable("_device_num", 0, count - 1)


def block_start(layout: Sharding, axis: int, size: int) -> sint:
    """Where the running device's block of `axis`, of `size` elements in all, starts."""
    number = device_number(len(layout))
    block = size // layout.shards(axis)
    start: sint = 0
    for stride, count, weight in layout.offset_terms(axis):
        coordinate = (number // stride) % count if stride > 1 or count < len(layout) else number
        start = coordinate * (weight * block) + start
    return start


def slice_local(value: UOp, source: Sharding | None, target: Sharding) -> UOp:
    """Keep the running device's block of a value that it holds more of (None: all of it)."""
    bounds: list[tuple[sint, sint]] = []
    for axis, size in enumerate(value.shape):
        shards = target.shards(axis)
        held = source.shards(axis) if source is not None else 1
        if shards == held:
            bounds.append((0, size))
            continue
        whole = cast(int, size) * held
        start = block_start(target, axis, whole)
        if held > 1:
            # what is held starts at a multiple of its size, and contains the target's block
            start = start % cast(int, size)
        start = start.simplify() if isinstance(start, UOp) else start
        bounds.append((start, start + whole // shards))
    return value.shrink(tuple(bounds))


def interleave(value: UOp, outer: Sequence[sint], inner: Sequence[sint]) -> UOp:
    """`(*outer, *inner)` to `(outer0 * inner0, outer1 * inner1, ...)`."""
    rank = len(outer)
    order = tuple(x for d in range(rank) for x in (d, rank + d))
    value = moved(value.reshape((*outer, *inner)), order)
    return value.reshape(tuple(a * b for a, b in zip(outer, inner, strict=True)))


def deinterleave(value: UOp, outer: Sequence[sint], inner: Sequence[sint]) -> UOp:
    """`(outer0 * inner0, ...)` to `(*outer, *inner)`: the inverse of `interleave`."""
    rank = len(outer)
    pairs = tuple(x for pair in zip(outer, inner, strict=True) for x in pair)
    return moved(value.reshape(pairs), (*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)))


def moved(value: UOp, order: tuple[int, ...]) -> UOp:
    """A permute, as a reshape where only axes of size 1 change places."""
    shape = value.shape
    real = [i for i in order if shape[i] != 1]
    if real == sorted(real):
        return value.reshape(tuple(shape[i] for i in order))
    return value.permute(order)


def transfer(
    value: UOp, source: Layout, target: Layout, shape: tuple[sint, ...], reason: Reason
) -> UOp:
    """The local value on the devices of `target`. `shape` is the global one."""
    have, want = local_shape(source, shape), local_shape(target, shape)
    piece = tuple(_piece(a, b) for a, b in zip(have, want, strict=True))
    grid, target_grid = _grid(have, piece), _grid(want, piece)
    if not all_int(shape) and (prod(grid) > 1 or prod(target_grid) > 1):
        # where a piece starts must not depend on a size that is known when the kernels run
        whole = transfer(padded_to_most(value), source, target, most(shape), reason)
        return whole.shrink(tuple((0, d) for d in want))
    moves = _moves(source, target, shape, piece)
    stays = all(names(source)[m.source] == names(target)[m.target] for m in moves)
    if stays and isinstance(source, Sharding) and isinstance(target, Sharding):
        return slice_local(value, source, target)
    packed = deinterleave(value, grid, piece)
    if is_host_source(source) and contiguous_range(packed) is None:
        first = names(target)[0]
        if first == target:
            return from_host(value, cast(str, source), first, reason)
        value = from_host(value, cast(str, source), first, reason)
        return transfer(value, first, target, shape, reason)
    arg = TransferArg(
        device=device_of(target),
        shape=(prod(target_grid), *(cast(int, p) for p in piece)),
        moves=moves,
        reason=reason,
    )
    return interleave(UOp(Ops.COPY, value.dtype, (packed,), arg), target_grid, piece)


def from_host(value: UOp, source: str, target: str, reason: Reason) -> UOp:
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
    layout: Layout, shape: tuple[sint, ...], piece: tuple[sint, ...]
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


def _moves(
    source: Layout, target: Layout, shape: tuple[sint, ...], piece: tuple[sint, ...]
) -> tuple[Move, ...]:
    """For every piece of every destination, the source to take it from."""
    grid = _grid(local_shape(source, shape), piece)
    holders: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for j, first in enumerate(_first_cells(source, shape, piece)):
        for slot, cell in enumerate(itertools.product(*map(range, grid))):
            place = tuple(a + b for a, b in zip(first, cell, strict=True))
            holders.setdefault(place, []).append((j, slot))
    source_names, target_names = names(source), names(target)
    moves: list[Move] = []
    target_grid = _grid(local_shape(target, shape), piece)
    for k, first in enumerate(_first_cells(target, shape, piece)):
        for slot, cell in enumerate(itertools.product(*map(range, target_grid))):
            place = tuple(a + b for a, b in zip(first, cell, strict=True))
            options = holders[place]
            own = [x for x in options if source_names[x[0]] == target_names[k]]
            j, source_slot = own[0] if own else options[(k + slot) % len(options)]
            moves.append(Move(k, slot, j, source_slot))
    return tuple(moves)


def most(shape: tuple[sint, ...]) -> tuple[int, ...]:
    """The largest size of each axis."""
    return tuple(d if isinstance(d, int) else int(d.vmax) for d in shape)


def padded_to_most(value: UOp) -> UOp:
    """`value` with zeros after its axes of symbolic size, which get their largest."""
    extra = zip(value.shape, most(value.shape), strict=True)
    return value.pad(tuple((0, 0) if isinstance(d, int) else (0, m - d) for d, m in extra))


def padded_flat(value: UOp, multiple: int) -> UOp:
    """`value` as one axis, padded with zeros to a multiple of `multiple`."""
    size = prod(cast(tuple[int, ...], value.shape))
    flat = value.reshape((size,))
    extra = ceildiv(size, multiple) * multiple - size
    return flat.pad(((0, extra),))
