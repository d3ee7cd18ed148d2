"""A plan over real buffers: its entries get memory, and its items become items that run.

Input: a plan, and the canonical graph whose buffers it reads. Output: `ExecItem`s and `BufferCopy`s
in the order of the plan, and a BUFFER node for each result. Invariant: each binding has temporaries
of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from tinygrad.device import Buffer, Device
from tinygrad.execution.buffers import bind_buffers, device_buffers
from tinygrad.execution.realize import BufferCopy, ExecItem, PeerReads, ScheduleItem
from tinygrad.execution.temporaries import allocate_temporaries
from tinygrad.execution.trace import Collective
from tinygrad.execution.wire import RemoteMessage
from tinygrad.schedule.canonical import Canonical
from tinygrad.schedule.execution_plan import (
    DEVICE_NUMBER,
    ExecutionPlan,
    KernelItem,
    Slices,
    StorageSlice,
    TransferItem,
    slice_on,
)
from tinygrad.uop.args import CommInfo
from tinygrad.uop.device_value import device_names
from tinygrad.uop.ops import UOp


class Binding:
    """A plan whose entries have buffers."""

    def __init__(self, plan: ExecutionPlan, canonical: Canonical) -> None:
        self.plan = plan
        self.canonical = canonical
        self._storage = self._buffers_of_entries()
        self._collectives: dict[CommInfo, Collective] = {}

    def _buffers_of_entries(self) -> Sequence[tuple[Buffer, ...] | dict[int, Buffer]]:
        """The buffers of each entry, by the number of the local device."""
        plan = self.plan
        buffers = [device_buffers(b) for b in self.canonical.buffers] + allocate_temporaries(plan)
        if plan.local.is_all:
            return buffers
        return [
            dict(zip(plan.local_numbers(entry), parts, strict=False))
            for entry, parts in enumerate(buffers)
        ]

    def _buffer(self, part: StorageSlice) -> Buffer:
        entry, device, offset, size, dtype, _ = part
        whole = self._storage[entry][device]
        if offset == 0 and size == whole.size and dtype is whole.dtype:
            return whole
        return whole.view(size, dtype, offset)

    def output(self, node: UOp, slices: Slices) -> UOp:
        """A BUFFER node with the memory of a result, `slices`, on the devices of `node`."""
        device = node.device
        if device is None:
            device = Device.DEFAULT
        new = UOp.new_buffer(device, cast("tuple[int, ...]", node.shape), node.dtype)
        if isinstance(device, str) and self.plan.local.is_all:
            return bind_buffers(new, (self._buffer(slices[0]),))
        numbers = self.plan.local.numbers(device_names(device))
        return bind_buffers(new, [self._buffer(slice_on(slices, n)) for n in numbers])

    # ---- items ----

    def items(self) -> list[ScheduleItem]:
        """The items of the plan on local devices, in order."""
        items: list[ScheduleItem] = []
        for item, is_whole in zip(self.plan.items, self.plan.reads_whole_entries, strict=True):
            if isinstance(item, KernelItem):
                self._add_kernels(items, item, is_whole)
            else:
                items.append(self._transfer(item))
        return items

    def _add_kernels(self, items: list[ScheduleItem], item: KernelItem, is_whole: bool) -> None:
        """Add a kernel on each local device. It `is_whole` if its arguments are whole entries."""
        storage, values, devices = self._storage, self.canonical.values, item.devices
        collective = None if item.info is None else self._collective(item.info)
        for number, parts in zip(item.local, item.arguments, strict=True):
            if is_whole:
                buffers = tuple([storage[p[0]][p[1]] for p in parts])
            else:
                buffers = tuple(map(self._buffer, parts))
            own = values if len(devices) == 1 else values | {DEVICE_NUMBER: number}
            new = ExecItem(item.ast, buffers, devices[number], own)
            if collective is not None:
                new.peers = PeerReads(collective, collective.add_round())
            items.append(new)

    def _transfer(self, item: TransferItem) -> BufferCopy:
        """A round of messages."""
        collective = self._collective(item.info)
        if self.plan.local.is_all:
            pairs = [(self._buffer(m.destination), self._buffer(m.source)) for m in item.messages]
            remote: list[RemoteMessage] = []
        else:
            pairs, remote = self._local_ends(item)
        number = collective.add_round()
        return BufferCopy(collective, number, tuple(pairs), tuple(remote), item.reduction)

    def _collective(self, info: CommInfo) -> Collective:
        """All rounds of one collective have one CommInfo, with the number of the user's line."""
        collective = self._collectives.get(info)
        if collective is None:
            line = self.canonical.line(info.line) if isinstance(info.line, int) else info.line
            collective = self._collectives[info] = Collective(replace(info, line=line))
        return collective

    def _local_ends(
        self, item: TransferItem
    ) -> tuple[list[tuple[Buffer, Buffer]], list[RemoteMessage]]:
        """The messages between local devices, and those of which another process has the other
        end.
        """
        plan = self.plan
        pairs: list[tuple[Buffer, Buffer]] = []
        remote: list[RemoteMessage] = []
        # a device sends one piece to many
        sent: dict[tuple[int, int, int], Buffer] = {}
        for message in item.pieces:
            sender = plan.device_on(item.source, message.source)
            receiver = plan.device_on(item.destination, message.target)
            source = None
            if plan.local.is_local(sender):
                key = message[2:]
                if key not in sent:
                    sent[key] = self._buffer(item.end(message, is_source=True))
                source = sent[key]
                if not plan.local.is_local(receiver):
                    remote.append(RemoteMessage(sender, receiver, source, True))
                    continue
            destination = self._buffer(item.end(message, is_source=False))
            if source is not None:
                pairs.append((destination, source))
            else:
                remote.append(RemoteMessage(sender, receiver, destination, False))
        return pairs, remote
