"""Horizontal fusion: merge elementwise kernels over the same elements into one of several outputs.

Input: units in order, and the dependencies of each. Output: fewer units, in an order that respects
the dependencies. Invariant: a merged kernel reads the result of another one of its group only at
the element that it computes, so that the value is in a register and not read back.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, cast

from tinygrad.caches import cached_function
from tinygrad.schedule.execution_plan import Slices
from tinygrad.schedule.grouping.segments import MAX_KERNEL_SIZE, expression_size
from tinygrad.schedule.grouping.unit import Unit
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import ParamArg, UOp

MAX_PARAMS = 24
"""The arguments of a merged kernel."""
MAX_GROUPS_TRIED = 8
"""The groups that are tried for each unit, those that share the most arguments with it first."""


def is_elementwise(unit: Unit) -> bool:
    """Whether a unit is one loop nest over its output whose elements are independent."""
    if unit.item is not None or len(unit.stores) != 1 or unit.after is not None:
        return False
    target, value = unit.stores[0].src
    if target.op is not Ops.PARAM or not all(isinstance(d, int) for d in value.shape):
        return False
    return is_pointwise(value)


# the expressions of equal layers are equal nodes
@cached_function(4096)
def is_pointwise(value: UOp) -> bool:
    """Whether an expression has neither reductions nor scatters."""
    return all(n.op not in {Ops.REDUCE_AXIS, *GroupOp.Scatter} for n in value.toposort())


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
        here = node in aligned and node not in elsewhere and node.op in GroupOp.Elementwise
        for x in node.src:
            (aligned if here else elsewhere).add(x)
            if node in elsewhere:
                elsewhere.add(x)
    return frozenset(params - elsewhere), frozenset(params & elsewhere)


class _Group:
    """Kernels that are merged into `unit`, at `position` of the order: `written` maps the memory
    that they write to values, `elsewhere` is the memory that they read at other elements.
    `size` is the estimated size of the merged kernel; `is_full` says that a unit did not fit.
    """

    def __init__(self, unit: Unit, position: int) -> None:
        self.unit = unit
        self.position = position
        self.is_full = False
        self.written: dict[Slices, UOp] = {}
        self.elsewhere: set[Slices] = set()
        value = unit.stores[0].src[1]
        self.size = expression_size(value)
        self.written[unit.params[0]] = value
        self.elsewhere |= {unit.params[p.arg.slot] for p in aligned_params(value)[1]}

    def join(self, unit: Unit) -> bool:
        """Merge `unit` into the group, if that is safe. Returns whether it is."""
        mine = self.unit.params
        value = unit.stores[0].src[1]
        size = self.size + expression_size(value)
        if len({*mine, *unit.params}) > MAX_PARAMS or size > MAX_KERNEL_SIZE:
            self.is_full = True
            return False
        aligned, elsewhere = aligned_params(value)
        read_elsewhere = {unit.params[p.arg.slot] for p in elsewhere}
        target = unit.params[0]
        if read_elsewhere & self.written.keys() or target in self.elsewhere | self.written.keys():
            return False
        if self._overlaps(unit):
            return False
        slots = {parts: i for i, parts in enumerate(mine)}
        table: dict[UOp, UOp] = {}
        for p in sorted(aligned | elsewhere, key=lambda p: cast(int, p.arg.slot)):
            parts = unit.params[p.arg.slot]
            if parts in self.written:
                table[p] = self.written[parts]
            else:
                slot = slots.setdefault(parts, len(slots))
                table[p] = p.replace(arg=ParamArg(slot, p.arg.shape))
        slot = slots.setdefault(target, len(slots))
        address = unit.stores[0].src[0].replace(arg=ParamArg(slot, value.shape))
        value = value.substitute(table)
        self.unit.stores.append(UOp(Ops.STORE, value.dtype, (address, value)))
        self.unit.params[:] = list(slots)
        self.written[target] = value
        self.size = size
        self.elsewhere |= read_elsewhere
        return True

    def _overlaps(self, unit: Unit) -> bool:
        # two different slices of one entry may overlap
        mine: dict[int, set[Slices]] = {}
        for parts in self.unit.params:
            for p in parts:
                mine.setdefault(p.entry, set()).add(parts)
        return any(mine.get(p.entry, {parts}) != {parts} for parts in unit.params for p in parts)


def merge_kernels(
    units: list[Unit],
    after: dict[Unit, set[Unit]],
    devices: Callable[[UOp], tuple[str, ...]],
) -> list[Unit]:
    """The units, with elementwise ones of equal shape that share an array merged."""
    result: list[Unit] = []
    groups: defaultdict[Any, dict[_Group, None]] = defaultdict(dict)
    position: dict[Unit, int] = {}
    for unit in units:
        if is_elementwise(unit):
            shape = unit.stores[0].src[1].shape
            keys = [(devices(unit.node), shape, x) for x in unit.params if x[0].size > 1]
            earliest = max((position[u] for u in after[unit]), default=-1)
            shared = Counter(group for key in keys for group in groups[key])
            for group, _ in shared.most_common(MAX_GROUPS_TRIED):
                if group.position >= earliest and group.join(unit):
                    position[unit] = group.position
                    break
                if group.is_full:
                    for key in keys:
                        groups[key].pop(group, None)
            else:
                group = _Group(unit, len(result))
            for key in keys:
                groups[key][group] = None
        if unit not in position:
            position[unit] = len(result)
            result.append(unit)
    return result
