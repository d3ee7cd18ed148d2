"""Copy elision: a kernel writes its result to where a transfer would copy it on the same device.

An all-gather, for example, sends a shard to other devices and copies it to the device's own
replica. Here the kernel writes the shard to its place in the replica, and it is sent from there.
Input: captured items, and the memory that does not outlive a replay. Output: items without such
copies. Invariant: all other memory has the same content after each item that reads it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tinygrad.device import Buffer
from tinygrad.execution.realize import BufferCopy, ExecItem, ScheduleItem
from tinygrad.schedule.kernel.rangeify import is_kernel_graph
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp


class _Use(NamedTuple):
    """Item number `item` reads or writes `buffer`."""

    item: int
    buffer: Buffer
    is_written: bool


def elide_copies(
    items: Sequence[ScheduleItem], temporaries: Collection[Buffer], kept: Collection[Buffer]
) -> list[ScheduleItem]:
    """The items without needless copies of `temporaries`. Memory of `kept` is not written
    earlier.
    """
    if not any(isinstance(x, BufferCopy) and _copies(x) for x in items):
        return [*items]
    elision = _Elision(items)
    for number, item in enumerate(items):
        if not isinstance(item, BufferCopy):
            continue
        for destination, source in _copies(item):
            is_temporary = (source.base or source) in temporaries
            if is_temporary and (destination.base or destination) not in kept:
                elision.elide(number, destination, source)
    return elision.items


def _copies(item: BufferCopy) -> list[tuple[Buffer, Buffer]]:
    """The messages of a round that stay on their device, unless a library reduces them."""
    if item.reduction is not None:
        return []
    return [(d, s) for d, s in item.pairs if d.device == s.device and d.dtype is s.dtype]


class _Elision:
    """Items, and the uses of each base buffer in their order."""

    def __init__(self, items: Sequence[ScheduleItem]) -> None:
        self.items = [*items]
        self._uses: dict[Buffer, list[_Use]] = {}
        for number, item in enumerate(items):
            written = set(item.written)
            for buffer in item.bufs:
                use = _Use(number, buffer, buffer in written)
                self._uses.setdefault(buffer.base or buffer, []).append(use)

    def elide(self, number: int, destination: Buffer, source: Buffer) -> None:
        """Drop a copy of item `number`, if its source may be computed in its destination."""
        found = self._of_source(number, source)
        if found is None or self._is_read_after(number, source):
            return
        first = found[0].item
        for use in self._between(destination, first, number + 1):
            if use.item != number or use.buffer is not destination:
                return
        moved = {use.item: self._moved(use.item, source, destination) for use in found}
        moved[number] = _without(self.items[number], destination, moved.get(number))
        for item in moved.values():
            if isinstance(item, ExecItem) and not item.lower().accepts(item.bufs):
                return
        for position, item in moved.items():
            self.items[position] = item
        self._uses[source.base or source] = [
            use for use in self._uses[source.base or source] if use not in found
        ]
        own = self._uses[destination.base or destination]
        for use in found:
            insort(own, use._replace(buffer=destination), key=lambda use: use.item)

    def _of_source(self, number: int, source: Buffer) -> list[_Use] | None:
        """The uses of the source up to its copy, from the kernel that computes all of it on; None
        if another item does, or some use another range of it.
        """
        found: list[_Use] = []
        for use in self._before(source, number + 1):
            if not _is_same(use.buffer, source):
                return None
            found.insert(0, use)
            if use.is_written:
                break
        if not found or not found[0].is_written or found[0].item == number:
            return None
        writer = self.items[found[0].item]
        if not isinstance(writer, ExecItem) or not _computes(writer, source):
            return None
        return found

    def _is_read_after(self, number: int, source: Buffer) -> bool:
        """Whether an item after the copy reads the source before it is overwritten."""
        for use in self._between(source, number + 1, len(self.items)):
            if not use.is_written:
                return True
            if _covers(use.buffer, source):
                # an item may read what it overwrites
                return any(
                    not other.is_written and other.item == use.item
                    for other in self._between(source, use.item, use.item + 1)
                ) or not _overwrites(self.items[use.item], use.buffer)
        return False

    def _before(self, buffer: Buffer, stop: int) -> Iterator[_Use]:
        uses = self._uses[buffer.base or buffer]
        for position in range(bisect_left(uses, stop, key=lambda use: use.item) - 1, -1, -1):
            if uses[position].buffer.overlaps(buffer):
                yield uses[position]

    def _between(self, buffer: Buffer, start: int, stop: int) -> Iterator[_Use]:
        uses = self._uses[buffer.base or buffer]
        for position in range(bisect_left(uses, start, key=lambda use: use.item), len(uses)):
            if uses[position].item >= stop:
                return
            if uses[position].buffer.overlaps(buffer):
                yield uses[position]

    def _moved(self, number: int, source: Buffer, destination: Buffer) -> ScheduleItem:
        """An item that uses the destination in the place of the source."""

        def new(buffer: Buffer) -> Buffer:
            return destination if _is_same(buffer, source) else buffer

        item = self.items[number]
        if isinstance(item, ExecItem):
            return replace(item, bufs=tuple(map(new, item.bufs)))
        remote = tuple(m._replace(buffer=new(m.buffer)) for m in item.remote)
        return replace(item, pairs=tuple((new(d), new(s)) for d, s in item.pairs), remote=remote)


def _without(item: ScheduleItem, destination: Buffer, moved: ScheduleItem | None) -> ScheduleItem:
    """A round without the copy to a destination."""
    round_ = moved or item
    assert isinstance(round_, BufferCopy)
    return replace(round_, pairs=tuple(x for x in round_.pairs if x[0] is not destination))


def _computes(item: ExecItem, buffer: Buffer) -> bool:
    """Whether a kernel writes all of a buffer, and reads nothing of it."""
    slots = [slot for slot, b in enumerate(item.bufs) if b.overlaps(buffer)]
    return len(slots) == 1 and _is_whole_output(item.ast, slots[0])


def _overwrites(item: ScheduleItem, buffer: Buffer) -> bool:
    """Whether an item writes all of a buffer that it uses, and reads nothing of it."""
    return isinstance(item, BufferCopy) or _computes(item, buffer)


def _is_whole_output(ast: UOp, slot: int) -> bool:
    if is_kernel_graph(ast):
        return False
    targets = [store.src[0] for store in ast.src if store.src[0].base.arg.slot == slot]
    values = UOp.sink(*[store.src[1] for store in ast.src]).toposort()
    if any(node.op in GroupOp.Scatter for node in values):
        return False  # it adds to what another kernel stored there
    read = {node.arg.slot for node in values if node.op is Ops.PARAM}
    return len(targets) == 1 and targets[0].op is Ops.PARAM and slot not in read


def _is_same(one: Buffer, other: Buffer) -> bool:
    same = (one.base or one) is (other.base or other)
    return same and (one.offset, one.nbytes, one.dtype) == (
        other.offset,
        other.nbytes,
        other.dtype,
    )


def _covers(one: Buffer, other: Buffer) -> bool:
    return one.offset <= other.offset and other.offset + other.nbytes <= one.offset + one.nbytes
