"""Which bytes go where when an array moves from one layout to another: cover by regions.

In: two layouts without `Partial` and a global shape. Out: for each destination device, the pieces
that make up its region and the device each comes from; and the bytes this costs. Always true: the
pieces of a device tile its region exactly, and what a device holds already is never sent to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tinygrad.sharding.layout import Region, Shape, Sharding, ShardingError, greatest, is_int


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of the global array, taken from source device number `source`."""

    source: int
    region: Region


@lru_cache(maxsize=4096)
def cover(src: Sharding | str, dst: Sharding | str, shape: Shape) -> tuple[tuple[Piece, ...], ...]:
    """For each device of `dst`, the pieces of `src` that tile its region, its own piece first.

    Where several devices hold a piece, the one that sends least so far is taken, and of equals the
    one whose number follows the destination's: so copies of copies spread over all of them.
    An array without elements has no pieces. Intervals of the source, which may overlap, stay as
    they are in the destination.
    """
    source, destination = as_layout(src), as_layout(dst)
    blocks: dict[Region, list[int]] = {}
    for index, region in enumerate(source.regions(shape)):
        blocks.setdefault(region, []).append(index)
    numbers = {name: index for index, name in enumerate(source)}
    parts_of: dict[Region, list[tuple[Region, list[int]]]] = {}
    sent = [0] * len(source)
    covers: list[tuple[Piece, ...]] = []
    for index, (name, wanted) in enumerate(
        zip(destination, destination.regions(shape), strict=True)
    ):
        if wanted not in parts_of:
            parts = (
                (_intersection(wanted, block), holders)
                for block, holders in blocks.items()
                if all(wanted[axis] == block[axis] for axis in source.interval_axes)
            )
            parts_of[wanted] = [(part, holders) for part, holders in parts if part is not None]
        own = numbers.get(name)
        pieces: list[Piece] = []
        for part, holders in parts_of[wanted]:
            if own in holders:
                pieces.insert(0, Piece(own, part))
                continue
            chosen = _least_loaded(holders, sent, index)
            sent[chosen] += known_volume(part)
            pieces.append(Piece(chosen, part))
        covers.append(tuple(pieces))
    return tuple(covers)


def sent_per_device(
    src: Sharding | str, dst: Sharding | str, shape: Shape, itemsize: int
) -> tuple[int, ...]:
    """The bytes that each device of `src` sends to others in a move. All sizes must be ints."""
    if not all(is_int(size) for size in shape):
        raise ShardingError(
            f"the bytes of shape {shape} are not known; give its symbolic sizes a value"
        )
    source, destination = as_layout(src), as_layout(dst)
    smallest, factor = scaled_down(source, destination, shape)
    nbytes = factor * itemsize
    return tuple(count * nbytes for count in _sent_elements(source, destination, smallest))


def transfer_bytes(src: Sharding | str, dst: Sharding | str, shape: Shape, itemsize: int) -> int:
    """The bytes that cross devices in a move, in all. All sizes must be ints."""
    return sum(sent_per_device(src, dst, shape, itemsize))


@lru_cache(maxsize=4096)
def moved_elements(src: Sharding | str, dst: Sharding | str, shape: Shape) -> int:
    """The elements that cross devices in a move, in all: a symbolic size counts as 1, or where an
    axis is cut as the greatest it can be.
    """
    source, destination = as_layout(src), as_layout(dst)
    if source is destination:
        return 0
    smallest, factor = scaled_down(source, destination, shape)
    return factor * _moved_elements(source, destination, smallest)


@lru_cache(maxsize=4096)
def _moved_elements(source: Sharding, destination: Sharding, shape: Shape) -> int:
    if source.devices == destination.devices:
        return sum(received_elements(source, destination, shape))
    return sum(_sent_elements(source, destination, shape))


def _sent_elements(source: Sharding, destination: Sharding, shape: Shape) -> tuple[int, ...]:
    """The elements that each device of the source sends to others, a symbolic size counted as 1."""
    sent = [0] * len(source)
    for name, pieces in zip(destination, cover(source, destination, shape), strict=True):
        for piece in pieces:
            if source[piece.source] != name:
                sent[piece.source] += known_volume(piece.region)
    return tuple(sent)


def received_elements(src: Sharding, dst: Sharding, shape: Shape) -> tuple[int, ...]:
    """The elements that each device of `src`, which are those of `dst`, receives in a move. Their
    sum is `moved_elements`, but nobody needs to know who sends them.
    """
    lacking = []
    for own, wanted in zip(src.regions(shape), dst.regions(shape), strict=True):
        kept = _intersection(own, wanted)
        lacking.append(known_volume(wanted) - (0 if kept is None else known_volume(kept)))
    return tuple(lacking)


def scaled_down(src: Sharding, dst: Sharding, shape: Shape) -> tuple[Shape, int]:
    """The smallest shape that both layouts cut like `shape`, and how many elements of that are one
    of it. What is sent of the one tells what is sent of the other, and many shapes share it.
    """
    kept = {*src.interval_axes, *dst.interval_axes}
    sizes: list[object] = []
    factor = 1
    for axis, size in enumerate(shape):
        parts = math.lcm(src.shards(axis), dst.shards(axis))
        size = greatest(size) if parts > 1 else size
        if axis in kept or not is_int(size) or size % parts:
            sizes.append(size)
        else:
            sizes.append(parts)
            factor *= size // parts
    return tuple(sizes), factor


def allreduce_bytes(n: int, nbytes: int, algorithm: str) -> int:
    """The bytes that each of `n` devices sends to all-reduce terms of `nbytes` bytes each.

    "direct" sends every term to everyone; "ring" and "all2all" reduce-scatter, then all-gather.
    """
    if algorithm == "direct":
        return (n - 1) * nbytes
    if algorithm in ("ring", "all2all"):
        return 2 * (n - 1) * nbytes // n
    raise ValueError(f"no all-reduce algorithm {algorithm!r}; use direct, ring or all2all")


def as_layout(device: Sharding | str) -> Sharding:
    """A place without unreduced terms as a layout, also one device. Raises ShardingError."""
    layout = Sharding((device,)) if isinstance(device, str) else device
    if layout.is_partial:
        raise ShardingError(f"{layout} holds unreduced terms; reduce them with ALLREDUCE, not COPY")
    return layout


def _least_loaded(holders: list[int], sent: list[int], destination: int) -> int:
    first = destination % len(holders)
    return min(holders[first:] + holders[:first], key=sent.__getitem__)


def _intersection(first: Region, second: Region) -> Region | None:
    """The common box, or None if it is empty. Symbolic bounds are equal, and never ordered."""
    box = []
    for left, right in zip(first, second, strict=True):
        start, stop = left
        if left != right:
            start, stop = max(left[0], right[0]), min(left[1], right[1])
        if is_int(stop) and start >= stop:
            return None
        box.append((start, stop))
    return tuple(box)


def known_volume(region: Region) -> int:
    """The elements of a box over the axes of known size."""
    return prod(stop - start for start, stop in region if is_int(stop))
