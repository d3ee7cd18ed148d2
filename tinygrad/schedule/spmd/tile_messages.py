"""The messages of a transfer whose layouts both cut an array into equal blocks.

Input: two layouts, and the shape of a tile, a box that lies within one block on both sides. Output:
the messages that take each destination its tiles. Invariant: a tile comes from the destination's
own memory where it holds the tile, else from the holder that sends the least so far.

A device numbers its tiles in row-major order, and the cells within a tile likewise. Tiles have one
cell each, unless the array ends within a tile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import cast

from tinygrad.caches import cached_function
from tinygrad.helpers import prod
from tinygrad.schedule.spmd.local import local_shape
from tinygrad.sharding import Sharding
from tinygrad.uop.args import Message
from tinygrad.uop.device_value import TensorDevice, device_names
from tinygrad.uop.ops import sint

# a tile that the array ends in is sent whole rather than in more messages than this
MAX_MESSAGES_PER_TILE = 16

Sizes = tuple[sint, ...]


def tile_shape(source: Sizes, target: Sizes) -> Sizes:
    """The largest box that divides the blocks of both sides, of these shapes."""
    return tuple(_tile_size(a, b) for a, b in zip(source, target, strict=True))


def _tile_size(source: sint, target: sint) -> sint:
    if isinstance(source, int) and isinstance(target, int):
        return math.gcd(source, target)
    assert source is target, "an axis of symbolic size is not sharded"
    return source


def tile_counts(shape: Sequence[sint], tile: Sequence[sint]) -> tuple[int, ...]:
    """The number of tiles along each axis of a block."""
    return tuple(
        1 if not isinstance(size, int) or length == 0 else size // cast(int, length)
        for size, length in zip(shape, tile, strict=True)
    )


@cached_function(1024)
def tile_messages(
    source: TensorDevice,
    target: TensorDevice,
    shape: Sizes,
    padded: Sizes,
    tile: Sizes,
    cell: Sizes,
) -> tuple[Message, ...]:
    """The messages of all tiles that do not start past the end of `shape`. `padded` is the shape of
    the array that both layouts cut into equal blocks.
    """
    cells = tile_counts(tile, cell)
    per_tile = prod(cells)
    holders: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for device, slot, position in _tiles(source, padded, tile):
        holders.setdefault(position, []).append((device, slot))
    source_names, target_names = device_names(source), device_names(target)
    sent = [0] * len(source_names)
    messages: list[Message] = []
    for device, slot, position in _tiles(target, padded, tile):
        if padded != shape and _is_past_end(position, tile, shape):
            continue
        options = holders[position]
        own = [x for x in options if source_names[x[0]] == target_names[device]]
        turn = (device + slot) % len(options)
        others = options[turn:] + options[:turn]
        sender, source_slot = own[0] if own else min(others, key=lambda x: sent[x[0]])
        sent[sender] += not own
        messages += [
            Message(device, slot * per_tile + start, sender, source_slot * per_tile + start, count)
            for start, count in _ranges_inside(position, tile, cell, cells, shape)
        ]
    return tuple(messages)


def _tiles(
    layout: TensorDevice, shape: Sizes, tile: Sizes
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """For each tile that a device holds: the number of the device, the number of the tile there,
    and the position of the tile in the grid of the array's tiles.
    """
    counts = tile_counts(local_shape(layout, shape), tile)
    for device, first in enumerate(_first_tiles(layout, shape, tile)):
        for slot, offset in enumerate(itertools.product(*map(range, counts))):
            yield device, slot, tuple(a + b for a, b in zip(first, offset, strict=True))


def _first_tiles(layout: TensorDevice, shape: Sizes, tile: Sizes) -> list[tuple[int, ...]]:
    """The position of each device's first tile."""
    if not isinstance(layout, Sharding):
        return [(0,) * len(shape)]
    return [
        tuple(
            start // length if isinstance(start, int) and isinstance(length, int) and length else 0
            for (start, _), length in zip(region, tile, strict=True)
        )
        for region in layout.regions(shape)
    ]


def _ranges_inside(
    position: tuple[int, ...], tile: Sizes, cell: Sizes, cells: tuple[int, ...], shape: Sizes
) -> list[tuple[int, int]]:
    """The start and length of each contiguous range of a tile's cells that lie within the array; of
    too many ranges, one that contains all.
    """
    inside = [
        n if n == 1 else min(n, (cast(int, size) - at * cast(int, t)) // cast(int, c))
        for at, t, c, n, size in zip(position, tile, cell, cells, shape, strict=True)
    ]
    # after the last axis that the array ends in, ranges are contiguous
    last = max((i for i, (a, n) in enumerate(zip(inside, cells, strict=True)) if a < n), default=0)
    strides = [prod(cells[i + 1 :]) for i in range(len(cells))]
    length = inside[last] * strides[last] if cells else 1
    starts = [
        sum(number * stride for number, stride in zip(numbers, strides))
        for numbers in itertools.product(*(range(n) for n in inside[:last]))
    ]
    if len(starts) > MAX_MESSAGES_PER_TILE:
        return [(0, starts[-1] + length)]
    return [(start, length) for start in starts]


def _is_past_end(position: tuple[int, ...], tile: Sizes, shape: Sizes) -> bool:
    """Whether a tile starts past the end of the array along some axis."""
    return any(
        isinstance(size, int) and number * cast(int, length) >= size > 0
        for number, length, size in zip(position, tile, shape)
    )
