"""Kernels with no more arguments than their target takes: Metal's have 31 at most.

Input: the `Choice` for a graph, otherwise complete. Output: the same `Choice`, in which parts of
expressions that read too many arrays are materialised. Invariant: values that must not be stored
are not.

Example: a sum of 100 arrays, with a limit of 30, becomes kernels that each add up to 30 arrays: the
source that reads the most arrays is materialised, until the rest fits.
"""

from __future__ import annotations

from tinygrad.schedule.grouping.fusion.choice import Choice, stored_base
from tinygrad.schedule.grouping.fusion.segments import can_be_stored
from tinygrad.schedule.grouping.targets import find_target
from tinygrad.uop.ops import UOp

Arrays = frozenset[UOp]
"""The materialised values that a value is computed from."""


def limit_arguments(choice: Choice, outputs: list[UOp]) -> None:
    """Materialise parts of the expressions that have more arguments than a kernel takes."""
    target = find_target(choice.order[-1], choice.default_device) if choice.order else None
    if target is None or len(choice.materialized) < target.max_arguments:
        return
    # one is the result, and any kernel may take all variables
    limit = target.max_arguments - 1 - len(UOp.sink(*outputs).variables())
    arrays: dict[UOp, Arrays] = {}
    for node in choice.order:
        found = _joined(choice, arrays, node)
        while len(found) > limit:
            part = max(
                (x for x in node.src if _can_split(choice, x)),
                key=lambda x: len(arrays[x]),
                default=None,
            )
            if part is None:
                break
            choice.materialize(part)
            arrays[part] = frozenset({stored_base(part)})
            found = _joined(choice, arrays, node)
        arrays[node] = found


def _joined(choice: Choice, arrays: dict[UOp, Arrays], node: UOp) -> Arrays:
    """The arrays that the sources of a node are computed from."""
    sets = {frozenset({x}) if x in choice.materialized else arrays[x] for x in node.src}
    return sets.pop() if len(sets) == 1 else frozenset().union(*sets)


def _can_split(choice: Choice, x: UOp) -> bool:
    """Whether a source may be materialised, and is not."""
    base = stored_base(x)
    fixed = choice.materialized, choice.recomputed, choice.in_rows
    return can_be_stored(base) and not any(base in nodes for nodes in fixed)
