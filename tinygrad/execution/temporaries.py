"""Memory for the temporaries of a plan: one arena a device, shared by lifetime.

Input: an `ExecutionPlan`. Output: a buffer for each of its temporary entries. Invariant: an entry
that holds an output of the plan has a buffer of its own, so that it can outlive the plan; while a
function is captured, the buffer of an older output that nobody can read any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.device import Buffer
from tinygrad.execution.capture import Capture, capturing
from tinygrad.execution.memory_planner import Lifetime, MemoryPlan, plan_memory
from tinygrad.schedule.execution_plan import ExecutionPlan, StorageEntry
from tinygrad.settings import MEMORY_PLANNER

SMALL_TEMPORARY_BYTES = 1 << 14
"""The memory of temporaries up to this size is reused late."""
REUSE_DELAY_ITEMS = 8
"""The number of items after its last use for which a small temporary keeps its memory."""


@dataclass(frozen=True)
class TemporaryPlacement:
    """The memory of one entry on one device: at `offset` of the device's arena, or, where that is
    None, a buffer of its own.
    """

    device: str
    entry: StorageEntry
    offset: int | None


@dataclass(frozen=True)
class TemporaryLayout:
    """The memory of a plan's temporaries, by entry and local device, and the bytes of each device's
    arena.
    """

    places: tuple[tuple[TemporaryPlacement, ...], ...]
    arenas: dict[str, int]


def memory_layout(plan: ExecutionPlan, share: bool) -> TemporaryLayout:
    """Place temporaries, once. With `share`, those that hold no output share arenas by lifetime."""
    layout = plan.layouts.get(share)
    if layout is None:
        layout = plan.layouts[share] = _place_temporaries(plan, share)
    return layout


def _place_temporaries(plan: ExecutionPlan, share: bool) -> TemporaryLayout:
    kept = plan.output_entries
    spans = plan.spans()
    members: dict[str, list[tuple[int, int]]] = {}
    for number in plan.temporary:
        devices = plan.entries[number].devices
        for d in plan.local_numbers(number) if share and number not in kept else ():
            members.setdefault(devices[d], []).append((number, d))
    offsets: dict[tuple[int, int], int] = {}
    arenas: dict[str, int] = {}
    # devices with the same entries get the same layout
    planned: dict[tuple[int, ...], MemoryPlan] = {}
    for device, owned in members.items():
        numbers = tuple(n for n, _ in owned)
        layout = planned.get(numbers)
        if layout is None:
            sizes = [plan.nbytes(n) for n in numbers]
            spanned = zip(numbers, sizes, strict=True)
            lifetimes = [_lifetime(spans.get(n, (0, 0)), size) for n, size in spanned]
            layout = planned[numbers] = plan_memory(lifetimes)
        arenas[device] = max(layout.total, 1)
        offsets.update(zip(owned, layout.offsets, strict=True))
    places = tuple(
        tuple(
            TemporaryPlacement(
                plan.entries[number].devices[d], plan.entries[number], offsets.get((number, d))
            )
            for d in plan.local_numbers(number)
        )
        for number in plan.temporary
    )
    return TemporaryLayout(places, arenas)


def _lifetime(span: tuple[int, int], nbytes: int) -> Lifetime:
    """The lifetime of a temporary. Reuse of a small one is delayed, so that the next kernels
    can run beside those that read it.
    """
    first, last = span
    delay = REUSE_DELAY_ITEMS if nbytes <= SMALL_TEMPORARY_BYTES else 0
    return Lifetime(first, last + delay, nbytes)


def allocate_temporaries(plan: ExecutionPlan) -> list[tuple[Buffer, ...]]:
    """Make the buffers of a plan's temporary entries, one for each local device."""
    share = bool(MEMORY_PLANNER.get())
    layout = memory_layout(plan, share)
    captures = capturing()
    if not (layout.arenas or captures):
        return [
            tuple([Buffer(x.device, x.entry.size, x.entry.dtype) for x in parts])
            for parts in layout.places
        ]
    arenas: dict[str, Buffer] = {}
    if layout.arenas:
        capture = captures[-1] if captures else Capture()
        arenas = {device: capture.arena(device, size) for device, size in layout.arenas.items()}
    # other processes know the memory of a result by its token
    results = captures[-1] if captures and share and plan.local.is_all else None
    taken: list[Buffer] = []

    def allocate(place: TemporaryPlacement) -> Buffer:
        size, dtype = place.entry.size, place.entry.dtype
        if place.offset is not None:
            return arenas[place.device].view(size, dtype, place.offset)
        if results is None:
            return Buffer(place.device, size, dtype)
        result = results.result(place.device, size, dtype, taken)
        taken.append(result)
        return result

    return [tuple(map(allocate, parts)) for parts in layout.places]
