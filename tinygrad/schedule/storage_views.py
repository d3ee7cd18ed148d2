"""Which nodes of the per-device graph are in memory, and which views of them are contiguous.

Input: a node. Output: the materialised node that it is a view of, and the offset of the view.
Invariant: what is called storage here gets a buffer, however work is grouped into kernels.
"""

from __future__ import annotations

from typing import cast

from tinygrad.helpers import all_int
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, ViewArg
from tinygrad.uop.propagation.device_rules import is_placement
from tinygrad.uop.sint import same_size

# nodes that name the memory of shards
SHARD_NAMES = frozenset({Ops.MSTACK, Ops.MSELECT, Ops.PEER, Ops.PIECE})
# nodes that are the memory of their sources under another name
NAMES_MEMORY = frozenset({Ops.BUFFER_VIEW, Ops.AFTER, Ops.STACK, *SHARD_NAMES})
# nodes whose value is in memory by their nature
STORAGE = frozenset(
    {
        *(Ops.BUFFER, Ops.ASSIGN, Ops.CONTIGUOUS, Ops.CUSTOM_KERNEL, Ops.TRANSFER),
        *NAMES_MEMORY,
        *GroupOp.Scatter,
    }
)


def is_storage(node: UOp) -> bool:
    """Whether the value is in memory by the node's nature."""
    return node.op in STORAGE


def movement_base(node: UOp) -> UOp:
    """The node below all movement and placement."""
    while (op := node.op) in GroupOp.Movement or (op is Ops.COPY and is_placement(node)):
        node = node.src[0]
    return node


def below_reshapes(node: UOp) -> UOp:
    """The value whose memory is that of `node`, element for element."""
    while node.op is Ops.RESHAPE and node.src[0].device is not None:
        node = node.src[0]
    return node


def below_views(node: UOp) -> UOp:
    """The stored value that a view of memory with another shape, offset or dtype reads."""
    while node.op is Ops.BUFFER_VIEW:
        node = node.src[0]
    return node


def contiguous_range(node: UOp) -> tuple[UOp, int] | None:
    """The materialised node of which `node` is a contiguous range, and the offset in elements."""
    offset = 0
    while not is_storage(node):
        source = node.src[0] if node.src else node
        if node.op is Ops.SHRINK and all_int(source.shape) and all_int(sum(node.arg, ())):
            start = _slice_start(source.shape, node.arg)
            if start is None:
                return None
            offset += start
        elif node.op not in {Ops.RESHAPE, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD}:
            # what is saved to a file may be detached
            return None
        node = source
    if is_slice_assign(node):
        # the assigned value is that slice of the memory below
        found = contiguous_range(node.src[0])
        return None if found is None else (node, offset + found[1])
    return node, offset


def is_slice_assign(node: UOp) -> bool:
    """Whether a value is what was assigned to a slice, or another view, of some memory."""
    if node.op is not Ops.ASSIGN:
        return False
    target = node.src[0]
    while target.op is Ops.RESHAPE:
        target = target.src[0]
    return target.op in GroupOp.Movement


def _slice_start(shape: tuple[int, ...], bounds: tuple[tuple[int, int], ...]) -> int | None:
    """The offset in elements of a slice, or None if the slice is not contiguous."""
    start, stride, whole = 0, 1, True
    for size, (low, high) in zip(reversed(shape), reversed(bounds), strict=True):
        if not whole and not same_size(high - low, 1):
            return None
        whole = whole and high - low == size
        start += low * stride
        stride *= size
    return start


def as_memory(node: UOp) -> UOp:
    """`node` as a contiguous range of memory: a view if it is one already, else materialised."""
    if is_storage(node) and not is_slice_assign(node):
        return node
    found = contiguous_range(node)
    if found is None:
        return UOp(Ops.CONTIGUOUS, node.dtype, (node,))
    base, offset = found
    arg = ViewArg(offset * node.dtype.itemsize, cast(tuple[int, ...], node.shape))
    return UOp(Ops.BUFFER_VIEW, node.dtype, (base,), arg)
