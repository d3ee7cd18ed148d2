"""Which bytes a change of layout sends where: cover destination regions with source regions.

Input: two layouts without `Partial` and a global shape. Output: for each destination device, the
pieces of its region and the source device of each; and the bytes that this sends. Invariants: the
pieces of a device tile its region exactly, and a device is never sent elements that it holds.
"""

from __future__ import annotations

import math
from functools import lru_cache
from math import prod

from tinygrad.caches import cached_function
from tinygrad.errors import ArgumentError
from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.placement import ShardingError
from tinygrad.sharding.routes import Piece, Routes
from tinygrad.sharding.sizes import Region, Shape, is_int, max_size


@cached_function(4096)
def cover(src: Sharding | str, dst: Sharding | str, shape: Shape) -> tuple[tuple[Piece, ...], ...]:
    """For each device of `dst`, the pieces of `src` that tile its region, its own piece first.

    If several devices hold a piece, `Routes` chooses the source. An empty array has no pieces.
    """
    destination = as_layout(dst)
    routes = Routes(as_layout(src), destination, shape)
    return tuple(tuple(routes.received(device)) for device in range(len(destination)))


def sent_per_device(
    src: Sharding | str, dst: Sharding | str, shape: Shape, itemsize: int
) -> tuple[int, ...]:
    """The bytes that each device of `src` sends in a change of layout. All sizes must be ints."""
    if not all(is_int(size) for size in shape):
        raise ShardingError(
            f"the bytes of shape {shape} are not known; give its symbolic sizes a value"
        )
    source, destination = as_layout(src), as_layout(dst)
    smallest, factor = scale_down(source, destination, shape)
    nbytes = factor * itemsize
    return tuple(count * nbytes for count in _sent_elements(source, destination, smallest))


def transfer_bytes(src: Sharding | str, dst: Sharding | str, shape: Shape, itemsize: int) -> int:
    """The bytes that a change of layout sends between devices. All sizes must be ints."""
    return sum(sent_per_device(src, dst, shape, itemsize))


@lru_cache(maxsize=4096)
def moved_elements(src: Sharding | str, dst: Sharding | str, shape: Shape) -> int:
    """The elements that a change of layout sends between devices. A symbolic size counts as 1 or,
    if the axis is sharded, as its upper bound.
    """
    source, destination = as_layout(src), as_layout(dst)
    if source is destination:
        return 0
    smallest, factor = scale_down(source, destination, shape)
    return factor * _received_elements(source, destination, smallest)


def _sent_elements(source: Sharding, destination: Sharding, shape: Shape) -> tuple[int, ...]:
    """The elements that each source device sends to others; a symbolic size counts as 1."""
    sent = [0] * len(source)
    for name, pieces in zip(destination, cover(source, destination, shape), strict=True):
        for piece in pieces:
            if source[piece.source] != name:
                sent[piece.source] += known_elements(piece.region)
    return tuple(sent)


@lru_cache(maxsize=4096)
def _received_elements(source: Sharding, destination: Sharding, shape: Shape) -> int:
    return sum(received_elements(source, destination, shape))


def received_elements(src: Sharding, dst: Sharding, shape: Shape) -> tuple[int, ...]:
    """The elements that each device of `dst` receives in a change of layout. Their sum is
    `moved_elements`, computed without choosing the senders.
    """
    held: dict[str, Region] = dict(zip(src, src.regions(shape), strict=True))
    received = []
    for name, wanted in zip(dst, dst.regions(shape), strict=True):
        own = held.get(name)
        kept = None if own is None else _intersection(own, wanted)
        received.append(known_elements(wanted) - (0 if kept is None else known_elements(kept)))
    return tuple(received)


def scale_down(src: Sharding, dst: Sharding, shape: Shape) -> tuple[Shape, int]:
    """The smallest shape that both layouts shard like `shape`, and the number of elements of
    `shape` that one of its elements stands for. Results for the smallest shape are cached for many
    shapes.
    """
    kept = {*src.interval_axes, *dst.interval_axes}
    sizes: list[object] = []
    factor = 1
    for axis, size in enumerate(shape):
        parts = math.lcm(src.shards(axis), dst.shards(axis))
        size = max_size(size) if parts > 1 else size
        if axis in kept or not is_int(size) or size % parts:
            sizes.append(size)
        else:
            sizes.append(parts)
            factor *= size // parts
    return tuple(sizes), factor


def allreduce_bytes(n: int, nbytes: int, algorithm: str) -> int:
    """The bytes that each of `n` devices sends to all-reduce partial values of `nbytes` bytes each.

    "direct" sends every partial value to all others, which "peer" reads; "ring" and "all2all"
    reduce-scatter, then all-gather.
    """
    if algorithm in ("direct", "peer"):
        return (n - 1) * nbytes
    if algorithm in ("ring", "all2all"):
        return 2 * (n - 1) * nbytes // n
    raise ArgumentError(f"no all-reduce algorithm {algorithm!r}; use direct, peer, ring or all2all")


def as_layout(device: Sharding | str) -> Sharding:
    """A device or layout as a `Sharding`. Raises ShardingError if it is partial."""
    layout = Sharding((device,)) if isinstance(device, str) else device
    if layout.is_partial:
        raise ShardingError(f"{layout} holds partial values; reduce them with ALLREDUCE, not COPY")
    return layout


def _intersection(first: Region, second: Region) -> Region | None:
    """The common box, or None if it is empty. Symbolic bounds are equal and never ordered."""
    box = []
    for left, right in zip(first, second, strict=True):
        start, stop = left
        if left != right:
            start, stop = max(left[0], right[0]), min(left[1], right[1])
        if is_int(stop) and start >= stop:
            return None
        box.append((start, stop))
    return tuple(box)


def known_elements(region: Region) -> int:
    """The number of elements of a box, over the axes of known size."""
    return prod(stop - start for start, stop in region if is_int(stop))
