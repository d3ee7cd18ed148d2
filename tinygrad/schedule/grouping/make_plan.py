"""From the per-device graph to a plan: a kernel or transfer for each materialised value, in order.

Input: a per-device SINK over canonical buffers. Output: an `ExecutionPlan`. Invariant: what reads
the content that a buffer has before an assignment runs before the kernel that overwrites it.
"""

from __future__ import annotations

import heapq
from typing import cast

from tinygrad.helpers import prod
from tinygrad.schedule.execution_plan import (
    ExecutionPlan,
    KernelItem,
    PlannedMessage,
    StorageEntry,
    StorageSlice,
    TransferItem,
)
from tinygrad.schedule.grouping.fuse import choose_stored
from tinygrad.schedule.grouping.merge import merge_kernels
from tinygrad.schedule.grouping.regions import are_apart, views_of
from tinygrad.schedule.grouping.unit import Unit
from tinygrad.schedule.storage_views import NAMES_MEMORY, below_reshapes, movement_base
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import Spmd
from tinygrad.uop.ops import KernelInfo, ParamArg, UOp, sint
from tinygrad.uop.reduction import SCATTER_REDUCE_OPS, identity

Slices = tuple[StorageSlice, ...]


def elements(shape: tuple[sint, ...]) -> int:
    """The most elements that a shape can have."""
    return prod(d if isinstance(d, int) else int(d.vmax) for d in shape)


class _Planner:
    """The state of one plan being made."""

    def __init__(self, order: list[UOp], stored: set[UOp], inputs: int, default: str) -> None:
        self.order = order
        self.stored = stored
        self.inputs = inputs
        self.default = default
        self.entries: list[StorageEntry | None] = [None] * inputs
        self.storage: dict[UOp, Slices] = {}
        self.units: list[Unit] = []
        self.writer: dict[UOp, Unit] = {}
        # one unit for all that a kernel written by hand writes
        self.custom: dict[tuple[tuple[UOp, ...], UOp], Unit] = {}
        self.known_views: dict[tuple[Unit, UOp], tuple[UOp, ...] | None] = {}

    def devices(self, node: UOp) -> tuple[str, ...]:
        device = node.device
        if isinstance(device, Spmd):
            return device.devices
        assert device is None or isinstance(device, str), f"{node.op.name} on {device} is not local"
        return (self.default if device is None else device,)

    def new_entry(self, node: UOp) -> Slices:
        devices = self.devices(node)
        size = elements(node.shape)
        self.entries.append(StorageEntry(devices, size, node.dtype))
        number = len(self.entries) - 1
        return tuple(StorageSlice(number, d, 0, size, node.dtype) for d in range(len(devices)))

    # ---- where each stored value is ----

    def place(self, node: UOp) -> Slices:
        """The parts that hold a stored value, one a device."""
        op = node.op
        if op is Ops.BUFFER:
            return self.place_buffer(node)
        if op is Ops.BUFFER_VIEW:
            size = elements(node.shape)
            offset = node.arg.offset
            below = self.storage[node.src[0]]
            return tuple(
                StorageSlice(p.entry, p.device, p.offset + offset, size, node.dtype) for p in below
            )
        if op is Ops.MSELECT:
            return (self.storage[node.src[0]][node.arg],)
        if op is Ops.MSTACK:
            return tuple(self.storage[x][0] for x in node.src)
        if op is Ops.ASSIGN:
            return self.storage[movement_base(node.src[0])]
        if op is Ops.CUSTOM_KERNEL:
            return self.storage[node.src[node.arg.output]]
        return self.new_entry(node)

    def place_buffer(self, node: UOp) -> Slices:
        if node.arg.slot >= 0:
            return self.new_entry(node)
        number = -1 - node.arg.slot
        devices = self.devices(node)
        size = elements(node.arg.shape)
        self.entries[number] = StorageEntry(devices, size, node.dtype)
        return tuple(StorageSlice(number, d, 0, size, node.dtype) for d in range(len(devices)))

    # ---- the work that makes it ----

    def add_unit(self, node: UOp) -> None:
        op = node.op
        if op in {Ops.BUFFER, Ops.BUFFER_VIEW, Ops.MSELECT, Ops.MSTACK}:
            return
        if 0 in node.shape:
            return
        if op is Ops.CUSTOM_KERNEL:
            self.writer[node] = self.custom_unit(node)
            return
        if op is Ops.ASSIGN and node.src[1].op is Ops.CUSTOM_KERNEL:
            self.custom_unit(node.src[1]).overwrites[memory_of(node)] = node
            return
        unit = self.transfer_unit(node) if op is Ops.TRANSFER else self.kernel_unit(node)
        if op in GroupOp.Scatter:
            # rows are combined with what changes none of them
            start = node.const_like(identity(SCATTER_REDUCE_OPS[op], node.dtype))
            fill = UOp(Ops.STORE, node.dtype, (self.param(node, 0), start))
            unit.after = Unit(node, reads=[], stores=[fill], params=[self.storage[node]])
            self.units.append(unit.after)
        self.units.append(unit)
        self.writer[node] = unit

    def transfer_unit(self, node: UOp) -> Unit:
        source, target = self.storage[node.src[0]], self.storage[node]
        arg = node.arg
        size = arg.piece_size(elements(node.shape))
        nbytes = size * node.dtype.itemsize

        def pieces(part: StorageSlice, slot: int, count: int) -> StorageSlice:
            start = part.offset + slot * nbytes
            return StorageSlice(part.entry, part.device, start, size * count, node.dtype)

        messages = tuple(
            PlannedMessage(
                pieces(target[m.target], m.target_slot, m.count),
                pieces(source[m.source], m.source_slot, m.count),
            )
            for m in arg.messages
        )
        item = TransferItem(messages, arg.reason)
        return Unit(node, reads=[node.src[0]], item=item)

    def kernel_unit(self, node: UOp) -> Unit:
        value = node.src[0] if node.op is Ops.CONTIGUOUS else node
        target = node
        if node.op is Ops.ASSIGN:
            target, value = node.src
        params: dict[Slices, int] = {self.storage[node]: 0}
        reads: list[UOp] = []
        if target is node or below_reshapes(target).op not in GroupOp.Movement:
            # a reshape leaves the memory as it is: the loops follow the value below it
            value = below_reshapes(value)
            address = self.param(value, 0)
        else:
            address = self.view(target, 0)
        body = self.body(value, node, params, reads)
        return Unit(
            node,
            reads=reads,
            stores=[UOp(Ops.STORE, value.dtype, (address, body))],
            params=list(params),
            overwrites={memory_of(target): node} if node.op is Ops.ASSIGN else {},
        )

    def custom_unit(self, node: UOp) -> Unit:
        """The unit of a CUSTOM_KERNEL, which its other outputs share."""
        key = (node.src, node.arg.kernel)
        if key not in self.custom:
            # behind the arrays there may be Variables
            reads = [x for x in node.src if x.op is not Ops.DEFINE_VAR]
            params = [self.storage[x] for x in reads]
            unit = Unit(node, reads=reads, params=params, kernel=node.arg.kernel)
            self.custom[key] = unit
            self.units.append(unit)
        return self.custom[key]

    def param(self, node: UOp, slot: int) -> UOp:
        return UOp(Ops.PARAM, node.dtype, (), ParamArg(slot, node.shape))

    def body(self, value: UOp, root: UOp, params: dict[Slices, int], reads: list[UOp]) -> UOp:
        """The tensor form of an expression: stored values below it become PARAMs."""
        done: dict[UOp, UOp] = {}
        for node in value.toposort(gate=lambda u: u is root or u not in self.stored):
            if node in self.stored and node is not root:
                done[node] = self.leaf(node, params)
                reads.append(node)
            elif node.op is Ops.COPY:
                done[node] = done[node.src[0]]
            else:
                src = tuple(done[x] for x in node.src)
                same = src == node.src
                done[node] = node if same else UOp(node.op, node.dtype, src, node.arg)
        return done[value]

    def leaf(self, node: UOp, params: dict[Slices, int]) -> UOp:
        slot = params.setdefault(self.storage[node], len(params))
        if node.op is not Ops.ASSIGN:
            return self.param(node, slot)
        # what was assigned to a view is read through that view
        return self.view(node.src[0], slot)

    def view(self, target: UOp, slot: int) -> UOp:
        """A view of a memory as one of the PARAM that stands for that."""
        chain: list[UOp] = []
        while target.op in GroupOp.Movement:
            chain.append(target)
            target = target.src[0]
        value = self.param(target, slot)
        for x in reversed(chain):
            value = UOp(x.op, x.dtype, (value,), x.arg)
        return value

    # ---- order ----

    def ordered(self) -> tuple[list[Unit], dict[Unit, set[Unit]]]:
        """The units, each after those it reads and after those that read what it overwrites.

        Also returns, for each unit, the ones that must run before it.
        """
        number = {unit: i for i, unit in enumerate(self.units)}
        after: dict[Unit, set[Unit]] = {unit: set() for unit in self.units}
        for unit in self.units:
            for x in unit.reads:
                after[unit] |= self.makers(x)
            if unit.after is not None:
                after[unit].add(unit.after)
        self.order_assignments(after)
        waiting = {unit: len(before) for unit, before in after.items()}
        followers: dict[Unit, list[Unit]] = {unit: [] for unit in self.units}
        for unit, before in after.items():
            for earlier in before:
                followers[earlier].append(unit)
        ready = [number[u] for u, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        result: list[Unit] = []
        while ready:
            unit = self.units[heapq.heappop(ready)]
            result.append(unit)
            for later in followers[unit]:
                waiting[later] -= 1
                if waiting[later] == 0:
                    heapq.heappush(ready, number[later])
        if len(result) < len(self.units):
            raise RuntimeError(
                "assign: a value that was overwritten is still needed together with the new one; "
                "store the old one first with .contiguous()"
            )
        return result, after

    def order_assignments(self, after: dict[Unit, set[Unit]]) -> None:
        """An assignment runs after whoever reads an older content of the memory that it writes."""
        readers: dict[UOp, list[Unit]] = {}
        writers: dict[UOp, list[Unit]] = {}
        for unit in self.units:
            for x in unit.reads:
                for content in contents(x):
                    readers.setdefault(content, []).append(unit)
            for memory in unit.overwrites:
                writers.setdefault(memory, []).append(unit)
        for memory, assignments in writers.items():
            assignments.sort(key=lambda unit: cast(int, unit.overwrites[memory].arg))
            oldest = readers.get(memory, [])
            for position, unit in enumerate(assignments):
                after[unit].update(self.affected(oldest, unit, memory))
                for earlier in assignments[:position]:
                    content = content_of(earlier.overwrites[memory])
                    after[unit].update(self.affected(readers.get(content, []), unit, memory))
                    if unit not in oldest:
                        after[unit].add(earlier)
                after[unit].discard(unit)

    def affected(self, readers: list[Unit], writer: Unit, memory: UOp) -> list[Unit]:
        """Those of `readers` that may read a part of `memory` that `writer` overwrites."""
        if not writer.stores:
            return readers
        target = writer.stores[0].src[0]
        views = ((x, self.views(x, memory)) for x in readers if x is not writer)
        return [
            reader
            for reader, found in views
            if found is None or not all(are_apart(target, view) for view in found)
        ]

    def views(self, unit: Unit, memory: UOp) -> tuple[UOp, ...] | None:
        """The views through which a unit reads a memory; None if that is not known."""
        key = (unit, memory)
        if key not in self.known_views:
            self.known_views[key] = self._views(unit, memory)
        return self.known_views[key]

    def _views(self, unit: Unit, memory: UOp) -> tuple[UOp, ...] | None:
        parts = self.storage[memory]
        entries = {p.entry for p in parts}
        names = [x for x in unit.reads if not entries.isdisjoint(p.entry for p in self.storage[x])]
        if not unit.stores or any(self.storage[x] != parts for x in names):
            return None
        return views_of(unit.stores[0].src[1], unit.params.index(parts))

    def makers(self, node: UOp) -> set[Unit]:
        """The units that must run before a stored value can be read."""
        return {self.writer[x] for x in contents(node) if x in self.writer}


def contents(node: UOp) -> list[UOp]:
    """The nodes that gave the memory behind a stored value the content that is read."""
    found: list[UOp] = []
    stack = [node]
    while stack:
        x = stack.pop()
        if x.op in NAMES_MEMORY:
            stack.extend(movement_base(s) for s in x.src)
        else:
            found.append(content_of(x))
    return found


def content_of(node: UOp) -> UOp:
    """What gave a stored value its content; what a kernel wrote in place is assigned already."""
    is_in_place = node.op is Ops.ASSIGN and node.src[1].op is Ops.CUSTOM_KERNEL
    return node.src[1] if is_in_place else node


def memory_of(node: UOp) -> UOp:
    """The stored value whose memory a view, or what was assigned to one, is in."""
    while node.op in GroupOp.Movement | {Ops.ASSIGN, Ops.BUFFER_VIEW, Ops.MSELECT}:
        node = node.src[0]
    return node


def is_memory_of(node: UOp, memory: UOp) -> bool:
    """Whether a stored value is in `memory`, or some of the shards that it names are."""
    below = memory_of(node)
    if below.op is Ops.MSTACK:
        return any(is_memory_of(x, memory) for x in below.src)
    return below is memory


def hazards(order: list[UOp], stored: set[UOp]) -> set[UOp]:
    """Values to store first: an assigned expression that reads its own target elsewhere than it
    writes.
    """
    found: set[UOp] = set()
    for node in order:
        if node.op is not Ops.ASSIGN:
            continue
        target, value = node.src
        below = below_reshapes(value)
        if below not in stored and _reads_elsewhere(value, target, stored):
            found.add(below)
    return found


def _reads_elsewhere(value: UOp, target: UOp, stored: set[UOp]) -> bool:
    memory = memory_of(target)
    # the nodes that the kernel reads at the element that it writes, and those it reads elsewhere
    aligned = {value}
    elsewhere: set[UOp] = set()
    for node in reversed(value.toposort(gate=lambda u: u not in stored)):
        if node not in aligned and node not in elsewhere:
            continue
        if _is_same_place(node, target):
            if node in elsewhere:
                return True
        elif node in stored:
            if is_memory_of(node, memory):
                return True
        elif node.op in GroupOp.Elementwise and node not in elsewhere:
            aligned.update(node.src)
        else:
            elsewhere.update(node.src)
    return False


def _is_same_place(node: UOp, target: UOp) -> bool:
    """Whether a value is what is in `target`, or was assigned to just that."""
    while node is not target and node.op is Ops.ASSIGN:
        node = node.src[0]
    return node is target


def kernel_name(store: UOp) -> str:
    """`r_64_128` reduces, `e_64_128` does not; the numbers are the output's axes."""
    value = store.src[1]
    kind = "r" if any(n.op is Ops.REDUCE_AXIS for n in value.toposort()) else "e"
    sizes = [str(d if isinstance(d, int) else d.vmax) for d in value.shape if d != 1]
    return "_".join([kind, *sizes]) if sizes else f"{kind}_1"


def make_plan(sink: UOp, inputs: int, default: str) -> ExecutionPlan:
    """Group the per-device graph below `sink` into kernels and transfers."""
    order = list(sink.toposort())
    order.pop()
    outputs = [below_reshapes(x) for x in sink.src]
    stored = choose_stored(order, outputs)
    stored |= hazards(order, stored)
    planner = _Planner(order, stored, inputs, default)
    for node in order:
        if node in stored:
            planner.storage[node] = planner.place(node)
    for node in order:
        if node in stored:
            planner.add_unit(node)
    units = merge_kernels(*planner.ordered(), planner.devices)
    entries = tuple(cast(StorageEntry, e) for e in planner.entries)
    items = tuple(unit.item or _kernel_item(unit, planner) for unit in units)
    written = frozenset(p.entry for node in planner.writer for p in planner.storage[node])
    return ExecutionPlan(
        inputs=inputs,
        entries=entries,
        items=items,
        outputs=tuple(_output_parts(x, planner) for x in outputs),
        written=written,
        variables=tuple(sink.variables()),
    )


def _output_parts(node: UOp, planner: _Planner) -> Slices | None:
    return None if node.op in {Ops.BUFFER, Ops.ASSIGN} else planner.storage[node]


def _kernel_item(unit: Unit, planner: _Planner) -> KernelItem:
    ast = unit.kernel
    if ast is None:
        ast = UOp.sink(*unit.stores, arg=KernelInfo(kernel_name(unit.stores[0])))
    devices = planner.devices(unit.node)
    parts = tuple(tuple(p[d] for p in unit.params) for d in range(len(devices)))
    return KernelItem(ast, devices, parts)
