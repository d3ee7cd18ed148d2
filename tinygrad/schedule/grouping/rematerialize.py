"""Full copies of split values are dropped and gathered again, so that few of them live at a time.

In: a plan. Out: the same plan, in which full copies that are gathered from its inputs take no more
memory together than the one item that needs most of them at once. So of the weights of a model that
are split over the devices that use them (ZeRO-3, arXiv:1910.02054), one is whole at a time: in the
backward pass it is gathered a second time. What is dropped is what is needed last, as in Belady,
A study of replacement algorithms (1966). A copy that the program stores is none of these.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tinygrad.schedule.execution_plan import (
    ExecutionPlan,
    Item,
    KernelItem,
    StorageEntry,
    StorageSlice,
    TransferItem,
)
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


@dataclass(eq=False)
class _Gathered:
    """A full copy: the items that make it from inputs alone, and the positions of those it is read
    by. `dropped` are the positions before which it is gathered again.
    """

    entry: int
    recipe: tuple[int, ...]
    uses: list[int]
    nbytes: int
    dropped: list[int] = field(default_factory=list)

    def next_use(self, position: int) -> int:
        """The position of the first item behind `position` that reads it."""
        return self.uses[bisect_right(self.uses, position)]


def rematerialize(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan whose full copies are dropped between uses that are far apart."""
    users: dict[int, list[int]] = {}
    touched = [_entries(item) for item in plan.items]
    for position, entries in enumerate(touched):
        for entry in entries:
            users.setdefault(entry, []).append(position)
    copies = {copy.entry: copy for copy in _gathered(plan, touched, users)}
    if len(copies) < 2:
        return plan
    together = [[copies[entry] for entry in entries if entry in copies] for entries in touched]
    most = max(sum(copy.nbytes for copy in here) for here in together)
    alive: dict[int, _Gathered] = {}
    for position, here in enumerate(together):
        kept = [copy for copy in alive.values() if copy not in here]
        alive |= {copy.entry: copy for copy in here}
        excess = sum(copy.nbytes for copy in alive.values()) - most
        # the one that is needed last goes first
        for copy in sorted(kept, key=lambda copy: -copy.next_use(position)):
            after = copy.next_use(position)
            if excess > 0 and _can_be_made(plan, touched, users, copy, after):
                copy.dropped.append(after)
                del alive[copy.entry]
                excess -= copy.nbytes
        for copy in here:
            if position >= copy.uses[-1]:
                del alive[copy.entry]
    return _rebuilt(plan, [copy for copy in copies.values() if copy.dropped])


def _entries(item: Item) -> set[int]:
    if isinstance(item, KernelItem):
        return {part.entry for parts in item.arguments for part in parts}
    return {part.entry for t in item.messages for part in (t.destination, t.source)}


def _gathered(
    plan: ExecutionPlan, touched: list[set[int]], users: dict[int, list[int]]
) -> Iterator[_Gathered]:
    """The copies that an all-gather makes of an input, or of what one kernel makes of inputs."""
    kept = {part.entry for parts in plan.outputs if parts is not None for part in parts}
    for position, item in enumerate(plan.items):
        if not isinstance(item, TransferItem) or len(touched[position]) != 2:
            continue
        target, source = item.messages[0].destination.entry, item.messages[0].source.entry
        # along one dimension of a mesh, what is gathered is still split along others
        grows = plan.entries[target].size > plan.entries[source].size
        if item.reason.kind not in {"all_gather", "all_to_all"} or not grows:
            continue
        made, *uses = users[target]
        recipe = _recipe(plan, touched, users[source], source, position)
        if target in kept or target < plan.inputs or recipe is None or not uses:
            continue
        if made == position and not any(_writes(plan.items[i], target) for i in uses):
            entry = plan.entries[target]
            yield _Gathered(target, recipe, uses, entry.size * entry.dtype.itemsize)


def _recipe(
    plan: ExecutionPlan, touched: list[set[int]], users: list[int], source: int, position: int
) -> tuple[int, ...] | None:
    """The items that make a full copy at `position`, if they read nothing but inputs."""
    if source < plan.inputs:
        return (position,)
    if len(users) != 2 or users[1] != position or not isinstance(plan.items[users[0]], KernelItem):
        return None
    others = touched[users[0]] - {source}
    return (users[0], position) if all(entry < plan.inputs for entry in others) else None


def _can_be_made(
    plan: ExecutionPlan,
    touched: list[set[int]],
    users: dict[int, list[int]],
    copy: _Gathered,
    position: int,
) -> bool:
    """Whether the inputs of a copy are at `position` what they were when it was made."""
    inputs = {entry for i in copy.recipe for entry in touched[i] if entry < plan.inputs}
    return not any(
        _writes(plan.items[i], entry)
        for entry in inputs
        for i in users[entry]
        if copy.recipe[0] < i < position
    )


def _writes(item: Item, entry: int) -> bool:
    """Whether an item may write to an entry."""
    if isinstance(item, TransferItem):
        return any(t.destination.entry == entry for t in item.messages)
    slots = _written_slots(item.ast)
    return any(
        part.entry == entry and (slots is None or slot in slots)
        for parts in item.arguments
        for slot, part in enumerate(parts)
    )


def _written_slots(ast: UOp) -> set[int] | None:
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
    return slots


# ---- the new plan ----


def _rebuilt(plan: ExecutionPlan, copies: list[_Gathered]) -> ExecutionPlan:
    """The plan with the items that gather again, each into entries of its own."""
    entries: list[StorageEntry] = list(plan.entries)
    inserted: dict[int, list[Item]] = {}
    renamed: dict[int, dict[int, int]] = {}
    for copy in copies:
        for time, start in enumerate(sorted(copy.dropped), 1):
            names: dict[int, int] = {}
            for entry in {e for i in copy.recipe for e in _entries(plan.items[i])}:
                if entry >= plan.inputs:
                    names[entry] = len(entries)
                    entries.append(plan.entries[entry])
            again = [_with_entries(plan.items[i], names, time) for i in copy.recipe]
            inserted.setdefault(start, []).extend(again)
            for use in copy.uses:
                if use >= start:
                    renamed.setdefault(use, {})[copy.entry] = names[copy.entry]
    # what is dropped before its first use need not have been made
    early = {i for copy in copies if copy.uses[0] in copy.dropped for i in copy.recipe}
    items: list[Item] = []
    for position, item in enumerate(plan.items):
        items += inserted.get(position, [])
        if position not in early:
            items.append(_with_entries(item, renamed.get(position, {})))
    new = range(len(plan.entries), len(entries))
    return replace(
        plan, entries=tuple(entries), items=tuple(items), written=plan.written.union(new)
    )


def _with_entries(item: Item, names: dict[int, int], time: int = 0) -> Item:
    """An item on other entries, run another `time`."""
    if not names:
        return item

    def named(part: StorageSlice) -> StorageSlice:
        return part._replace(entry=names.get(part.entry, part.entry))

    if isinstance(item, KernelItem):
        arguments = tuple(tuple(map(named, of_device)) for of_device in item.arguments)
        return replace(item, arguments=arguments)
    messages = tuple(
        t._replace(destination=named(t.destination), source=named(t.source)) for t in item.messages
    )
    return TransferItem(messages, replace(item.reason, time=time) if time else item.reason)
