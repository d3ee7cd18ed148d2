"""From tensor graphs to runnable items: plans are cached, buffers are bound.

In: nodes of the tensor graph. Out: the items that compute them, and the BUFFER that each will be
in. Always true: a graph of the same structure is planned once, whatever buffers it reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from tinygrad.device import Buffer, Device
from tinygrad.execution.buffers import bind_buffers, device_buffers
from tinygrad.execution.lru_table import LruTable
from tinygrad.execution.memory import Lifetime, plan
from tinygrad.execution.memory import Plan as MemoryPlan
from tinygrad.execution.realize import BufferCopy, Capture, ExecItem, ScheduleItem, capturing
from tinygrad.execution.trace import Collective
from tinygrad.schedule.canonical import Canonical, canonicalize
from tinygrad.schedule.pipeline import PlanOptions, optimize_communication, plan_graph
from tinygrad.schedule.plan import Entry, Item, KernelItem, Part, Plan
from tinygrad.settings import ALL2ALL, MEMORY_PLANNER, RING, SCHEDULE_CACHE, SPLIT_REDUCEOP
from tinygrad.sharding import current_topology
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.args import CommInfo
from tinygrad.uop.ops import UOp

# movement that changes no element's number of uses: what is below it can be stored in its place;
# of a shard, all shards are
_SEEN_THROUGH = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP, Ops.MSELECT})
# movement that may leave elements out
_SLICED = _SEEN_THROUGH | {Ops.SHRINK}


# of a temporary that costs nothing to keep for so many items after its last use
SMALL_TEMPORARY_BYTES = 1 << 14
KEPT_ITEMS = 8


@dataclass
class Schedule:
    """The items to run, and where each computed node will be: `outputs[node]` is a BUFFER node."""

    items: list[ScheduleItem]
    outputs: dict[UOp, UOp]
    values: dict[str, int]


def output_node(node: UOp) -> UOp | None:
    """The node to compute for `node` to be in memory, or None if it is already."""
    while node.op in _SEEN_THROUGH:
        node = node.src[0]
    below = node
    while below.op in _SLICED:
        below = below.src[0]
    return None if below.op is Ops.BUFFER else node


MAX_PLANS = 1024
plan_cache: LruTable[tuple[Any, ...], Plan] = LruTable(MAX_PLANS)


def get_plan(sink: UOp, inputs: int) -> Plan:
    """The plan of a canonical graph, from the cache if an equal graph was planned before."""
    settings = (RING.value, ALL2ALL.value, SPLIT_REDUCEOP.value)
    key = (sink, Device.DEFAULT, settings, current_topology())
    found = plan_cache.get(key) if SCHEDULE_CACHE else None
    if found is None:
        found = plan_graph(optimize_communication(sink), PlanOptions(inputs, Device.DEFAULT))
        plan_cache.put(key, found)
    return found


def create_schedule(nodes: list[UOp]) -> Schedule:
    """The items that bring `nodes` into memory."""
    wanted = [x for node in dict.fromkeys(nodes) if (x := output_node(node)) is not None]
    wanted = list(dict.fromkeys(wanted))
    if not wanted:
        return Schedule([], {}, {})
    canonical = canonicalize(UOp.sink(*wanted))
    plan_ = get_plan(canonical.sink, len(canonical.buffers))
    storage: list[tuple[Buffer, ...]] = [device_buffers(b) for b in canonical.buffers]
    storage += allocate_temporaries(plan_)
    collectives: dict[CommInfo, Collective] = {}
    items = [_bind(item, storage, canonical, collectives) for item in plan_.items]
    # an assignment that ran on the way must not run again
    outputs = {node: assigned_view(node) for node in canonical.assignments}
    for node, parts in zip(wanted, plan_.outputs, strict=True):
        outputs[node] = assigned_view(node) if parts is None else _output(node, parts, storage)
    return Schedule([x for group in items for x in group], outputs, canonical.values)


def assigned_view(node: UOp) -> UOp:
    """Where the value of an ASSIGN, or of a kernel that writes in place, is once it ran: its
    target, without the assignments below.
    """
    while node.op in {Ops.ASSIGN, Ops.CONTIGUOUS, Ops.CUSTOM_KERNEL}:
        node = node.src[node.arg.output if node.op is Ops.CUSTOM_KERNEL else 0]
    if node.op in GroupOp.Movement or node.op is Ops.MSELECT:
        return node.replace(src=(assigned_view(node.src[0]),))
    return node


def _output(node: UOp, parts: tuple[Part, ...], storage: list[tuple[Buffer, ...]]) -> UOp:
    device = Device.DEFAULT if node.device is None else node.device
    new = UOp.new_buffer(device, cast(tuple[int, ...], node.shape), node.dtype)
    return bind_buffers(new, [_buffer(p, storage) for p in parts])


def _buffer(part: Part, storage: list[tuple[Buffer, ...]]) -> Buffer:
    entry, device, offset, size, dtype = part
    whole = storage[entry][device]
    if offset == 0 and size == whole.size and dtype is whole.dtype:
        return whole
    return whole.view(size, dtype, offset)


def _bind(
    item: Item,
    storage: list[tuple[Buffer, ...]],
    canonical: Canonical,
    collectives: dict[CommInfo, Collective],
) -> list[ScheduleItem]:
    values = canonical.values
    if isinstance(item, KernelItem):
        return [
            ExecItem(
                item.ast,
                tuple(_buffer(p, storage) for p in parts),
                device,
                values if len(item.devices) == 1 else values | {"_device_num": number},
            )
            for number, (device, parts) in enumerate(zip(item.devices, item.parts, strict=True))
        ]
    pairs = tuple(
        (_buffer(t.destination, storage), _buffer(t.source, storage)) for t in item.transfers
    )
    # rounds of one movement have one reason, with the number of its node's line
    collective = collectives.get(item.reason)
    if collective is None:
        line = item.reason.line
        shown = canonical.lines[line] if isinstance(line, int) else line
        collective = collectives[item.reason] = Collective(replace(item.reason, line=shown))
    return [BufferCopy(collective, collective.add_round(), pairs)]


# ---- temporaries ----


@dataclass(frozen=True)
class Place:
    """Where one device's part of a temporary entry is: at `offset` of its device's arena, or
    alone.
    """

    device: str
    entry: Entry
    offset: int | None


@dataclass(frozen=True)
class Layout:
    """The places of a plan's temporaries, by entry and device, and the bytes of each device's
    arena.
    """

    places: tuple[tuple[Place, ...], ...]
    arenas: dict[str, int]


@lru_cache(MAX_PLANS)
def memory_layout(found: Plan, share: bool) -> Layout:
    """Where temporaries go. With `share`, those that no output needs share memory by lifetime."""
    kept = {p.entry for parts in found.outputs if parts is not None for p in parts}
    spans = _spans(found)
    members: dict[str, list[tuple[int, int]]] = {}
    for number in found.temporary:
        for d, device in enumerate(found.entries[number].devices):
            if share and number not in kept:
                members.setdefault(device, []).append((number, d))
    offsets: dict[tuple[int, int], int] = {}
    arenas: dict[str, int] = {}
    # devices that own the same entries place them alike
    planned: dict[tuple[int, ...], MemoryPlan] = {}
    for device, owned in members.items():
        numbers = tuple(n for n, _ in owned)
        layout = planned.get(numbers)
        if layout is None:
            owned_entries = [found.entries[n] for n in numbers]
            sizes = [entry.size * entry.dtype.itemsize for entry in owned_entries]
            spanned = zip(numbers, sizes, strict=True)
            lifetimes = [_lifetime(spans.get(n, (0, 0)), size) for n, size in spanned]
            layout = planned[numbers] = plan(lifetimes)
        arenas[device] = max(layout.total, 1)
        offsets.update(zip(owned, layout.offsets, strict=True))
    places = tuple(
        tuple(
            Place(device, found.entries[number], offsets.get((number, d)))
            for d, device in enumerate(found.entries[number].devices)
        )
        for number in found.temporary
    )
    return Layout(places, arenas)


def _lifetime(span: tuple[int, int], nbytes: int) -> Lifetime:
    """How long a temporary keeps its memory: little is kept a while longer, so that kernels which
    follow need not wait for those that read it.
    """
    first, last = span
    return Lifetime(first, last + (KEPT_ITEMS if nbytes <= SMALL_TEMPORARY_BYTES else 0), nbytes)


def allocate_temporaries(found: Plan) -> list[tuple[Buffer, ...]]:
    """Buffers for a plan's own entries."""
    layout = memory_layout(found, bool(MEMORY_PLANNER))
    capture = next(reversed(capturing()), None) or Capture()
    arenas = {device: capture.arena(device, size) for device, size in layout.arenas.items()}

    def allocate(place: Place) -> Buffer:
        size, dtype = place.entry.size, place.entry.dtype
        if place.offset is None:
            return Buffer(place.device, size, dtype)
        return arenas[place.device].view(size, dtype, place.offset)

    return [tuple(map(allocate, parts)) for parts in layout.places]


def _spans(found: Plan) -> dict[int, tuple[int, int]]:
    """The first and last item that touches each entry."""
    spans: dict[int, tuple[int, int]] = {}
    for i, item in enumerate(found.items):
        if isinstance(item, KernelItem):
            touched = {p.entry for parts in item.parts for p in parts}
        else:
            touched = {p.entry for t in item.transfers for p in (t.destination, t.source)}
        for entry in touched:
            spans[entry] = (spans.get(entry, (i, i))[0], i)
    return spans
