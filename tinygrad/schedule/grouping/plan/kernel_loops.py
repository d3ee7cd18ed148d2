"""The loops of a kernel's tensor form, which tell whether two kernels can be one.

Input: the tensor form of a value. Output: its `KernelLoops`, or None if its kernel is not merged.
Invariant: reductions with equal loops run over the same elements for each element of the result.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from tinygrad.caches import cached_function
from tinygrad.helpers import all_int, prod
from tinygrad.schedule.grouping.values import is_contraction
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, sint

MIN_STREAMED_ROW = 1 << 11
MIN_STREAMED_BYTES = 1 << 20
"""Sums of long rows are streamed (`optimize/lanes/streaming.py`), each by a kernel of its own."""

Shape = tuple[sint, ...]


class KernelLoops(NamedTuple):
    """The loops over a result of shape `shape`, and over what is reduced for each element of it:
    the sizes of the source, with True where an axis is reduced; None for an elementwise kernel.
    Axes of size 1 are left out.
    """

    shape: Shape
    reduced: tuple[tuple[sint, bool], ...] | None


def without_ones(shape: Shape) -> Shape:
    """A shape without axes of size 1."""
    return tuple(d for d in shape if not isinstance(d, int) or d != 1)


def is_same_index(node: UOp) -> bool:
    """Whether a RESHAPE adds and drops axes of size 1 only."""
    return node.op is Ops.RESHAPE and without_ones(node.shape) == without_ones(node.src[0].shape)


# the expressions of equal layers are equal nodes
@cached_function(4096)
def loops_of(value: UOp) -> KernelLoops | None:
    """The loops of an elementwise value, or of one computed from reductions over the same loops;
    None for matrix products, scatters, and reductions of reductions.
    """
    if not all_int(value.shape):
        return None
    reductions: list[UOp] = []
    reduced: set[UOp] = set()
    for node in value.toposort():
        if node.op in GroupOp.Scatter:
            return None
        if not reduced.isdisjoint(node.src):
            if node.op is Ops.REDUCE_AXIS or not keeps_index(node):
                return None
            reduced.add(node)
        elif node.op is Ops.REDUCE_AXIS:
            if not all_int(node.src[0].shape):
                return None
            reductions.append(node)
            reduced.add(node)
    shape = without_ones(value.shape)
    if not reductions:
        return KernelLoops(shape, None)
    found = {_reduced_axes(x) for x in reductions}
    if len(found) > 1 or any(is_contraction(x) or _is_streamed(x) for x in reductions):
        return None
    return KernelLoops(shape, found.pop())


def keeps_index(node: UOp) -> bool:
    """Whether an element of a node is computed from the same element of its sources."""
    return node.op in GroupOp.Elementwise or is_same_index(node)


def _reduced_axes(node: UOp) -> tuple[tuple[sint, bool], ...]:
    shape = node.src[0].shape
    return tuple((d, i in node.arg.axes) for i, d in enumerate(shape) if d != 1)


def _is_streamed(node: UOp) -> bool:
    """Whether the rows that a reduction adds are long, and many."""
    shape, size = cast(tuple[int, ...], node.src[0].shape), node.src[0].dtype.itemsize
    row = prod(shape[max(node.arg.axes) + 1 :]) * size
    return row >= MIN_STREAMED_ROW and prod(shape) * size >= MIN_STREAMED_BYTES


__all__ = ["KernelLoops", "is_same_index", "keeps_index", "loops_of", "without_ones"]
