"""Store large results in place of arguments that no later item reads.

Input: a plan. Output: the same plan, in which an elementwise kernel stores a large result in the
memory of an argument, if it is the last item to use it. Invariant: the kernel reads an element of
this argument only to compute the same element of the result, before it stores that.

Example: the gradient of logits is stored in the memory of the logits, so the backward pass of a
cross entropy takes no further array of (batch, classes).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from tinygrad.schedule.execution_plan import (
    ExecutionPlan,
    Item,
    KernelItem,
    Slices,
    StorageSlice,
    with_entries,
)
from tinygrad.schedule.grouping.plan.kernel_loops import loops_of
from tinygrad.schedule.grouping.plan.merge import aligned_params
from tinygrad.uop import Ops
from tinygrad.uop.ops import ParamArg, UOp

MIN_REUSED_BYTES = 1 << 20
"""The minimum bytes of a result for which memory is reused."""


@dataclass(frozen=True)
class _Reuse:
    """Argument number `argument` of a kernel dies in it, and may hold its result `result`."""

    result: int
    argument: int


def reuse_arguments(plan: ExecutionPlan) -> ExecutionPlan:
    """The plan in which large results are stored in the memory of arguments that die."""
    if all(plan.nbytes(entry) < MIN_REUSED_BYTES for entry in plan.temporary):
        return plan
    spans, kept = plan.spans(), plan.output_entries
    names: dict[int, int] = {}
    items: list[Item] = list(plan.items)
    for position, item in enumerate(items):
        if not isinstance(item, KernelItem):
            continue
        for x in _candidates(plan, item):
            new, old = (item.params[i][0].entry for i in (x.result, x.argument))
            memory = _name(names, old)
            if spans[new][0] != position or spans[old][1] != position or memory in kept:
                continue
            # an output has memory of its own
            names[memory if new in kept else new] = new if new in kept else memory
            items[position] = _in_place(item, x)
            break
    return _renamed(plan, items, names) if names else plan


def _candidates(plan: ExecutionPlan, item: KernelItem) -> list[_Reuse]:
    """The large results of an elementwise kernel, with arguments whose memory each may take."""
    whole = {i: p for i, x in enumerate(item.params) if (p := _large(plan, x)) is not None}
    if len(whole) < 2 or any(x.src[0].op is not Ops.PARAM for x in item.ast.src):
        return []
    found: list[_Reuse] = []
    entries = [p.entry for x in item.params for p in x]
    values = [store.src[1] for store in item.ast.src]
    if any((loops := loops_of(x)) is None or loops.reduced is not None for x in values):
        return []
    if any(x.shape != values[0].shape for x in values):
        return []
    results = [store.src[0].arg.slot for store in item.ast.src]
    aligned, elsewhere = _reads(values)
    for number, slot in enumerate(results):
        later = {
            p.arg.slot for x in values[number + 1 :] for p in x.toposort() if p.op is Ops.PARAM
        }
        for argument in sorted(aligned - elsewhere - later - {*results}):
            new, old = whole.get(slot), whole.get(argument)
            if new is None or old is None or entries.count(old.entry) > 1:
                continue
            is_same = plan.entries[new.entry] == plan.entries[old.entry]
            if is_same and new.dtype == old.dtype and entries.count(new.entry) == 1:
                found.append(_Reuse(slot, argument))
    return found


def _reads(values: list[UOp]) -> tuple[set[int], set[int]]:
    """The arguments that are read at the element that is stored, and those read at others."""
    aligned: set[int] = set()
    elsewhere: set[int] = set()
    for value in values:
        here, others = aligned_params(value)
        aligned |= {cast(int, p.arg.slot) for p in here}
        elsewhere |= {cast(int, p.arg.slot) for p in others}
    return aligned, elsewhere


def _large(plan: ExecutionPlan, slices: Slices) -> StorageSlice | None:
    """The slice of an argument that is all of a large temporary."""
    if len(slices) != 1 or slices[0].entry < plan.inputs:
        return None
    (part,) = slices
    entry = plan.entries[part.entry]
    whole = StorageSlice(part.entry, 0, 0, entry.size, entry.dtype, len(entry.devices))
    return part if part == whole and plan.nbytes(part.entry) >= MIN_REUSED_BYTES else None


def _in_place(item: KernelItem, reuse: _Reuse) -> KernelItem:
    """A kernel whose argument is its result."""
    slots = [i for i in range(len(item.params)) if i != reuse.argument]
    number = {slot: i for i, slot in enumerate(slots)}
    number[reuse.argument] = number[reuse.result]
    table = {
        p: p.replace(arg=ParamArg(number[p.arg.slot], p.arg.shape))
        for p in item.ast.toposort()
        if p.op is Ops.PARAM
    }
    params = tuple(item.params[i] for i in slots)
    return replace(item, ast=item.ast.substitute(table), params=params)


def _name(names: dict[int, int], entry: int) -> int:
    while entry in names:
        entry = names[entry]
    return entry


def _renamed(plan: ExecutionPlan, items: list[Item], names: dict[int, int]) -> ExecutionPlan:
    """The plan without the entries that were renamed."""
    left = [entry for entry in range(len(plan.entries)) if entry not in names]
    position = {entry: i for i, entry in enumerate(left)}
    table = {entry: position[_name(names, entry)] for entry in range(len(plan.entries))}

    def named(slices: Slices | None) -> Slices | None:
        if slices is None:
            return None
        return tuple(p._replace(entry=table[p.entry]) for p in slices)

    return replace(
        plan,
        entries=tuple(plan.entries[entry] for entry in left),
        items=tuple(with_entries(item, table) for item in items),
        outputs=tuple(map(named, plan.outputs)),
        written=frozenset(table[entry] for entry in plan.written),
    )
