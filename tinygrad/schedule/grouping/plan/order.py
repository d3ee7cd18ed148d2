"""Order units so that each runs after those that it depends on.

Input: the units of a plan. Output: the same units in order, and the dependencies of each.
Invariant: a unit that reads a buffer as it is before an assignment runs before the assignment,
unless the two provably access different elements (a write-after-read dependency).

Example: `y = x * 2; x.assign(x + 1); z = x * 3`. The unit of y runs before the assignment, which
overwrites what y reads, and that of z after it.
"""

from __future__ import annotations

import heapq
from typing import cast

from tinygrad.schedule.grouping.plan.regions import are_disjoint, views_of
from tinygrad.schedule.grouping.plan.storage_map import StorageMap
from tinygrad.schedule.grouping.plan.unit import Unit
from tinygrad.schedule.storage_views import NAMES_MEMORY, movement_base
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Dependencies = dict[Unit, set[Unit]]
"""For each unit, the units that must run before it."""


class OverwriteConflict(RuntimeError):
    """A cycle of units: each would overwrite what another one must still read."""

    def __init__(self, units: list[Unit]) -> None:
        super().__init__(
            "assign: an overwritten value is needed together with the new one; "
            "store the old one first with .contiguous()"
        )
        self.units = units


def order_units(
    units: list[Unit], writer: dict[UOp, Unit], storage: StorageMap
) -> tuple[list[Unit], Dependencies]:
    """The units in an order that respects their dependencies, and the dependencies.

    Raises:
        OverwriteConflict: an overwritten value is needed together with the new one.
    """
    dependencies = _UnitOrder(units, writer, storage).dependencies()
    return _sorted(units, dependencies), dependencies


def _sorted(units: list[Unit], dependencies: Dependencies) -> list[Unit]:
    """The topological order that keeps closest to the order of `units`."""
    number = {unit: i for i, unit in enumerate(units)}
    waiting = {unit: len(before) for unit, before in dependencies.items()}
    followers: dict[Unit, list[Unit]] = {unit: [] for unit in units}
    for unit, before in dependencies.items():
        for earlier in before:
            followers[earlier].append(unit)
    ready = [number[u] for u, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    result: list[Unit] = []
    while ready:
        unit = units[heapq.heappop(ready)]
        result.append(unit)
        for later in followers[unit]:
            waiting[later] -= 1
            if waiting[later] == 0:
                heapq.heappush(ready, number[later])
    if len(result) < len(units):
        raise OverwriteConflict([unit for unit in units if waiting[unit]])
    return result


class _UnitOrder:
    """The dependencies between the units of one plan."""

    def __init__(self, units: list[Unit], writer: dict[UOp, Unit], storage: StorageMap) -> None:
        self.units = units
        self.writer = writer
        self.slices = storage.slices
        self.known_views: dict[tuple[Unit, UOp], tuple[UOp, ...] | None] = {}

    def dependencies(self) -> Dependencies:
        """All dependencies."""
        after: Dependencies = {unit: set() for unit in self.units}
        for unit in self.units:
            for x in unit.reads:
                after[unit] |= self.writers(x)
            if unit.after is not None:
                after[unit].add(unit.after)
        self.order_assignments(after)
        return after

    def writers(self, node: UOp) -> set[Unit]:
        """The units that must run before a materialised value can be read."""
        return {self.writer[x] for x in contents(node, earlier=True) if x in self.writer}

    def order_assignments(self, after: Dependencies) -> None:
        """Let each assignment run after the readers of older contents of the same memory."""
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
            for position, unit in enumerate(assignments):
                after[unit] |= self.before_assignment(unit, memory, assignments[:position], readers)
                after[unit].discard(unit)

    def before_assignment(
        self, unit: Unit, memory: UOp, earlier: list[Unit], readers: dict[UOp, list[Unit]]
    ) -> set[Unit]:
        """The units that run before an assignment to `memory`: the `earlier` ones to it, and the
        readers of all contents before it.
        """
        oldest = readers.get(memory, [])
        found = set(self.affected(oldest, unit, memory))
        for assignment in earlier:
            content = content_of(assignment.overwrites[memory])
            found.update(self.affected(readers.get(content, []), unit, memory))
        return found if unit in oldest else found.union(earlier)

    def affected(self, readers: list[Unit], writer: Unit, memory: UOp) -> list[Unit]:
        """The `readers` that may read elements of `memory` that `writer` overwrites."""
        if not writer.stores:
            return readers
        target = writer.stores[0].src[0]
        views = ((x, self.views(x, memory)) for x in readers if x is not writer)
        return [
            reader
            for reader, found in views
            if found is None or not all(are_disjoint(target, view) for view in found)
        ]

    def views(self, unit: Unit, memory: UOp) -> tuple[UOp, ...] | None:
        """The views through which a unit reads `memory`; None if they are not known."""
        key = (unit, memory)
        if key not in self.known_views:
            self.known_views[key] = self._views(unit, memory)
        return self.known_views[key]

    def _views(self, unit: Unit, memory: UOp) -> tuple[UOp, ...] | None:
        parts = self.slices[memory]
        entries = {p.entry for p in parts}
        names = [x for x in unit.reads if not entries.isdisjoint(p.entry for p in self.slices[x])]
        if not names:
            return ()  # the unit reads another shard of a stack than the one in `memory`
        if not unit.stores or any(self.slices[x] != parts for x in names):
            return None
        return views_of(unit.stores[0].src[1], unit.params.index(parts))


def contents(node: UOp, earlier: bool = False) -> list[UOp]:
    """The nodes that wrote the content of a materialised value; with `earlier`, also the writes
    before the last one to slices of its memory.
    """
    found: list[UOp] = []
    stack = [node]
    while stack:
        x = stack.pop()
        if x.op is Ops.AFTER and not earlier:
            stack.append(x.src[1])
        elif x.op in NAMES_MEMORY:
            stack.extend(movement_base(s) for s in x.src)
        else:
            found.append(content_of(x))
    return found


def content_of(node: UOp) -> UOp:
    """The node that wrote a materialised value; a kernel that writes in place has assigned it."""
    is_in_place = node.op is Ops.ASSIGN and node.src[1].op is Ops.CUSTOM_KERNEL
    return node.src[1] if is_in_place else node
