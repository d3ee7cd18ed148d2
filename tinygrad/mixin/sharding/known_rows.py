"""Gathers of a sharded axis by an index that is known while the graph is built.

Input: a node, an axis, and an index with its numbers, such as the positions of an interpolation.
Output: the elements, sharded like the source. Invariant: devices are sent the ranges that they read
and do not hold, in the value and in its gradients, and no partial sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.gradient import with_gradient
from tinygrad.sharding import RowRanges
from tinygrad.uop.gather_scatter import choose_ranges, gather_ranges, scatter_ranges
from tinygrad.uop.ops import UOp

MAX_KNOWN_ROWS = 1 << 20
"""The maximum length of an index that is known as a list, which takes time and memory."""


def gather_known(x: UOp, axis: int, index: UOp, numbers: Sequence[Sequence[int]]) -> UOp | None:
    """The elements of `axis` at `index`, whose axes come first. `numbers` are those along its first
    axis, all in range. None if the axis is not sharded, or other communication sends less.
    """
    rows = x.permute((axis, *(i for i in range(x.ndim) if i != axis)))
    chosen = choose_ranges(rows, tuple((min(row), max(row)) for row in numbers))
    return None if chosen is None else _gathered(rows, index, *chosen)


def _gathered(rows: UOp, index: UOp, ranges: RowRanges, is_selected_first: bool) -> UOp:
    def gradient(g: UOp, node: UOp, source: UOp) -> tuple[UOp]:
        added = scatter_ranges(g, index, int(rows.shape[0]), rows.layout, ranges)
        return (with_gradient(added, again, g),)

    def again(g: UOp, node: UOp, source: UOp) -> tuple[UOp]:
        back = g.copy_to_device(rows.device)
        return (_gathered(back, index, ranges, is_selected_first),)

    found = gather_ranges(rows, index, ranges, is_selected_first)
    return with_gradient(found, gradient, rows)
