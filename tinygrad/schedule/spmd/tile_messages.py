"""The messages of a transfer whose layouts both cut an array into equal blocks.

Input: two layouts, and the shape of a tile, a box that lies within one block on both sides. Output:
the local messages that take each destination its tiles. Invariant: a tile comes from the device
that `Routes` names, which is the destination itself where it holds the tile.

A device numbers its tiles in row-major order, and the cells within a tile likewise. Tiles have one
cell each, unless the array ends within a tile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from tinygrad.caches import cached_function
from tinygrad.helpers import prod
from tinygrad.schedule.spmd.local import local_shape
from tinygrad.schedule.spmd.local_messages import local_pieces
from tinygrad.sharding import LocalDevices, Region, Routes, as_layout
from tinygrad.uop.args import Message
from tinygrad.uop.device_value import TensorDevice
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


@dataclass(frozen=True)
class Tiles:
    """The tiles of an array of `shape`. Padded to `padded`, both layouts cut it into equal blocks,
    and these into tiles of shape `tile`, each of cells of shape `cell`.
    """

    source: TensorDevice
    target: TensorDevice
    shape: Sizes
    padded: Sizes
    tile: Sizes
    cell: Sizes

    def in_cells(self) -> Tiles:
        """The same tiles with all shapes in units of cells; sizes of 0 and symbolic ones are
        unchanged.
        """
        sizes = self.shape, self.padded, self.tile, self.cell
        shape, padded, tile, cell = (_in_units(x, self.cell) for x in sizes)
        return Tiles(self.source, self.target, shape, padded, tile, cell)

    @property
    def routes(self) -> Routes:
        """The routes of all pieces."""
        return Routes(as_layout(self.source), as_layout(self.target), self.padded)

    @property
    def held(self) -> tuple[int, ...]:
        """The number of tiles along each axis of a block of the source."""
        return tile_counts(local_shape(self.source, self.padded), self.tile)

    @property
    def wanted(self) -> tuple[int, ...]:
        """The number of tiles along each axis of a block of the target."""
        return tile_counts(local_shape(self.target, self.padded), self.tile)


def _in_units(shape: Sizes, unit: Sizes) -> Sizes:
    return tuple(
        size // length if isinstance(size, int) and isinstance(length, int) and length else size
        for size, length in zip(shape, unit, strict=True)
    )


def tile_messages(tiles: Tiles, local: LocalDevices) -> tuple[Message, ...]:
    """The local messages of all tiles that do not start past the end of the array."""
    # slots count cells, so arrays of as many cells have equal messages
    return _messages_in_cells(tiles.in_cells(), local)


@cached_function(1024)
def _messages_in_cells(tiles: Tiles, local: LocalDevices) -> tuple[Message, ...]:
    is_one_cell = prod(tile_counts(tiles.tile, tiles.cell)) == 1
    has_padding = tiles.padded != tiles.shape
    found = _cell_messages if has_padding or not is_one_cell else _tile_messages
    return tuple(sorted(found(tiles, local)))


def _tile_messages(tiles: Tiles, local: LocalDevices) -> Iterator[Message]:
    """One message for each tile, of one cell."""
    held, wanted = tiles.held, tiles.wanted
    places = list(_places(tiles.tile, held, wanted))
    for target, source, region in local_pieces(tiles.routes, local):
        # most pieces are one tile
        slots = _slots_of_one_tile(region, places)
        if slots is not None:
            yield Message(target, slots[0], source, slots[1], 1)
            continue
        for position in _positions(region, tiles.tile):
            slots = _tile_number(position, wanted), _tile_number(position, held)
            yield Message(target, slots[0], source, slots[1], 1)


def _cell_messages(tiles: Tiles, local: LocalDevices) -> Iterator[Message]:
    """A message for each contiguous range of the cells of a tile that lie within the array."""
    shape, tile, held, wanted = tiles.shape, tiles.tile, tiles.held, tiles.wanted
    cells = tile_counts(tile, tiles.cell)
    per_tile = prod(cells)
    has_padding = tiles.padded != shape
    for target, source, region in local_pieces(tiles.routes, local):
        for position in _positions(region, tile):
            if has_padding and _is_past_end(position, tile, shape):
                continue
            target_slot = _tile_number(position, wanted) * per_tile
            source_slot = _tile_number(position, held) * per_tile
            ranges = [(0, 1)]
            if has_padding:
                ranges = _ranges_inside(position, tile, tiles.cell, cells, shape)
            for at, count in ranges:
                yield Message(target, target_slot + at, source, source_slot + at, count)


Place: TypeAlias = tuple[int, int, tuple[int, int], tuple[int, int]]
"""An axis, the length of a tile along it, and the number of tiles and the stride of their numbers
in a held and in a wanted block."""


def _places(tile: Sizes, held: tuple[int, ...], wanted: tuple[int, ...]) -> Iterator[Place]:
    """Each axis along which a block has several tiles."""
    for axis, (length, a, b) in enumerate(zip(tile, held, wanted, strict=True)):
        if a > 1 or b > 1:
            strides = prod(held[axis + 1 :]), prod(wanted[axis + 1 :])
            yield axis, cast(int, length), (a, strides[0]), (b, strides[1])


def _slots_of_one_tile(region: Region, places: list[Place]) -> tuple[int, int] | None:
    """The numbers of a tile in the wanted and the held block; None for a box of several tiles."""
    target_slot = source_slot = 0
    for axis, length, (held_count, held_stride), (count, stride) in places:
        start, stop = region[axis]
        if stop - start > length:
            return None
        source_slot += start // length % held_count * held_stride
        target_slot += start // length % count * stride
    return target_slot, source_slot


def _tile_number(position: tuple[int, ...], counts: tuple[int, ...]) -> int:
    """The number of a tile in the block that holds it, of `counts` tiles, as all blocks are."""
    found = 0
    for at, count in zip(position, counts, strict=True):
        found = found * count + at % count
    return found


def _positions(region: Region, tile: Sizes) -> Iterator[tuple[int, ...]]:
    """The positions of the tiles of a box that is a multiple of them."""
    return itertools.product(
        *(
            range(start // length, stop // length)
            if isinstance(stop, int) and isinstance(length, int) and length
            else range(1)
            for (start, stop), length in zip(region, tile, strict=True)
        )
    )


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
