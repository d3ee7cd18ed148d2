"""Views and aliases: which memory a node reads, and whether it needs memory at all.

Input: nodes of the tensor graph. Output: their bases and properties. Invariant: a view reads the
memory of its base in place; a chain of views has one base.
"""

from __future__ import annotations

from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.helpers import all_int, prod
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.simplify.fold import constant_value, exec_alu, fold_cast

# ops whose value is their source's
IDENTITY_OPS = frozenset({Ops.DETACH, Ops.CONTIGUOUS_BACKWARD})

# what is folded where all operands are constants
_FOLDED = GroupOp.Comparison | {
    *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.IDIV, Ops.MOD, Ops.RECIPROCAL, Ops.NEG, Ops.MAX),
    *(Ops.WHERE, Ops.AND, Ops.OR, Ops.XOR, Ops.CAST, Ops.REDUCE_AXIS),
}

_MOVEMENT = GroupOp.Movement | IDENTITY_OPS | {Ops.MSELECT}

# movement that reads its source's memory in place; the other movement ops compute their result
VIEW_OPS = _MOVEMENT - {Ops.PAD, Ops.WINDOW, Ops.UNWINDOW}

# views of all elements; those of a shard are in memory with the others
WHOLE_VIEWS = VIEW_OPS - {Ops.SHRINK}

# movement that adds no zeros
_UNPADDED = _MOVEMENT - {Ops.PAD, Ops.UNWINDOW}


def view_base(node: UOp) -> UOp:
    """The node that a chain of views reads from."""
    while node.op in VIEW_OPS:
        node = node.src[0]
    return node


def written_target(node: UOp) -> UOp:
    """The memory that a pending write overwrites; the node itself if it is no ASSIGN."""
    return view_base(node.src[0]) if node.op is Ops.ASSIGN else node


def movement_base(node: UOp) -> UOp:
    """The node below all movement, including movement that computes its result."""
    while node.op in _MOVEMENT:
        node = node.src[0]
    return node


def path_to(node: UOp, table: dict[UOp, UOp]) -> list[UOp]:
    """The nodes from `node` down to the first key of `table` below movement; empty if none."""
    if node in table:
        return [node]
    if node.op not in _MOVEMENT:
        return []
    path = path_to(node.src[0], table)
    return [node, *path] if path else path


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
    """Whether every element is one known number, which needs no memory and no kernel."""
    node = uniform_base(node)
    return node.op in {Ops.CONST, Ops.BIND} or folded_value(node) is not None


def uniform_base(node: UOp) -> UOp:
    """The node below all that keeps a uniform value uniform: movement without padding, and COPY."""
    while node.op in _UNPADDED or node.op is Ops.COPY:
        node = node.src[0]
    return node


MAX_FOLDED = 64
"""The maximum nodes that are folded on the host. A value that is updated repeatedly is stored then,
so that its graph does not grow."""


def folded_value(node: UOp) -> Any:
    """The number that every element of a computed value is known to be, or None if none is.

    Known are a few operations on constants, and zero times integers in memory. Zero times floats
    is not: it is NaN for NaN and infinities. It is what a kernel would compute, but for the
    rounding of sums.
    """
    if node.device is not None:
        if node.op is not Ops.MUL or dtypes.is_float(node.dtype):
            return None
        x, y = node.src
        y = uniform_base(y)
        return 0 if y.op is Ops.CONST and y.arg == 0 and is_in_memory(x) else None
    return _fold(node, {}) if node.op in _FOLDED else None


def _fold(node: UOp, done: dict[UOp, Any]) -> Any:
    """The number that every element of a node is, None if unknown; `done` has those visited."""
    if node in done:
        return done[node]
    done[node] = None
    if node.op is Ops.CONST and node.dtype.count == 1:
        done[node] = constant_value(node)
    elif node.op in _FOLDED or node.op in _UNPADDED:
        values: list[Any] = []
        for x in node.src:
            value = _fold(x, done) if len(done) < MAX_FOLDED else None
            if value is None:
                return None
            values.append(value)
        done[node] = _applied(node, values)
    return done[node]


def _applied(node: UOp, values: list[Any]) -> Any:
    """An op on values that each have one number for all elements."""
    if node.op in _MOVEMENT:
        return values[0]
    if node.op is Ops.REDUCE_AXIS:
        return _reduced(node, values[0])
    if node.op is Ops.CAST:
        constant = UOp.const(node.src[0].dtype, values[0])
        folded = fold_cast(UOp(Ops.CAST, node.dtype, (constant,)))
        return None if folded is None else folded.arg
    return exec_alu(node.op, node.src[-1].dtype, tuple(values))


def _reduced(node: UOp, value: Any) -> Any:
    """A reduction of equal numbers."""
    sizes = [node.src[0].shape[axis] for axis in node.arg.axes]
    if not all_int(sizes) or 0 in sizes or dtypes.is_bool(node.dtype):
        return None
    if node.arg.op is Ops.MAX:
        return value
    if node.arg.op is not Ops.ADD:
        return None
    return exec_alu(Ops.MUL, node.dtype, (value, prod(sizes)))


def is_constant(node: UOp) -> bool:
    """Whether a value is computed from constants alone, on any device."""
    while node.device is not None and len(node.src) == 1:
        node = node.src[0]
    return node.device is None
