"""`ExecutionPlan`: kernels and transfers over storage entries, in the order in which they run.

A plan names no real buffer, so one plan serves every graph of equal structure. Entry number `k <
inputs` is the k-th buffer of the canonical graph; the others are allocated for each run.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple, TypeAlias

from tinygrad.caches import cached_function
from tinygrad.dtype import DType
from tinygrad.helpers import dedup
from tinygrad.sharding import ALL_DEVICES, LocalDevices, max_shape
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.args import CommInfo, KernelInfo, Message, Reduction
from tinygrad.uop.ops import UOp
from tinygrad.uop.spec import SpecError

DEVICE_NUMBER = "_device_num"
"""The Variable of a kernel on several devices that is the number of the device that runs it."""


@dataclass(frozen=True)
class StorageEntry:
    """Memory for `size` elements of `dtype` on each of `devices`."""

    devices: tuple[str, ...]
    size: int
    dtype: DType


class StorageSlice(NamedTuple):
    """`size` elements of `dtype` from byte `offset` of an entry, on `device_count` of its devices,
    from number `device` on.
    """

    entry: int
    device: int
    offset: int
    size: int
    dtype: DType
    device_count: int = 1


Slices: TypeAlias = tuple[StorageSlice, ...]
"""The memory of one value on all of its devices, in order."""


def slice_on(slices: Slices, number: int) -> StorageSlice:
    """The memory of a value on its device number `number`."""
    if len(slices) == 1:
        entry, device, offset, size, dtype, count = slices[0]
        if number == 0 and count == 1:
            return slices[0]
        return StorageSlice(entry, device + number, offset, size, dtype)
    for part in slices:
        if number < part.device_count:
            return StorageSlice(part[0], part[1] + number, *part[2:5])
        number -= part.device_count
    raise IndexError(f"{slices} has no device number {number}")


def join_slices(parts: Sequence[StorageSlice]) -> Slices:
    """The memory of a value whose shards are `parts`. Equal memory has equal slices."""
    joined: list[StorageSlice] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last is not None and part == last._replace(
            device=last.device + last.device_count, device_count=part.device_count
        ):
            joined[-1] = last._replace(device_count=last.device_count + part.device_count)
        else:
            joined.append(part)
    return tuple(joined)


@dataclass(frozen=True)
class KernelItem:
    """Run one kernel on each of `devices`: `params` are its arguments, and `local` the numbers of
    the devices that are local. `info` describes the collective if it reads the memory of peers.
    """

    ast: UOp
    devices: tuple[str, ...]
    params: tuple[Slices, ...]
    local: Sequence[int]
    info: CommInfo | None = None

    @cached_property
    def arguments(self) -> tuple[tuple[StorageSlice, ...], ...]:
        """The arguments on each local device."""
        return tuple(tuple([slice_on(x, number) for x in self.params]) for number in self.local)

    @property
    def entries(self) -> set[int]:
        """The numbers of the entries that it uses on all devices."""
        return {part.entry for slices in self.params for part in slices}

    @cached_property
    def written(self) -> set[int]:
        """The numbers of the entries that it may write."""
        slots = _written_slots(self.ast)
        found = self.params if slots is None else [self.params[i] for i in slots]
        return {part.entry for slices in found for part in slices}

    @property
    def size(self) -> int:
        """The number of its arguments on all local devices."""
        return len(self.local) * len(self.params)


class PlannedMessage(NamedTuple):
    """A point-to-point message: `source` is copied to `destination`, of equal size."""

    destination: StorageSlice
    source: StorageSlice


@dataclass(frozen=True)
class TransferItem:
    """The local messages of one round of a collective, as `pieces` of `piece_size` elements. A
    library reduces them if there is a `reduction`.
    """

    source: Slices
    destination: Slices
    piece_size: int
    pieces: tuple[Message, ...]
    info: CommInfo
    reduction: Reduction | None = None

    @cached_property
    def messages(self) -> tuple[PlannedMessage, ...]:
        """The local messages: of each, the sender or the receiver is a local device."""
        return tuple(
            [
                PlannedMessage(self.end(m, is_source=False), self.end(m, is_source=True))
                for m in self.pieces
            ]
        )

    def end(self, message: Message, *, is_source: bool) -> StorageSlice:
        """The memory of one end of a message."""
        target, target_slot, source, source_slot, pieces = message
        slot = source_slot if is_source else target_slot
        entry, number, offset, _, _, _ = (
            slice_on(self.source, source) if is_source else slice_on(self.destination, target)
        )
        dtype, size = self.destination[0].dtype, self.piece_size
        return StorageSlice(
            entry, number, offset + slot * size * dtype.itemsize, size * pieces, dtype
        )

    @property
    def entries(self) -> set[int]:
        """The numbers of the entries that it uses on all devices."""
        return {part.entry for part in (*self.source, *self.destination)}

    @property
    def written(self) -> set[int]:
        """The numbers of the entries that it writes."""
        return {part.entry for part in self.destination}

    @property
    def size(self) -> int:
        """The number of its local messages."""
        return len(self.pieces)


Item = KernelItem | TransferItem


@cached_function(4096)
def _written_slots(ast: UOp) -> frozenset[int] | None:
    """The parameters that a kernel stores to; None if that is not known."""
    slots: set[int] = set()
    for node in ast.toposort():
        if node.op is Ops.STORE:
            address = node.src[0]
            while address.op is not Ops.PARAM and address.src:
                address = address.src[0]
            if address.op is not Ops.PARAM:
                return None
            slots.add(address.arg.slot)
    return frozenset(slots)


def with_entries(item: Item, names: Mapping[int, int]) -> Item:
    """An item on the entries that `names` maps its own to."""
    if not names:
        return item

    def named(slices: Slices) -> Slices:
        return tuple(p._replace(entry=names.get(p.entry, p.entry)) for p in slices)

    if isinstance(item, KernelItem):
        return replace(item, params=tuple(map(named, item.params)))
    return replace(item, source=named(item.source), destination=named(item.destination))


class Work(NamedTuple):
    """What a plan runs, in any order and whatever memory it uses: kernels, with their devices, and
    rounds of messages, with their layouts and sizes. It is the same in every process.

    `peak` are the maximum bytes of its temporaries and results on a device at a time, `reused`
    those once results take the memory of arguments.
    """

    kernels: Counter[tuple[UOp, tuple[str, ...]]]
    rounds: Counter[tuple[str, str, str, int]]
    peak: int
    reused: int = 0

    def is_as_cheap(self, other: Work) -> bool:
        """Whether this takes no more than `other`, except that kernels may store results which are
        then not sent again.
        """
        if self.rounds != other.rounds:
            return False
        return self.kernels == other.kernels or (
            bool(self.rounds)
            and Counter(devices for _, devices in self.kernels.elements())
            == Counter(devices for _, devices in other.kernels.elements())
        )


@dataclass(frozen=True, eq=False)
class ExecutionPlan:
    """Kernels and transfers in the order in which they run, over storage entries."""

    inputs: int
    """The number of entries that are buffers of the canonical graph, the first ones."""
    entries: tuple[StorageEntry, ...]
    items: tuple[Item, ...]
    """Only kernels and messages of `local` devices."""
    outputs: tuple[Slices | None, ...]
    """The memory of each output; None if the output is a buffer or was assigned to one."""
    written: frozenset[int]
    """The numbers of the entries that items write."""
    variables: tuple[UOp, ...]
    """The Variables that items read."""
    local: LocalDevices = ALL_DEVICES
    digest: bytes = b""
    """A hash of the plan for all devices, equal in every process; empty if all are local."""
    work: Work | None = field(default=None, repr=False)
    """What it runs for all devices."""
    layouts: dict[bool, Any] = field(default_factory=dict, repr=False)
    """Where temporaries are placed: without (False) and with (True) shared memory, if known."""

    @property
    def kernels(self) -> list[UOp]:
        """The tensor forms of its kernels, each once."""
        return dedup(item.ast for item in self.items if isinstance(item, KernelItem))

    @cached_property
    def reads_whole_entries(self) -> tuple[bool, ...]:
        """For each item, whether it is a kernel whose arguments are whole entries."""
        return tuple(
            isinstance(item, KernelItem)
            and all(
                (x.offset, x.size, x.dtype)
                == (0, self.entries[x.entry].size, self.entries[x.entry].dtype)
                for slices in item.params
                for x in slices
            )
            for item in self.items
        )

    def local_numbers(self, entry: int) -> Sequence[int]:
        """The numbers of the local devices of an entry."""
        return self.local.numbers(self.entries[entry].devices)

    def device_on(self, slices: Slices, number: int) -> str:
        """The name of a value's device number `number`."""
        if len(slices) == 1:
            return self.entries[slices[0].entry].devices[slices[0].device + number]
        part = slice_on(slices, number)
        return self.entries[part.entry].devices[part.device]

    def nbytes(self, entry: int) -> int:
        """The bytes of an entry on each of its devices."""
        return self.entries[entry].size * self.entries[entry].dtype.itemsize

    @property
    def output_entries(self) -> set[int]:
        """The entries that outputs are in."""
        return {part.entry for parts in self.outputs for part in parts or ()}

    def spans(self) -> dict[int, tuple[int, int]]:
        """The first and last item that uses each entry."""
        found: dict[int, tuple[int, int]] = {}
        for i, item in enumerate(self.items):
            for entry in item.entries:
                found[entry] = (found.get(entry, (i, i))[0], i)
        return found

    @property
    def temporary(self) -> range:
        """The numbers of the entries that the plan allocates."""
        return range(self.inputs, len(self.entries))


def operations_of(node: UOp) -> int:
    """The arithmetic operations that a node of a tensor graph or of a kernel's tensor form takes,
    without those below it.
    """
    if node.op is Ops.REDUCE_AXIS:
        return prod(max_shape(node.src[0].shape))
    return prod(max_shape(node.shape)) if node.op in GroupOp.ALU else 0


def count_work(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan with its `work`."""
    kernels = Counter((x.ast, x.devices) for x in plan.items if isinstance(x, KernelItem))
    rounds = Counter(
        (x.info.kind, x.info.source, x.info.destination, x.piece_size)
        for x in plan.items
        if isinstance(x, TransferItem)
    )
    return replace(plan, work=Work(kernels, rounds, _peak_bytes(plan)))


def count_reused(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan with its memory, once results take the memory of arguments."""
    assert plan.work is not None, "the work is counted before"
    return replace(plan, work=plan.work._replace(reused=_peak_bytes(plan)))


def _peak_bytes(plan: ExecutionPlan) -> int:
    end = len(plan.items)
    spans = plan.spans()
    spans |= {
        x: (spans.get(x, (end, end))[0], end) for x in plan.output_entries if x >= plan.inputs
    }
    changes = [0] * (end + 2)
    for entry in plan.temporary:
        first, last = spans.get(entry, (end, end))
        changes[first] += plan.nbytes(entry)
        changes[last + 1] -= plan.nbytes(entry)
    return max(accumulate(changes))


def keep_local_items(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan without items that other processes run: those without a kernel or message of a local
    device.
    """
    if plan.local.is_all or plan.local.stand_for_all:
        return plan
    items = tuple(item for item in plan.items if item.size)
    return replace(plan, items=items, digest=plan_digest(plan))


def plan_digest(plan: ExecutionPlan) -> bytes:
    """A hash of a plan whose items are those of all devices, without what is local. It is the same
    in every process that plans the same graph.
    """
    found = hashlib.sha256(repr((plan.inputs, plan.entries, plan.outputs)).encode())
    for item in plan.items:
        if isinstance(item, KernelItem):
            found.update(item.ast.key + repr((item.devices, item.params)).encode())
        else:
            ends = item.source, item.destination, item.piece_size
            found.update(repr((ends, item.info)).encode())
    return found.digest()


@dataclass(frozen=True)
class PlanForm:
    """The form of plans, which the passes that make and change them ensure."""

    name: str = "plan"

    def verify(self, plan: ExecutionPlan) -> None:
        """Raise SpecError unless the arguments of kernels and all outputs lie in their entries."""
        for number, item in enumerate(plan.items):
            if isinstance(item, KernelItem):
                for piece in (piece for slices in item.params for piece in slices):
                    _verify_slice(plan, piece, f"item {number}")
        for piece in (piece for parts in plan.outputs if parts is not None for piece in parts):
            _verify_slice(plan, piece, "an output")

    def size(self, plan: ExecutionPlan) -> str:
        """The number of items."""
        return f"{len(plan.items)} items"

    def text(self, plan: ExecutionPlan) -> str:
        """One line an item."""
        return "\n".join(f"{number:4d} {_line(item)}" for number, item in enumerate(plan.items))


PLAN = PlanForm()


def _nbytes(piece: StorageSlice) -> int:
    return piece.size * piece.dtype.itemsize


def _verify_slice(plan: ExecutionPlan, piece: StorageSlice, where: str) -> None:
    if piece.entry >= len(plan.entries):
        raise SpecError(f"in the plan, {where} names entry {piece.entry} of {len(plan.entries)}")
    entry = plan.entries[piece.entry]
    end = piece.offset + _nbytes(piece)
    if (
        piece.device + piece.device_count > len(entry.devices)
        or end > entry.size * entry.dtype.itemsize
    ):
        raise SpecError(f"in the plan, {where} has the slice {piece}, outside of {entry}")


def _line(item: Item) -> str:
    """What an item does and the entries that it touches."""
    if isinstance(item, KernelItem):
        arguments = ", ".join(f"entry {slices[0].entry}" for slices in item.params)
        name = item.ast.arg.name if isinstance(item.ast.arg, KernelInfo) else "kernel"
        return f"kernel {name} on {', '.join(item.devices)}: {arguments}"
    ends = ({part.entry for part in slices} for slices in (item.source, item.destination))
    source, target = (", ".join(f"entry {entry}" for entry in sorted(end)) for end in ends)
    return f"{item.info.kind} of {item.size} messages: {source} -> {target}"
