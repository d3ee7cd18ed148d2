"""The ops by which one value is a multiple of another.

Input: an expression, and a node in it. Output: for each op from the expression down to the node,
the op and its other operand; None for a division by a given total. Movement and casts are skipped.

Example: `where(keep, e / total, 0) * 2`, with the node `e`, has the steps `(MUL, 2)`,
`(WHERE, keep)` and None. `e + 1` is no multiple of `e` and has no steps.
"""

from __future__ import annotations

from typing import TypeAlias

from tinygrad.schedule.grouping.softmax.score_axes import KEEPS_ORDER
from tinygrad.schedule.storage_views import is_storage
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Step: TypeAlias = tuple[Ops, UOp] | None

_SKIPPED = frozenset({Ops.CAST, Ops.EXPAND, *KEEPS_ORDER})


def linear_path(root: UOp, source: UOp) -> list[UOp]:
    """The nodes on the path from `source` up to `root`, if there is only one path."""
    path = [root]
    while path[-1] is not source:
        path.append(next(x for x in path[-1].src if source in x.toposort(_is_within)))
    return path[::-1]


def _is_within(node: UOp) -> bool:
    """Whether a node is part of an elementwise expression: neither stored nor reduced."""
    return node.op is not Ops.REDUCE_AXIS and not is_storage(node)


def linear_steps(root: UOp, source: UOp, total: UOp | None = None) -> list[Step] | None:
    """The steps from `root` down to `source`; None if `root` is not a multiple of it. With `total`,
    one of the steps may divide by it, and no other operand may contain it.
    """
    depends: dict[UOp, bool] = {}
    for u in root.toposort(gate=lambda u: u is not source and _is_within(u)):
        below = any(depends.get(x, False) for x in u.src)
        depends[u] = u is source or (below and u is not total)
    steps: list[Step] = []
    node = root
    while node is not source:
        if not depends[node]:
            return None
        if node.op in _SKIPPED:
            node = node.src[0]
            continue
        inside = [i for i, x in enumerate(node.src) if depends[x]]
        if len(inside) != 1:
            return None
        side = inside[0]
        other = node.src[1 - side] if len(node.src) == 2 else node.src[0]
        if total is not None and _is_division(node.op, side, other, total):
            steps.append(None)
        elif is_linear(node, side) and (total is None or total not in other.toposort(_is_within)):
            steps.append((node.op, other))
        else:
            return None
        node = node.src[inside[0]]
    return steps


def is_linear(node: UOp, side: int) -> bool:
    """Whether an op is a multiple of its operand number `side`."""
    if node.op is Ops.WHERE:
        last = node.src[3 - side] if side else None
        return last is not None and last.op is Ops.CONST and last.arg == 0
    return node.op is Ops.MUL or (node.op is Ops.FDIV and side == 0)


def _is_division(op: Ops, side: int, other: UOp, total: UOp) -> bool:
    """Whether an op with `other` as its other operand divides by `total`."""
    other = _below(other)
    if op is Ops.FDIV:
        return side == 0 and other is total
    return op is Ops.MUL and other.op is Ops.RECIPROCAL and _below(other.src[0]) is total


def _below(node: UOp) -> UOp:
    while node.op in _SKIPPED:
        node = node.src[0]
    return node
