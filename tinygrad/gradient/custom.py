"""Custom gradients: rules attached to nodes, which take precedence over the rules of their ops.

Input: a node, its sources and a rule. Output: the node, with the rule in a weak table. Invariant: a
node that is rebuilt keeps its rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.uop import Ops
from tinygrad.uop.node_table import NodeTable
from tinygrad.uop.ops import UOp

CustomRule = Callable[..., Sequence[UOp | None]]
Move = tuple[Ops, Any]


@dataclass(frozen=True)
class CustomGradient:
    """`rule(gradient, node, *sources)` returns the gradient by each of `sources`."""

    sources: tuple[UOp, ...]
    rule: CustomRule


_custom = NodeTable[CustomGradient]()

# the gradient by the result of one, moved likewise, is the gradient by its source
_MOVES = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP, Ops.SHRINK})


def with_gradient(node: UOp, rule: CustomRule, *sources: UOp) -> UOp:
    """`node`, with `rule(gradient, node, *sources)` as its gradient by `sources`.

    For functions whose graph has a slower gradient, or NaN at the edges of the domain. The nodes
    between `node` and `sources` are not differentiated. If `node` is a view, the rule is that of
    the computed node below, which may be stored, with its rule as the way to `sources`.
    """
    base, moves = _below_moves(node)
    if all(base is not _below_moves(x)[0] for x in sources):
        _custom[base] = CustomGradient(sources, _rule_below(moves, rule) if moves else rule)
    return node


def _below_moves(node: UOp) -> tuple[UOp, list[Move]]:
    """The node that `node` is a view of, and the steps to `node`."""
    moves = []
    while node.op in _MOVES:
        moves.append((node.op, node.arg))
        node = node.src[0]
    return node, moves[::-1]


def _rule_below(moves: list[Move], rule: CustomRule) -> CustomRule:
    """The rule of a node of which only the view by `moves` is used, from the rule of that view."""

    def moved(x: UOp) -> UOp:
        for op, arg in moves:
            x = UOp(op, x.dtype, (x,), arg)
        return x

    return lambda gradient, node, *sources: rule(moved(gradient), moved(node), *sources)


def carry_over(replaced: dict[UOp, UOp]) -> None:
    """Carry custom gradients over to nodes (values) rebuilt from others (keys)."""
    for old, new in replaced.items():
        if old is not new and old.op is new.op:
            carry_over_to(new, old, replaced)


def carry_over_to(new: UOp, old: UOp, replaced: dict[UOp, UOp]) -> None:
    """Carry the custom gradient of `old` over to `new`, whose sources are rebuilt."""
    custom = _custom.get(old)
    if custom is not None:
        sources = tuple(replaced.get(x, x) for x in custom.sources)
        with_gradient(new, custom.rule, *sources)


def custom_gradient(node: UOp) -> CustomGradient | None:
    """The custom gradient of `node`, if it has one."""
    return _custom.get(node)
