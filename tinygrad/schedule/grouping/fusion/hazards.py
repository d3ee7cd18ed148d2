"""Write-after-read hazards within one kernel: assigned expressions that need memory of their own.

Input: the nodes of a per-device graph and those that are materialised. Output: the further nodes to
materialise. Invariant: no kernel overwrites an element that another of its work items still reads.
"""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.schedule.grouping.values import memory_of
from tinygrad.schedule.kernel.movement_index import Index, as_index, flat_index, movement_index
from tinygrad.schedule.storage_views import below_reshapes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.args import AxisType
from tinygrad.uop.ops import RangeArg, UOp


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
    """Whether a work item, which writes an element of `target`, reads another of its memory."""
    memory = memory_of(target)
    if _reads_in_place(value, target, memory, materialized):
        return False
    # the nodes that are computed from this memory
    depends: set[UOp] = set()
    for u in value.toposort(gate=lambda u: u not in materialized):
        if is_memory_of(u, memory) if u in materialized else not depends.isdisjoint(u.src):
            depends.add(u)
    if value not in depends:
        return False
    own = tuple(
        UOp(Ops.RANGE, dtypes.index, (as_index(size),), RangeArg(i, AxisType.LOOP))
        for i, size in enumerate(target.shape)
    )
    written: UOp | None = None
    # nodes with the element of them that is read; None for several
    seen: set[tuple[UOp, Index | None]] = set()
    stack: list[tuple[UOp, Index | None]] = [(value, own)]
    while stack:
        node, index = stack.pop()
        if (node, index) in seen or (index is own and _is_same_place(node, target)):
            continue
        seen.add((node, index))
        if node in materialized:
            if index is None:
                return True
            if written is None:
                written = _position(target, own, memory)
            if written is None or _position(node, index, memory) is not written:
                return True
        elif node.op in GroupOp.Elementwise:
            stack.extend((x, index) for x in node.src if x in depends and x.shape)
        elif node.op in GroupOp.Movement and index is not None:
            stack.append((node.src[0], movement_index(node, index)[0]))
        else:
            stack.extend((x, None) for x in node.src if x in depends)
    return False


def _reads_in_place(value: UOp, target: UOp, memory: UOp, materialized: set[UOp]) -> bool:
    """Whether an expression reads this memory as `target` alone, and that not through movement or
    reductions.
    """
    # nodes at the element that is written, and those at others
    stack, seen = [(value, True)], set[tuple[UOp, bool]]()
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        node, is_here = item
        if node in materialized:
            in_place = is_here and _is_same_place(node, target)
            if not in_place and is_memory_of(node, memory):
                return False
        else:
            is_here = is_here and node.op in GroupOp.Elementwise
            stack += [(x, is_here) for x in node.src]
    return True


def _position(node: UOp, index: Index, memory: UOp) -> UOp | None:
    """The position in `memory` of an element of a view, or of a value assigned to one; None if it
    is not known.
    """
    while node is not memory:
        if node.op in GroupOp.Movement:
            index = movement_index(node, index)[0]
        elif node.op not in {Ops.ASSIGN, Ops.AFTER}:
            return None
        node = node.src[0]
    return flat_index(memory.shape, index).simplify()


def _is_same_place(node: UOp, target: UOp) -> bool:
    """Whether a value is the content of `target`, or was assigned to the same view."""
    while node is not target and node.op in {Ops.ASSIGN, Ops.AFTER}:
        node = node.src[0]
    return node is target


def is_memory_of(node: UOp, memory: UOp) -> bool:
    """Whether a materialised value, or a shard that it names, is in `memory`."""
    below = memory_of(node)
    if below.op in {Ops.MSTACK, Ops.PIECE}:
        return any(is_memory_of(x, memory) for x in below.src)
    return below is memory
