"""Custom gradients: rules attached to nodes, which take precedence over the rules of their ops.

Input: a node, its sources and a rule. Output: the node, with the rule in a weak table. Invariant: a
node that is rebuilt keeps its rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tinygrad.uop.node_table import NodeTable
from tinygrad.uop.ops import UOp

CustomRule = Callable[..., Sequence[UOp | None]]


@dataclass(frozen=True)
class CustomGradient:
    """`rule(gradient, node, *sources)` returns the gradient by each of `sources`."""

    sources: tuple[UOp, ...]
    rule: CustomRule


_custom = NodeTable[CustomGradient]()


def with_gradient(node: UOp, rule: CustomRule, *sources: UOp) -> UOp:
    """`node`, with `rule(gradient, node, *sources)` as its gradient by `sources`.

    For functions whose graph has a slower gradient, or NaN at the edges of the domain. The nodes
    between `node` and `sources` are not differentiated.
    """
    if node not in sources:
        _custom[node] = CustomGradient(sources, rule)
    return node


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
