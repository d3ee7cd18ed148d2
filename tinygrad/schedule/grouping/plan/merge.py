"""Horizontal fusion: merge kernels with equal loops into one kernel with several outputs.

Input: units in order, and the dependencies of each. Output: fewer units, in an order that respects
the dependencies. Invariant: in a merged kernel, an output that another one reads is read only at
the element being computed, so that it is in a register and not read back.

Example: an optimizer's step computes `m = b * m + (1 - b) * g` and then `w = w - lr * m`. Both loop
over the shape of w, and the second reads m at its own element, so one kernel computes both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, cast

from tinygrad.caches import cached_function
from tinygrad.helpers import prod
from tinygrad.schedule.execution_plan import Slices
from tinygrad.schedule.grouping.fusion.segments import MAX_KERNEL_SIZE, expression_size
from tinygrad.schedule.grouping.plan.kernel_loops import KernelLoops, Shape, keeps_index, loops_of
from tinygrad.schedule.grouping.plan.unit import Unit
from tinygrad.uop import Ops
from tinygrad.uop.ops import ParamArg, UOp

MAX_PARAMS = 24
"""The maximum arguments of a merged kernel."""
MAX_REDUCTIONS = 4
"""The maximum outputs of a merged kernel that have reductions."""
MAX_UNRELATED = 1 << 12
"""The maximum elements of kernels that are merged although they have no array in common: computing
them takes less time than another launch."""
MAX_GROUPS_TRIED = 8
"""The groups that are tried for each unit, those that share the most arguments with it first."""


def loops_of_unit(unit: Unit) -> KernelLoops | None:
    """The loops of a unit with a single store to a whole array; None for other units."""
    if unit.item is not None or len(unit.stores) != 1 or unit.after is not None:
        return None
    target, value = unit.stores[0].src
    return loops_of(value) if target.op is Ops.PARAM else None


@cached_function(4096)
def aligned_params(value: UOp) -> tuple[frozenset[UOp], frozenset[UOp]]:
    """The PARAMs that `value` reads at its own element only, and those that it reads at others."""
    aligned = {value}
    elsewhere: set[UOp] = set()
    params: set[UOp] = set()
    for node in reversed(value.toposort()):
        if node.op is Ops.PARAM:
            params.add(node)
            continue
        here = node in aligned and node not in elsewhere and keeps_index(node)
        for x in node.src:
            (aligned if here else elsewhere).add(x)
            if node in elsewhere:
                elsewhere.add(x)
    return frozenset(params - elsewhere), frozenset(params & elsewhere)


# groups of equal kernels are merged alike
@cached_function(4096)
def _merged_store(store: UOp, arguments: tuple[int | UOp, ...], shape: Shape) -> UOp:
    """`store` rewritten for a merged kernel with loops of `shape`. Its argument i becomes argument
    number `arguments[i]` of that kernel, or the value `arguments[i]` which that kernel computes.
    """
    target, value = store.src
    table: dict[UOp, UOp] = {}
    for node in value.toposort():
        if node.op is Ops.PARAM:
            found = arguments[node.arg.slot]
            table[node] = (
                reshaped(found, node.shape)
                if isinstance(found, UOp)
                else node.replace(arg=ParamArg(found, node.arg.shape))
            )
    address = target.replace(arg=ParamArg(cast(int, arguments[0]), shape))
    value = reshaped(value.substitute(table), shape)
    return UOp(Ops.STORE, value.dtype, (address, value))


class _Group:
    """Kernels that are merged into `unit`, at `position` of the order, with `loops`.

    `written` maps the memory that they write to its values. `elsewhere` is the memory that they
    read at other elements than the one they compute. `size` is the estimated size of the merged
    kernel, `reductions` its number of outputs with reductions. `is_full` says that a unit did not
    fit.
    """

    def __init__(self, unit: Unit, loops: KernelLoops, position: int) -> None:
        self.unit = unit
        self.loops = loops
        self.reductions = int(loops.reduced is not None)
        self.shape = unit.stores[0].src[1].shape
        self.position = position
        self.is_full = False
        self.written: dict[Slices, UOp] = {}
        self.elsewhere: set[Slices] = set()
        # the arguments by their memory, and their memory by its entries
        self.slots: dict[Slices, int] = {}
        self.by_entry: dict[int, set[Slices]] = {}
        self._note_params(unit.params)
        value = unit.stores[0].src[1]
        self.size = expression_size(value)
        self.written[unit.params[0]] = value
        self.elsewhere |= {unit.params[p.arg.slot] for p in aligned_params(value)[1]}

    def join(self, unit: Unit, loops: KernelLoops) -> bool:
        """Merge `unit` into the group, if that is safe. Returns whether it is."""
        slots = self.slots
        reductions = self.reductions + (loops.reduced is not None)
        if loops.reduced is not None and (
            loops.reduced != self.loops.reduced or reductions > MAX_REDUCTIONS
        ):
            return False
        value = unit.stores[0].src[1]
        size = self.size + expression_size(value)
        added = [parts for parts in unit.params if parts not in slots]
        if len(slots) + len(added) > MAX_PARAMS or size > MAX_KERNEL_SIZE:
            self.is_full = True
            return False
        aligned, elsewhere = aligned_params(value)
        read_elsewhere = {unit.params[p.arg.slot] for p in elsewhere}
        target = unit.params[0]
        if target in self.elsewhere or target in self.written:
            return False
        if not read_elsewhere.isdisjoint(self.written):
            return False
        if self._overlaps(unit) or (unit.info and self.unit.info not in {None, unit.info}):
            return False
        if target not in slots and all(p.arg.slot for p in aligned | elsewhere):
            # what is written alone is the last argument
            added = [*added[1:], target]
        self._note_params(added)
        arguments = tuple([self.written.get(parts, slots[parts]) for parts in unit.params])
        store = _merged_store(unit.stores[0], arguments, self.shape)
        self.unit.stores.append(store)
        self.unit.params += added
        self.unit.reads += unit.reads
        self.written[target] = store.src[1]
        self.size = size
        self.reductions = reductions
        self.elsewhere |= read_elsewhere
        return True

    def _note_params(self, params: list[Slices]) -> None:
        """Number arguments, from the number of those before."""
        for parts in params:
            self.slots[parts] = len(self.slots)
            for p in parts:
                self.by_entry.setdefault(p.entry, set()).add(parts)

    def _overlaps(self, unit: Unit) -> bool:
        # two different slices of one entry may overlap
        for parts in unit.params:
            for p in parts:
                mine = self.by_entry.get(p.entry)
                if mine is not None and (len(mine) > 1 or parts not in mine):
                    return True
        return False


class _Groups:
    """All groups so far, by the arrays that they have in common with a unit."""

    def __init__(self) -> None:
        self.by_key: defaultdict[Any, dict[_Group, None]] = defaultdict(dict)

    def add(self, group: _Group, keys: list[tuple[Any, ...]]) -> None:
        """Let later units with one of these keys join the group."""
        for key in keys:
            self.by_key[key][group] = None

    def join(
        self, unit: Unit, loops: KernelLoops, keys: list[tuple[Any, ...]], earliest: int
    ) -> _Group | None:
        """Merge a unit into a group whose position is at least `earliest`. Returns the group, None
        if the unit fits none of those that it has the most arrays in common with.
        """
        shared = Counter(group for key in keys for group in self.by_key[key])
        for group in sorted(shared, key=shared.__getitem__, reverse=True)[:MAX_GROUPS_TRIED]:
            if group.position >= earliest and group.join(unit, loops):
                return group
            if group.is_full:
                for key in keys:
                    self.by_key[key].pop(group, None)
        return None


def reshaped(value: UOp, shape: Shape) -> UOp:
    """A value in another shape, which differs in axes of size 1."""
    return value if value.shape == shape else UOp(Ops.RESHAPE, value.dtype, (value,), shape)


def merge_kernels(
    units: list[Unit],
    after: dict[Unit, set[Unit]],
    devices: Callable[[UOp], tuple[str, ...]],
) -> list[Unit]:
    """The units, where those with equal loops and an array in common are merged; an elementwise
    unit is also merged with the unit whose output it reads.
    """
    result: list[Unit] = []
    groups = _Groups()
    position: dict[Unit, int] = {}
    for unit in units:
        loops = loops_of_unit(unit)
        position[unit] = len(result)
        if loops is not None:
            keys = _keys(unit, loops, devices(unit.node))
            earliest = max((position[u] for u in after[unit]), default=-1)
            group = groups.join(unit, loops, keys, earliest) or _Group(unit, loops, len(result))
            groups.add(group, keys)
            position[unit] = group.position
        if position[unit] == len(result):
            result.append(unit)
    return result


def _keys(unit: Unit, loops: KernelLoops, devices: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The keys of a unit, mostly an array with the loops over it. A unit is only merged with groups
    that have one of its keys.
    """
    size = prod(cast(tuple[int, ...], loops.shape))
    keys: list[tuple[Any, ...]] = []
    if loops.reduced is not None:
        # the result is for elementwise units; another reduction reads the same elements
        keys = [(devices, loops.shape, unit.params[0])]
        read = prod(int(d) for d, _ in loops.reduced)
        large = [x for x in unit.params[1:] if x[0].size * 2 > read]
        return keys + [(devices, loops, x) for x in large]
    keys = [(devices, loops.shape, x) for x in unit.params if x[0].size > 1]
    if size <= MAX_UNRELATED:
        keys.append((devices, loops.shape))
    return keys
