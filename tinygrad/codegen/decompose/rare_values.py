"""Compute rarely selected values in a branch.

Before: `select_rarely(condition, value, other)`, a WHERE that computes both. After: `other` in a
register, and a loop of 0 or 1 step, which runs if `condition` holds in any lane. It contains what
only `value` needs, and selects between the two. Values with one condition share a loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from tinygrad.codegen.analysis.ranges import FreeRanges, RangeFactory, substitute
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

RARELY = "rarely"
"""The argument of a WHERE whose first value is rarely selected, and costs more than a branch."""


def select_rarely(condition: UOp, value: UOp, other: UOp) -> UOp:
    """`value` where `condition` holds, which is rare, else `other`."""
    return UOp(Ops.WHERE, value.dtype, (condition, value, other), RARELY)


def branch_on_rare_values(sink: UOp) -> UOp:
    """The kernel with a branch around the rare values."""
    nodes = sink.toposort()
    groups: dict[UOp, list[UOp]] = {}
    for u in nodes:
        if u.op is Ops.WHERE and u.arg == RARELY:
            groups.setdefault(u.src[0], []).append(u)
    if not groups:
        return sink
    branches = _Branches(list(nodes), groups)
    return branches.lowered(sink)


class _Branches:
    """The loops and registers of the branches of one kernel."""

    def __init__(self, nodes: list[UOp], groups: dict[UOp, list[UOp]]) -> None:
        self.nodes = nodes
        self.factory = RangeFactory(nodes)
        self.registers = 1 + max((u.arg for u in nodes if u.op is Ops.DEFINE_REG), default=-1)
        self.free = FreeRanges()
        self.groups = groups
        self.inputs = {c: self.inputs_of(group) for c, group in groups.items()}
        self.steps: dict[UOp, UOp] = {}

    def inputs_of(self, group: list[UOp]) -> list[UOp]:
        """The nodes of which the rare values are computed, and which something else uses too."""
        inside = _only_used_by(group, self.nodes)
        found = (x for u in inside for x in u.src)
        values = (u.src[1] for u in group)
        outside = dict.fromkeys(x for x in (*found, *values) if x not in inside)
        return [x for x in outside if x.op is not Ops.CONST]

    def lowered(self, sink: UOp) -> UOp:
        """The kernel with all groups lowered."""
        done: dict[UOp, UOp] = {}
        for u in self.nodes:
            node = u.with_sources(tuple([done[x] for x in u.src]))
            if u.op is Ops.WHERE and u.arg == RARELY:
                node = self.lower(node, u.src[0], [done[x] for x in self.inputs[u.src[0]]])
            done[u] = node
        return done[sink]

    def lower(self, node: UOp, group: UOp, inputs: list[UOp]) -> UOp:
        """The load of the selected value."""
        condition, value, other = node.src
        step = self.steps.get(group)
        if step is None:
            step = self.steps[group] = self.factory.new(_any_lane(condition), AxisType.REDUCE)
        register = UOp(Ops.DEFINE_REG, node.dtype.ptr(1, AddrSpace.REG), (), self.registers)
        self.registers += 1
        zero = UOp.const(dtypes.index, 0)
        outer = sorted(self.free[node], key=lambda r: int(r.arg.index))
        start = (register.after(*outer) if outer else register).index(zero).store(other)
        inside = substitute(value, {x: x.after(step) for x in inputs})
        selected = node.replace(src=(condition, inside, other), arg=None)
        current = register.after(start, step).index(zero)
        return register.after(current.store(selected, step)).index(zero).load(dtype=node.dtype)


def _only_used_by(group: Iterable[UOp], nodes: list[UOp]) -> set[UOp]:
    """The nodes that only the first values of `group` need."""
    owners = set(group)
    shared: set[UOp] = set()
    wanted: set[UOp] = set()
    # users come before the nodes that they use
    for u in reversed(nodes):
        is_inside = u in wanted and u not in shared
        for i, x in enumerate(u.src):
            (wanted if is_inside or (u in owners and i == 1) else shared).add(x)
    return wanted - shared


def _any_lane(condition: UOp) -> UOp:
    """1 if a lane of `condition` holds, else 0."""
    if condition.dtype.count > 1:
        condition = UOp(Ops.REDUCE, dtypes.bool, (condition,), Ops.MAX)
    return condition.cast(dtypes.index)
