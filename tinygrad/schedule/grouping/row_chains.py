"""Find the reductions of rows that one kernel computes with what it computes from them.

Input: the nodes of a per-device graph, sources first. Output: chains, as in a softmax or a norm: a
row's maximum, its sum of exponentials, and the exponentials divided by the sum. The threads of a
GPU share a row, so that one kernel computes all of it, and reads the row from memory once
(`codegen/optimize/threads/reduction.py`). Invariant: the nodes of a chain have no use but its root.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tinygrad.helpers import all_int, prod
from tinygrad.schedule.grouping.targets import find_target
from tinygrad.schedule.storage_views import is_storage
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

MAX_ROW = 1 << 16
"""Elements of a row that one block of threads computes."""
MIN_ROWS = 64
LONG_ROW = 1 << 12
"""Rows that keep a GPU busy, if they are long."""
MAX_REDUCTIONS = 4
"""Reductions of one kernel."""


@dataclass(frozen=True)
class RowChain:
    """Reductions of rows and what is computed from them, `inside`; the kernel of `root`, which all
    of their uses lead to, computes all of it.
    """

    root: UOp
    inside: frozenset[UOp]


def find_row_chains(
    order: list[UOp],
    outputs: Collection[UOp],
    taken: Collection[UOp],
    default_device: str,
) -> list[RowChain]:
    """The chains of a graph, without nodes of `taken`, on devices where threads share rows.
    Nodes without a device are computed on `default_device`.
    """
    search: _Search | None = None
    chains: list[RowChain] = []
    used: set[UOp] = set(taken)
    for node in order:
        if node.op is not Ops.REDUCE_AXIS or node in used or not is_row_reduction(node):
            continue
        target = find_target(node, default_device)
        if target is None or not target.has_threads:
            continue
        search = search or _Search(order, outputs)
        chain = search.chain_of(node)
        if chain is not None and used.isdisjoint(chain.inside) and chain.root not in used:
            chains.append(chain)
            used |= chain.inside
            used.add(chain.root)
    return chains


def is_row_reduction(node: UOp) -> bool:
    """Whether a node reduces the last axes of an array, of which many or short rows are left."""
    shape = node.src[0].shape
    if not all_int(shape):
        return False
    kept = [i for i, d in enumerate(shape) if d != 1 and i not in node.arg.axes]
    if kept and kept[-1] > min(node.arg.axes):
        return False
    size = prod(shape[i] for i in node.arg.axes)
    rows = prod(shape[i] for i in kept)
    return 1 < size <= MAX_ROW and (rows >= MIN_ROWS or size <= LONG_ROW)


class _Search:
    """The search of one graph."""

    def __init__(self, order: list[UOp], outputs: Collection[UOp]) -> None:
        self.order = order
        self.outputs = outputs
        self.position = {node: i for i, node in enumerate(order)}
        self.users: dict[UOp, list[UOp]] = {}
        for node in order:
            for x in dict.fromkeys(node.src):
                self.users.setdefault(x, []).append(node)

    def chain_of(self, reduce: UOp) -> RowChain | None:
        """The chain that starts with a reduction: up to the last node that all uses lead to."""
        found: RowChain | None = None
        inside: set[UOp] = set()
        reductions = 0
        waiting = {reduce}
        while waiting:
            # in the order of the graph: whatever a node is computed from was visited before
            node = min(waiting, key=self.position.__getitem__)
            waiting.remove(node)
            reductions += node.op is Ops.REDUCE_AXIS
            if reductions > MAX_REDUCTIONS or not self.is_inside(node, reduce):
                break
            is_row = node.shape == reduce.src[0].shape
            if not waiting and node.op is not Ops.EXPAND and (is_row or reductions > 1):
                found = RowChain(node, frozenset(inside))
            if node in self.outputs:
                break
            inside.add(node)
            waiting.update(self.users.get(node, ()))
        return found

    def is_inside(self, node: UOp, reduce: UOp) -> bool:
        """Whether a node is of rows: one element of each, or all of them."""
        if is_storage(node) or not all_int(node.shape):
            return False
        row, one = reduce.src[0].shape, reduce.shape
        if node.op is Ops.REDUCE_AXIS:
            return node.arg.axes == reduce.arg.axes and node.src[0].shape == row
        if node.op is Ops.EXPAND:
            return node.shape == row and node.src[0].shape == one
        if node.op in GroupOp.Elementwise:
            return node.shape in (row, one)
        return False


__all__ = ["RowChain", "find_row_chains"]
