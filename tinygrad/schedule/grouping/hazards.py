"""Write-after-read hazards within one kernel: assigned expressions that need memory of their own.

Input: the nodes of a per-device graph and those that are materialised. Output: the further nodes to
materialise. Invariant: no kernel overwrites an element that another of its work items still reads.
"""

from __future__ import annotations

from tinygrad.schedule.grouping.unit import memory_of
from tinygrad.schedule.storage_views import below_reshapes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp


def find_hazards(order: list[UOp], materialized: set[UOp]) -> set[UOp]:
    """The assigned expressions that read their own target at other elements than they write."""
    found: set[UOp] = set()
    for node in order:
        if node.op is not Ops.ASSIGN:
            continue
        target, value = node.src
        below = below_reshapes(value)
        if below not in materialized and _reads_elsewhere(value, target, materialized):
            found.add(below)
    return found


def _reads_elsewhere(value: UOp, target: UOp, materialized: set[UOp]) -> bool:
    memory = memory_of(target)
    # nodes that the kernel reads at the element that it writes, and at others
    aligned = {value}
    elsewhere: set[UOp] = set()
    for node in reversed(value.toposort(gate=lambda u: u not in materialized)):
        if node not in aligned and node not in elsewhere:
            continue
        if _is_same_place(node, target):
            if node in elsewhere:
                return True
        elif node in materialized:
            if is_memory_of(node, memory):
                return True
        elif node.op in GroupOp.Elementwise and node not in elsewhere:
            aligned.update(node.src)
        else:
            elsewhere.update(node.src)
    return False


def _is_same_place(node: UOp, target: UOp) -> bool:
    """Whether a value is the content of `target`, or was assigned to the same view."""
    while node is not target and node.op is Ops.ASSIGN:
        node = node.src[0]
    return node is target


def is_memory_of(node: UOp, memory: UOp) -> bool:
    """Whether a materialised value, or a shard that it names, is in `memory`."""
    below = memory_of(node)
    if below.op is Ops.MSTACK:
        return any(is_memory_of(x, memory) for x in below.src)
    return below is memory
