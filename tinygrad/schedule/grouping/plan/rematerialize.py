"""Rematerialise replicated values: all-gather them again before distant uses, to save memory.

Input: a plan. Output: the same plan, in which the replicated values that are all-gathered from
inputs take no more memory together than those that one item uses at once. The value with the
furthest next use is dropped first (Belady, A study of replacement algorithms, 1966). Invariant:
outputs of the plan are not dropped.

Example: three layers with weights that are sharded over the devices (ZeRO-3, arXiv:1910.02054).
Without this pass, all three replicated weights are alive at the end of the forward pass. With it,
at most one is alive, and those of layers 1 and 2 are all-gathered again for the backward pass.
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
    TransferItem,
    with_entries,
)


@dataclass(eq=False)
class _Gathered:
    """A replicated value in an entry. Positions are those of items in the plan."""

    entry: int
    recipe: tuple[int, ...]
    """The positions of the items that compute the value from inputs alone."""
    uses: list[int]
    """The positions of the items that read it."""
    nbytes: int
    dropped: list[int] = field(default_factory=list)
    """The uses before which it is rematerialised."""

    def next_use(self, position: int) -> int:
        """The position of its first reader after `position`."""
        return self.uses[bisect_right(self.uses, position)]


def rematerialize(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan in which replicated values are dropped between distant uses."""
    # positions of the items that use each entry, and the entries that each item uses
    users: dict[int, list[int]] = {}
    touched = [item.entries for item in plan.items]
    for position, entries in enumerate(touched):
        for entry in entries:
            users.setdefault(entry, []).append(position)
    gathered = {value.entry: value for value in _gathered(plan, touched, users)}
    if len(gathered) < 2:
        return plan
    needed = [[gathered[entry] for entry in entries if entry in gathered] for entries in touched]
    limit = max(sum(value.nbytes for value in here) for here in needed)
    alive: dict[int, _Gathered] = {}
    for position, here in enumerate(needed):
        idle = [value for value in alive.values() if value not in here]
        alive |= {value.entry: value for value in here}
        excess = sum(value.nbytes for value in alive.values()) - limit
        # the furthest next use first
        for value in sorted(idle, key=lambda value: -value.next_use(position)):
            after = value.next_use(position)
            if excess > 0 and _can_be_made(plan, touched, users, value, after):
                value.dropped.append(after)
                del alive[value.entry]
                excess -= value.nbytes
        for value in here:
            if position >= value.uses[-1]:
                del alive[value.entry]
    return _rebuilt(plan, [value for value in gathered.values() if value.dropped])


def _gathered(
    plan: ExecutionPlan, touched: list[set[int]], users: dict[int, list[int]]
) -> Iterator[_Gathered]:
    """The results of all-gathers of inputs, or of values that one kernel computes from inputs."""
    kept = {part.entry for parts in plan.outputs if parts is not None for part in parts}
    for position, item in enumerate(plan.items):
        if not isinstance(item, TransferItem) or len(touched[position]) != 2:
            continue
        target, source = item.destination[0].entry, item.source[0].entry
        grows = plan.entries[target].size > plan.entries[source].size
        if item.info.kind not in {"all_gather", "all_to_all"} or not grows:
            continue
        made, *uses = users[target]
        recipe = _recipe(plan, touched, users, source, position)
        if len(uses) == 1 and isinstance(plan.items[uses[0]], TransferItem):
            continue  # the first of two stages
        if target in kept or target < plan.inputs or recipe is None or not uses:
            continue
        if made == position and not any(target in plan.items[i].written for i in uses):
            entry = plan.entries[target]
            yield _Gathered(target, recipe, uses, entry.size * entry.dtype.itemsize)


def _recipe(
    plan: ExecutionPlan,
    touched: list[set[int]],
    users: dict[int, list[int]],
    source: int,
    position: int,
) -> tuple[int, ...] | None:
    """The positions of the items that compute a replicated value; None if they read more than
    inputs.
    """
    if source < plan.inputs:
        return (position,)
    if len(users[source]) != 2 or users[source][1] != position:
        return None
    made = users[source][0]
    others = touched[made] - {source}
    if isinstance(plan.items[made], KernelItem):
        return (made, position) if all(entry < plan.inputs for entry in others) else None
    # the second of two stages
    below = _recipe(plan, touched, users, others.pop(), made) if len(others) == 1 else None
    return None if below is None else (*below, position)


def _can_be_made(
    plan: ExecutionPlan,
    touched: list[set[int]],
    users: dict[int, list[int]],
    value: _Gathered,
    position: int,
) -> bool:
    """Whether a value can be computed again at `position`: its inputs have the same content as when
    it was first computed.
    """
    inputs = {entry for i in value.recipe for entry in touched[i] if entry < plan.inputs}
    return not any(
        entry in plan.items[i].written
        for entry in inputs
        for i in users[entry]
        if value.recipe[0] < i < position
    )


# ---- the new plan ----


def _rebuilt(plan: ExecutionPlan, values: list[_Gathered]) -> ExecutionPlan:
    """The plan with further items that rematerialise `values`, each time into new entries."""
    entries: list[StorageEntry] = list(plan.entries)
    inserted: dict[int, list[Item]] = {}
    renamed: dict[int, dict[int, int]] = {}
    for value in values:
        for time, start in enumerate(sorted(value.dropped), 1):
            names = _copy_entries(plan, value.recipe, entries)
            again = [_again(plan.items[i], names, time) for i in value.recipe]
            inserted.setdefault(start, []).extend(again)
            for use in (x for x in value.uses if x >= start):
                renamed.setdefault(use, {})[value.entry] = names[value.entry]
    # a value that is dropped before its first use need not be made early
    early = {i for value in values if value.uses[0] in value.dropped for i in value.recipe}
    items: list[Item] = []
    for position, item in enumerate(plan.items):
        items += inserted.get(position, [])
        if position not in early:
            items.append(with_entries(item, renamed.get(position, {})))
    new = range(len(plan.entries), len(entries))
    return replace(
        plan, entries=tuple(entries), items=tuple(items), written=plan.written.union(new)
    )


def _copy_entries(
    plan: ExecutionPlan, recipe: tuple[int, ...], entries: list[StorageEntry]
) -> dict[int, int]:
    """Append copies of the entries that the items of a recipe use, except inputs. Returns the
    number of each copy.
    """
    names: dict[int, int] = {}
    for entry in {e for i in recipe for e in plan.items[i].entries}:
        if entry >= plan.inputs:
            names[entry] = len(entries)
            entries.append(plan.entries[entry])
    return names


def _again(item: Item, names: dict[int, int], time: int) -> Item:
    """An item on other entries, run for another time."""
    found = with_entries(item, names)
    if isinstance(found, KernelItem):
        return found
    return replace(found, info=replace(found.info, time=time))
