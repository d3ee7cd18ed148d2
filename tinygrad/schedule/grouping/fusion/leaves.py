"""Leaves of expressions: the materialised arrays and the expensive ops that they read.

Input: the materialised nodes of a graph, and expressions. Output: whether an expression reads too
much to be recomputed.

Example: `a * b + gather(table, index)`, of materialised arrays, has the leaves a, b, table, index
and the GATHER, which is expensive. The sets are cut off where more leaves make no difference.
"""

from __future__ import annotations

from itertools import islice

from tinygrad.schedule.grouping.fusion.segments import points_ratio
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

MAX_RECOMPUTED_LEAVES = 4
"""An expression that reads more arrays is materialised rather than recomputed."""
SMALL_RATIO = 1 / 16
"""The ratio of elements before and after an EXPAND up to which its source stays in a cache."""
EXPENSIVE = frozenset({Ops.GATHER, Ops.THREEFRY})
NO_LEAVES: frozenset[UOp] = frozenset()


class Leaves:
    """The leaves of the expressions of a graph, up to `MAX_RECOMPUTED_LEAVES + 1` of each."""

    def __init__(self, materialized: set[UOp]) -> None:
        # a copy, since nodes are added to the original while expressions are compared
        self.materialized = frozenset(materialized)
        self.leaves: dict[UOp, frozenset[UOp]] = {}
        # the leaves without small arrays that are broadcast, where these differ from `leaves`
        self.large_leaves: dict[UOp, frozenset[UOp]] = {}
        self.expensive: set[UOp] = set()

    def _find(self, node: UOp) -> None:
        """The leaves of a node, whose sources have theirs."""
        leaves, large, src = self.leaves, self.large_leaves, node.src
        if node in self.materialized:
            leaves[node] = frozenset({node})
        elif node.op in EXPENSIVE:
            self.expensive.add(node)
            leaves[node] = _joined([leaves[x] for x in src], node)
        elif not src:
            leaves[node] = NO_LEAVES
        else:
            leaves[node] = _joined([leaves[x] for x in src])
            if node.op is Ops.EXPAND and points_ratio(node) <= SMALL_RATIO:
                large[node] = large.get(src[0], leaves[node]) - self.materialized
            elif large and not large.keys().isdisjoint(src):
                large[node] = _joined([large.get(x, leaves[x]) for x in src])

    def _find_below(self, node: UOp) -> None:
        """The leaves of a node, and before it those of all nodes that it is computed from."""
        known, stored = self.leaves, self.materialized
        for x in node.toposort(gate=lambda u: u not in known and u not in stored):
            if x not in known:
                self._find(x)

    def exceed(self, count: int, node: UOp, *, large: bool = False) -> bool:
        """Whether an expression reads more than `count` arrays; an expensive op counts as
        `MAX_RECOMPUTED_LEAVES`. With `large`, small arrays that are broadcast do not count.
        """
        if node not in self.leaves:
            self._find_below(node)
        leaves = self.leaves[node]
        if large:
            leaves = self.large_leaves.get(node, leaves)
        expensive = len(leaves & self.expensive)
        return len(leaves) + (MAX_RECOMPUTED_LEAVES - 1) * expensive > count


def _joined(parts: list[frozenset[UOp]], *more: UOp) -> frozenset[UOp]:
    """The union of the leaves of several expressions and `more`, cut off as in `Leaves`."""
    if len(parts) == 1 and not more:
        return parts[0]
    found = parts[0].union(more) if more else parts[0]
    for x in parts:
        if not x <= found:
            found = x if found <= x else found | x
    if len(found) <= MAX_RECOMPUTED_LEAVES + 1:
        return found
    return frozenset(islice(found, MAX_RECOMPUTED_LEAVES + 1))
