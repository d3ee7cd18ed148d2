"""Find softmaxes, norms and the like: reductions of rows that one kernel computes together with
their users.

Input: the nodes of a per-device graph, sources first. Output: `RowChain`s. Invariant: all uses of
the nodes of a chain lead to its root.

Example: a softmax of (rows, columns) is a maximum of each row, a sum of exponentials, and their
quotient, the root. As one kernel it reads a row from memory once. The threads of a GPU share a row
(`codegen/optimize/threads/reduction.py`); a core of a CPU computes all of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from heapq import heappop, heappush

from tinygrad.helpers import all_int
from tinygrad.renderer.target import Target
from tinygrad.schedule.grouping.targets import find_target
from tinygrad.schedule.grouping.values import max_elements
from tinygrad.schedule.storage_views import is_storage
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.sint import is_one

MAX_ROW = 1 << 16
"""The maximum length of a row that one block of threads, or one core, computes."""
MIN_ROWS = 64
"""The minimum number of rows that keep a GPU busy, if a row is longer than `LONG_ROW`."""
LONG_ROW = 1 << 12
"""A GPU fuses shorter rows whatever their number."""
ROWS_PER_CORE = 4
"""The minimum number of rows for each core of a CPU, in arrays larger than `SMALL_ARRAY`."""
SMALL_ARRAY = 1 << 12
"""A CPU fuses smaller arrays whatever the number of their rows."""
LARGE_BYTES = 1 << 20
"""The minimum size from which a CPU saves memory first: rows are fused only where separate
kernels could not store their result in place of an argument (`reuse_arguments.py`), and cheap
values are recomputed.
"""
MAX_REDUCTIONS = 4
"""The maximum number of reductions of one kernel."""
MAX_NODES = 96
"""The maximum number of nodes of a chain. It bounds the search, which starts at every reduction."""


@dataclass(frozen=True)
class RowChain:
    """Row reductions and the nodes computed from them, `inside`. All of their uses lead to `root`,
    whose kernel computes all of them.
    """

    root: UOp
    inside: frozenset[UOp]


def find_row_chains(
    order: list[UOp],
    outputs: Collection[UOp],
    taken: Collection[UOp],
    default_device: str,
) -> list[RowChain]:
    """The chains of a graph, without nodes of `taken`. Nodes without a device are computed on
    `default_device`.
    """
    search: _Search | None = None
    chains: list[RowChain] = []
    used: set[UOp] = set(taken)
    for node in order:
        if node.op is not Ops.REDUCE_AXIS or node in used:
            continue
        target = find_target(node, default_device)
        if target is None or not is_row_reduction(node, target):
            continue
        search = search or _Search(order, outputs)
        chain = search.chain_of(node)
        if chain is not None and used.isdisjoint(chain.inside) and chain.root not in used:
            chains.append(chain)
            used |= chain.inside
            used.add(chain.root)
    return chains


def is_row_reduction(node: UOp, target: Target) -> bool:
    """Whether a node reduces the last axes of an array, with enough rows for the target."""
    shape = node.src[0].shape
    if target.has_threads and not all_int(shape):
        return False
    kept = [i for i, d in enumerate(shape) if not is_one(d) and i not in node.arg.axes]
    if kept and kept[-1] > min(node.arg.axes):
        return False
    size = max_elements(tuple(shape[i] for i in node.arg.axes))
    rows = max_elements(tuple(shape[i] for i in kept))
    if not 1 < size <= MAX_ROW:
        return False
    if target.has_threads:
        return rows >= MIN_ROWS or size <= LONG_ROW
    if rows * size * node.dtype.itemsize >= LARGE_BYTES and not reads_inputs(node.src[0]):
        return False
    return rows >= ROWS_PER_CORE * target.threads or rows * size <= SMALL_ARRAY


def reads_inputs(value: UOp) -> bool:
    """Whether a value is computed from buffers of the graph alone, one of them at least as large.
    Then its kernel has no temporary argument whose memory the result could reuse.
    """
    largest = 0
    stack, seen = [value], {value}
    while stack:
        node = stack.pop()
        if node.op is Ops.BUFFER and node.arg.slot < 0:
            largest = max(largest, max_elements(node.shape))
            continue
        if is_storage(node) or node.op not in GroupOp.Elementwise | GroupOp.Movement:
            return False
        stack.extend(x for x in node.src if x not in seen and x.device is not None)
        seen.update(node.src)
    return largest >= max_elements(value.shape)


class _Search:
    """The search of one graph."""

    def __init__(self, order: list[UOp], outputs: Collection[UOp]) -> None:
        self.order = order
        self.outputs = set(outputs)
        self.position = {node: i for i, node in enumerate(order)}
        self.users: dict[UOp, list[UOp]] = {}
        for node in order:
            for x in dict.fromkeys(node.src):
                self.users.setdefault(x, []).append(node)

    def chain_of(self, reduce: UOp) -> RowChain | None:
        """The longest chain from a reduction to a node that all uses of the chain lead to."""
        found: RowChain | None = None
        if not self.is_inside(reduce, reduce):
            return found
        row = reduce.src[0].shape
        inside: set[UOp] = set()
        reductions = 0
        # a heap of positions: whatever a node is computed from was visited before
        waiting = [self.position[reduce]]
        queued = {reduce}
        while waiting:
            node = self.order[heappop(waiting)]
            reductions += node.op is Ops.REDUCE_AXIS
            if reductions > MAX_REDUCTIONS:
                break
            is_row = node.shape == row
            if not waiting and node.op is not Ops.EXPAND and (is_row or reductions > 1):
                is_recomputed = reductions == 1 and self.is_recomputed(node, reduce, inside)
                found = None if is_recomputed else RowChain(node, frozenset(inside))
            users = [x for x in self.users.get(node, ()) if x not in queued]
            if node in self.outputs or len(inside) + len(users) > MAX_NODES:
                break
            inside.add(node)
            if not all(self.is_inside(x, reduce) for x in users):
                # no later node has all uses
                break
            queued.update(users)
            for x in users:
                heappush(waiting, self.position[x])
        return found

    def is_recomputed(self, node: UOp, reduce: UOp, inside: set[UOp]) -> bool:
        """Whether a value as large as the rows is better recomputed by each of its users than
        stored. It is computed from one array and the reduction, as `x - max`, and storing it would
        take the memory of another large array.
        """
        users = self.users.get(node, ())
        if node in self.outputs or len(users) < 2:
            return False
        if max_elements(node.shape) * node.dtype.itemsize < LARGE_BYTES:
            return False
        if not all(self.is_inside(x, reduce) for x in users):
            return False
        # what is not inside is another array, or a constant
        stack, seen = [node], {node}
        arrays: list[UOp] = []
        while stack:
            x = stack.pop()
            if x is node or x in inside:
                found = [s for s in x.src if s.shape == node.shape and s not in seen]
                stack += found
                seen.update(found)
            elif x.device is not None:
                arrays.append(x)
        return len(arrays) == 1 and (is_storage(arrays[0]) or not reads_inputs(arrays[0]))

    def is_inside(self, node: UOp, reduce: UOp) -> bool:
        """Whether a node has one element for each row, or is as large as the rows."""
        if is_storage(node):
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
