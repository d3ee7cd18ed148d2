"""Views and aliases: which memory a node reads, and whether it needs memory at all.

Input: nodes of the tensor graph. Output: their bases and properties. Invariant: a view reads the
memory of its base in place; a chain of views has one base.
"""

from __future__ import annotations

from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

# ops whose value is their source's
IDENTITY_OPS = frozenset({Ops.DETACH, Ops.CONTIGUOUS_BACKWARD})

_MOVEMENT = GroupOp.Movement | IDENTITY_OPS | {Ops.MSELECT}

# movement that reads its source's memory in place; the other movement ops compute their result
VIEW_OPS = _MOVEMENT - {Ops.PAD, Ops.WINDOW, Ops.UNWINDOW}


def view_base(node: UOp) -> UOp:
    """The node that a chain of views reads from."""
    while node.op in VIEW_OPS:
        node = node.src[0]
    return node


def movement_base(node: UOp) -> UOp:
    """The node below all movement, including movement that computes its result."""
    while node.op in _MOVEMENT:
        node = node.src[0]
    return node


def path_to(node: UOp, table: dict[UOp, UOp]) -> list[UOp]:
    """The nodes from `node` down to the first key of `table` below movement; empty if none."""
    path = [node]
    while node not in table:
        if node.op not in _MOVEMENT:
            return []
        node = node.src[0]
        path.append(node)
    return path


def selected_shard(node: UOp) -> UOp | None:
    """The MSELECT that `node` is a view of, if it is one of a shard."""
    while node.op in VIEW_OPS and node.op is not Ops.MSELECT:
        node = node.src[0]
    return node if node.op is Ops.MSELECT else None


def is_in_memory(node: UOp) -> bool:
    """Whether a value is a realized buffer or a view of one."""
    base = view_base(node)
    return base.op is Ops.BUFFER and base.is_realized


def is_whole_memory(node: UOp) -> bool:
    """Whether a value is all elements of a realized buffer, each once, in any order."""
    while node.op in {Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP} or node.op in IDENTITY_OPS:
        node = node.src[0]
    return node.op is Ops.BUFFER and node.is_realized


def is_uniform(node: UOp) -> bool:
    """Whether every element is one known number, which needs no memory."""
    while (node.op in _MOVEMENT and node.op is not Ops.PAD) or node.op is Ops.COPY:
        node = node.src[0]
    return node.op in {Ops.CONST, Ops.BIND}


def is_constant(node: UOp) -> bool:
    """Whether a value is computed from constants alone, on any device."""
    while node.device is not None and len(node.src) == 1:
        node = node.src[0]
    return node.device is None
