"""Place barriers between accesses of the threads of a block to shared memory.

Before: a linear program in which threads share DEFINE_LOCALs. After: a BARRIER is passed between
any two accesses to one array of which one is a store, unless one thread makes both in one node. A
barrier is placed in the innermost block that holds both accesses, right before the later one or
the loop around it; in a loop whose steps conflict with each other, at the end of the step.

An array that is read or written after a BARRIER of the graph is left alone: who places barriers is
responsible for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tinygrad.dtype import dtypes
from tinygrad.renderer import pointer_of
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp


@dataclass
class _Loop:
    """A loop or branch of a program: its first and last node, and what is between them."""

    first: UOp | None = None
    inside: list[UOp | _Loop] = field(default_factory=list)
    last: UOp | None = None


Accesses = frozenset[UOp]
"""LOADs and STOREs of shared memory."""
NONE: Accesses = frozenset()
ONCE = frozenset({AxisType.GLOBAL, AxisType.LOCAL, AxisType.ROLE})
"""Kinds of which one thread runs one step."""


def place_barriers(linear: list[UOp]) -> list[UOp]:
    """The program with barriers; the same list where threads share no memory."""
    if not any(u.op is Ops.RANGE and u.arg.kind is AxisType.LOCAL for u in linear):
        return linear
    ordered = {pointer_of(u) for u in linear if u.op is Ops.AFTER and _is_ordered(u)}
    shared = frozenset(u for u in linear if _is_shared_access(u, ordered))
    if not shared:
        return linear
    result: list[UOp] = []
    _place(_parse(linear), shared, result)
    return result


def _is_ordered(u: UOp) -> bool:
    return any(x.op is Ops.BARRIER for x in u.src[1:])


def _is_shared_access(u: UOp, ordered: set[UOp]) -> bool:
    if u.op not in {Ops.LOAD, Ops.STORE}:
        return False
    array = pointer_of(u.src[0])
    return array.op is Ops.DEFINE_LOCAL and array not in ordered


def _parse(linear: list[UOp]) -> _Loop:
    stack = [_Loop()]
    for u in linear:
        if u.op in {Ops.RANGE, Ops.IF}:
            stack.append(_Loop(u))
        elif u.op in {Ops.END, Ops.ENDIF}:
            loop = stack.pop()
            loop.last = u
            stack[-1].inside.append(loop)
        else:
            stack[-1].inside.append(u)
    return stack[0]


def _place(loop: _Loop, shared: Accesses, result: list[UOp]) -> tuple[Accesses, Accesses, bool]:
    """Append a loop to `result`.

    Returns the `shared` accesses before its first barrier, those after its last one, and whether
    every run of the loop passes a barrier.
    """
    before: set[UOp] = set()
    pending: set[UOp] = set()
    passed = False
    if loop.first is not None:
        result.append(loop.first)
    for entity in loop.inside:
        text: list[UOp] = []
        if isinstance(entity, _Loop):
            first, last, has_barrier = _place(entity, shared, text)
        else:
            text.append(entity)
            first = last = frozenset({entity}) if entity in shared else NONE
            has_barrier = entity.op is Ops.BARRIER
        if _conflict(pending, first):
            result.append(UOp(Ops.BARRIER, dtypes.void))
            pending, passed = set(), True
        if not passed:
            before |= first
        pending = set(last) if has_barrier else pending | last
        passed = passed or has_barrier
        result += text
    if _repeats(loop.first) and _conflict(pending, before):
        result.append(UOp(Ops.BARRIER, dtypes.void))
        pending, passed = set(), True
    if loop.last is not None:
        result.append(loop.last)
    passed = passed and not (loop.first is not None and _may_be_skipped(loop.first))
    return frozenset(before), frozenset(pending), passed


def _repeats(first: UOp | None) -> bool:
    """Whether a block runs several times for one thread."""
    if first is None or first.op is not Ops.RANGE:
        return False
    return first.arg.kind not in ONCE and first.src[0].vmax > 1


def _may_be_skipped(first: UOp) -> bool:
    """Whether a block may run no times."""
    if first.op is Ops.IF or first.arg.kind is AxisType.ROLE:
        return True
    is_launched = first.arg.kind in {AxisType.GLOBAL, AxisType.LOCAL}
    return not is_launched and first.src[0].vmin < 1


def _conflict(earlier: set[UOp], later: Accesses | set[UOp]) -> bool:
    """Whether two threads may access one element without order."""
    return any(
        a is not b and Ops.STORE in {a.op, b.op} and pointer_of(a.src[0]) is pointer_of(b.src[0])
        for a in earlier
        for b in later
    )
