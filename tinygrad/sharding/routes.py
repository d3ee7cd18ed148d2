"""Which device sends each piece of an array when its layout changes.

Input: two layouts without `Partial`, and a shape. Output: the pieces that one device receives, and
those that it sends. Invariants: the sender is a pure function of the receiver and the piece, so
processes that each ask for their own devices agree; a device takes what it holds from its own
memory; and replicas of a piece share the load.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from tinygrad.sharding.block_grid import Block, BlockGrid
from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.sizes import Region, Shape, Size


class Piece(NamedTuple):
    """A box of the global array, taken from source device number `source`."""

    source: int
    region: Region


class SentPiece(NamedTuple):
    """A box of the global array, sent to destination device number `destination`."""

    destination: int
    region: Region


Bounds = dict[int, tuple[int, int]]
"""The bounds of a box along the axes that one of the two layouts shards."""


class Routes:
    """The pieces of a change of layout, by receiver and by sender.

    Several devices of the source may hold a piece. Over the same devices, the sender is the replica
    with the receiver's coordinates on the mesh dimensions that do not shard the source. Over other
    devices, the receivers of a block take turns with its replicas. Intervals of the source that
    overlap are unchanged in the destination. An empty array has no pieces.
    """

    def __init__(self, source: Sharding, destination: Sharding, shape: Shape) -> None:
        self.shape = shape
        self.held = BlockGrid(source, shape)
        self.wanted = BlockGrid(destination, shape)
        self._axes = sorted({*self.held.axes, *self.wanted.axes})
        # the axes along which a device holds exactly a range of the destination
        self._unchanged = {
            axis for axis in source.interval_axes if not self.held.axes[axis].span.is_disjoint
        }
        self._is_same = source.devices == destination.devices
        self._numbers = (
            {} if self._is_same else {name: number for number, name in enumerate(source)}
        )
        # the devices of the destination that are devices of the source too
        self._shared = {
            number: self._numbers[name]
            for number, name in enumerate(() if self._is_same else destination)
            if name in self._numbers
        }
        self._owners_of: dict[tuple[Block, Block], list[int]] = {}
        self._is_empty = any(isinstance(size, int) and size == 0 for size in shape)
        self._whole: Region = tuple((0, size) for size in shape)

    def received(self, device: int) -> list[Piece]:
        """The pieces that tile the block of destination device number `device`, its own first."""
        block = self.wanted.block(device)
        bounds = self.wanted.bounds(block)
        if self._is_empty or any(low >= high for low, high in bounds.values()):
            return []
        own = device if self._is_same else self._shared.get(device)
        own_block = None if own is None else self.held.block(own)
        replica = self.held.replica_base(self.held.replica(device)) if self._is_same else 0
        found: list[Piece] = []
        for source_block, base, region in self._source_blocks(bounds, own_block):
            if source_block == own_block and own is not None:
                found.insert(0, Piece(own, region))
                continue
            if not self._is_same:
                replica = self.held.replica_base(self._turn(device, block, source_block))
            found.append(Piece(base + replica, region))
        return found

    def sent(self, device: int) -> list[SentPiece]:
        """The pieces that source device number `device` sends, in the order of their receivers.
        Those that a device keeps are not sent.
        """
        block = self.held.block(device)
        bounds = self.held.bounds(block)
        if self._is_empty or any(low >= high for low, high in bounds.values()):
            return []
        return sorted(self._sent(device, block, bounds))

    def elements_between(self, devices: Sequence[int]) -> Iterator[tuple[int, int]]:
        """For each message between these devices, its receiver and its number of elements. Source
        and destination must have the same devices. An axis of symbolic size counts as 1.
        """
        groups: dict[int, list[tuple[int, Region]]] = {}
        for device in devices:
            found = groups.setdefault(self.held.replica(device), [])
            found.append((device, self.held.region(device)))
        for group in groups.values():
            for (receiver, _), (sender, region) in product(group, group):
                if sender == receiver:
                    continue
                wanted = self.wanted.region(receiver)
                if all(wanted[axis] == region[axis] for axis in self._unchanged):
                    yield receiver, _common_elements(wanted, region, self._axes)

    def _region(self, first: Bounds, second: Bounds) -> Region:
        """The common box of two blocks that overlap."""
        region = list(self._whole)
        for axis in self._axes:
            a, b = first.get(axis), second.get(axis)
            if a is None or b is None:
                region[axis] = a or b or region[axis]
            else:
                region[axis] = max(a[0], b[0]), min(a[1], b[1])
        return tuple(region)

    def _source_blocks(
        self, bounds: Bounds, own: Block | None
    ) -> Iterator[tuple[Block, int, Region]]:
        """The blocks of the source that hold elements of a box, each with its first replica and its
        part of the box.
        """
        # for each sharded axis, the numbers, the devices and the bounds of the blocks
        options: list[list[tuple[int, int, tuple[int, int]]]] = []
        for position, (axis, blocks) in enumerate(self.held.axes.items()):
            low, high = bounds.get(axis, (0, blocks.size))
            numbers: Iterable[int] = blocks.overlapping(low, high)
            if axis in self._unchanged:
                first = () if own is None else (own[position],)
                candidates = (*first, *range(blocks.count))
                numbers = [c for c in candidates if blocks.bounds(c) == (low, high)][:1]
            cut = [(c, blocks.base(c), blocks.bounds(c)) for c in numbers]
            parts = [(c, d, (max(low, a), min(high, b))) for c, d, (a, b) in cut]
            options.append([part for part in parts if part[2][0] < part[2][1]])
        box: list[tuple[Size, Size]] = list(self._whole)
        for axis, pair in bounds.items():
            box[axis] = pair
        for choice in product(*options):
            for axis, (_, _, pair) in zip(self.held.axes, choice, strict=True):
                box[axis] = pair
            base = sum([device for _, device, _ in choice])
            yield tuple([number for number, _, _ in choice]), base, tuple(box)

    def _target_blocks(self, bounds: Bounds) -> list[range]:
        """The blocks of the destination that hold elements of a box, by sharded axis."""
        return [
            blocks.overlapping(*bounds.get(axis, (0, blocks.size)))
            for axis, blocks in self.wanted.axes.items()
        ]

    def _turn(self, device: int, block: Block, source: Block) -> int:
        """The replica of a source block from which a device takes a piece of its `block`."""
        place = 0
        overlapping = self._target_blocks(self.held.bounds(source))
        for number, numbers in zip(block, overlapping, strict=True):
            place = place * len(numbers) + number - numbers.start
        turn = self.wanted.replica(device)
        turn -= sum(owner < turn for owner in self._owners(source, block))
        return (place * self.wanted.replicas + turn) % self.held.replicas

    def _owners(self, source: Block, target: Block) -> list[int]:
        """The replicas of a destination block that hold the source block already."""
        if not self._shared:
            return []
        found = self._owners_of.get((source, target))
        if found is None:
            found = self._owners_of[source, target] = sorted(
                self.wanted.replica(number)
                for number, own in self._shared.items()
                if self.held.block(own) == source and self.wanted.block(number) == target
            )
        return found

    def _sent(self, device: int, block: Block, bounds: Bounds) -> Iterator[SentPiece]:
        """What a source device sends."""
        if self.held.layout.has_intervals:
            yield from self._sent_intervals(device)
            return
        overlapping = self._target_blocks(bounds)
        count = self.wanted.replicas * prod(len(numbers) for numbers in overlapping)
        if self._is_same and count > self.held.block_count:
            yield from self._sent_to_replicas(device, overlapping, bounds)
            return
        replica = self.held.replica(device)
        for place, target in enumerate(product(*overlapping)):
            base = self.wanted.block_base(target)
            region = self._region(bounds, self.wanted.bounds(target))
            if any(low >= high for low, high in (region[axis] for axis in self.wanted.axes)):
                continue
            for other in self._readers(replica, block, place, target):
                receiver = base + self.wanted.replica_base(other)
                # over the same devices, replicas send to those with their own coordinates
                if not self._is_same or (
                    receiver != device and self.held.replica(receiver) == replica
                ):
                    yield SentPiece(receiver, region)

    def _sent_intervals(self, device: int) -> Iterator[SentPiece]:
        name = self.held.layout[device]
        for receiver, other in enumerate(self.wanted.layout):
            for source, region in self.received(receiver) if other != name else ():
                if source == device:
                    yield SentPiece(receiver, region)

    def _sent_to_replicas(
        self, device: int, overlapping: list[range], bounds: Bounds
    ) -> Iterator[SentPiece]:
        """What a device sends over the same devices, found by going through the receivers with its
        coordinates on the mesh dimensions that do not shard the source.
        """
        base = self.held.replica_base(self.held.replica(device))
        for source in product(*(range(axis.count) for axis in self.held.axes.values())):
            receiver = self.held.block_base(source) + base
            target = self.wanted.block(receiver)
            places = zip(target, overlapping, strict=True)
            if receiver == device or not all(number in numbers for number, numbers in places):
                continue
            region = self._region(bounds, self.wanted.bounds(target))
            if all(low < high for low, high in (region[axis] for axis in self.wanted.axes)):
                yield SentPiece(receiver, region)

    def _readers(self, replica: int, block: Block, place: int, target: Block) -> Iterable[int]:
        """The replicas of destination block `target` that receive from number `replica` of those of
        source block `block`. `target` is number `place` of the blocks that read the source block.
        Over the same devices, all replicas are returned.
        """
        count, replicas = self.wanted.replicas, self.held.replicas
        if self._is_same:
            return range(count)
        owners = self._owners(block, target)
        turns = range((replica - place * count) % replicas, count - len(owners), replicas)
        return turns if not owners else [_skip(turn, owners) for turn in turns]


def _common_elements(first: Region, second: Region, cut: Sequence[int]) -> int:
    """The number of elements of the intersection of two boxes, equal but along the axes `cut`."""
    count = 1
    for axis, ((low, high), (start, stop)) in enumerate(zip(first, second, strict=True)):
        if axis in cut:
            count *= max(0, min(high, stop) - max(low, start))
        elif isinstance(high, int):
            count *= high - low
    return count


def _skip(turn: int, owners: list[int]) -> int:
    """Number `turn` of the numbers that are not in `owners`, which are sorted."""
    for owner in owners:
        turn += owner <= turn
    return turn
