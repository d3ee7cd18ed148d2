"""What grouping asks of a value of a per-device graph: its size, its memory, what it computes."""

from __future__ import annotations

from collections.abc import Iterator

from tinygrad.helpers import prod
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, sint

# nodes with the memory of their first source
_NAMES_SOURCE = GroupOp.Movement | {
    *(Ops.ASSIGN, Ops.AFTER, Ops.BUFFER_VIEW, Ops.MSELECT, Ops.PEER)
}


def max_elements(shape: tuple[sint, ...]) -> int:
    """The upper bound of the number of elements of a shape."""
    found = prod(shape)
    if type(found) is int:
        return found
    return prod(d if isinstance(d, int) else int(d.vmax) for d in shape)


def memory_of(node: UOp) -> UOp:
    """The materialised value whose memory holds a view, or a value that was assigned to one."""
    while node.op in _NAMES_SOURCE:
        node = node.src[0]
    return node


def below_casts(node: UOp) -> UOp:
    """The value of which `node` is a conversion, or `node` itself."""
    while node.op is Ops.CAST:
        node = node.src[0]
    return node


def repeats(node: UOp) -> bool:
    """Whether a node is an EXPAND that repeats elements."""
    return node.op is Ops.EXPAND and node.shape != node.src[0].shape


def is_contraction(node: UOp) -> bool:
    """Whether a reduction is a sum of products of broadcast operands, as a matrix product is."""
    while node.op is Ops.REDUCE_AXIS and node.arg.op is Ops.ADD:
        # nested sums, such as over windows and channels, are one sum
        node = node.src[0]
        while node.op in GroupOp.Movement or node.op is Ops.CAST:
            node = node.src[0]
    return node.op is Ops.MUL and all(any(map(repeats, _movements(x))) for x in node.src)


def _movements(node: UOp) -> Iterator[UOp]:
    while node.op in GroupOp.Movement or node.op is Ops.CAST:
        yield node
        node = node.src[0]
