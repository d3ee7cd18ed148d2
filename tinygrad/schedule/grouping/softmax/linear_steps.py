"""The ops by which one value is a multiple of another.

Input: an expression, and a node in it. Output: for each op from the expression down to the node,
the op and its other operand; for a division by a given total, or by a lower bound of it, RECIPROCAL
and the divisor. Movement and casts are skipped.

Example: `where(keep, e / total, 0) * 2`, with the node `e`, has the steps `(MUL, 2)`,
`(WHERE, keep)` and `(RECIPROCAL, total)`. `e + 1` is no multiple of `e` and has no steps.
"""

from __future__ import annotations

from typing import TypeAlias

from tinygrad.schedule.grouping.softmax.score_axes import KEEPS_ORDER
from tinygrad.schedule.storage_views import is_storage
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Step: TypeAlias = tuple[Ops, UOp]

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
        divisor = None if total is None else _divisor(node.op, side, other, total)
        if divisor is not None:
            steps.append((Ops.RECIPROCAL, divisor))
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


def divisors(steps: list[Step]) -> list[UOp]:
    """What the steps divide by: the total, or a lower bound of it."""
    return [other for op, other in steps if op is Ops.RECIPROCAL]


def is_clamped(node: UOp) -> bool:
    """Whether a node is a value with a lower bound."""
    return node.op is Ops.MAX and node.src[1].op is Ops.CONST


def _divisor(op: Ops, side: int, other: UOp, total: UOp) -> UOp | None:
    """What an op with `other` as its other operand divides by, if that is `total` or its bound."""
    other = _below(other)
    if op is Ops.MUL and other.op is Ops.RECIPROCAL:
        other = _below(other.src[0])
    elif op is not Ops.FDIV or side:
        return None
    is_total = other is total or (is_clamped(other) and _below(other.src[0]) is total)
    return other if is_total else None


def _below(node: UOp) -> UOp:
    while node.op in _SKIPPED:
        node = node.src[0]
    return node
