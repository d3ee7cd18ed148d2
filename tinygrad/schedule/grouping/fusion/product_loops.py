"""The loops of matrix products, to tell whether one register tile can accumulate several.

Input: the tensor form of a matrix product, and the movement of its result. Output: its
`ProductLoops`, or None if it is no plain product. Invariant: products with equal loops use the rows
and columns of a tile in the same way, so that one kernel for all is tiled as well as each alone.

Example: `a @ b + c @ d` are two products with the axes (row, column), so one kernel computes both.
`a @ b + (d @ c).T` differ in their movement, a PERMUTE, and are two kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.schedule.grouping.values import below_casts
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.sint import is_one

MAX_SUMS = 4
"""The maximum number of products in one kernel, each of which is a loop nest."""
MAX_SKINNY_ROWS = 8
"""The maximum rows of a product whose tiling follows the memory order of the larger operand."""

READS_MASKED = frozenset({Ops.WINDOW, Ops.UNWINDOW, Ops.PAD})
ROW, COLUMN, SHARED = "row", "column", "shared"


class ProductLoops(NamedTuple):
    """The loops of a sum of products, as far as tiling depends on them."""

    axes: tuple[str, ...]
    """The role of each output axis longer than 1; the first that is not shared is a row."""
    order: tuple[Any, ...]
    """The order of the larger operand in memory, if the other one has few rows."""
    movement: tuple[Any, ...]
    """The movement of the outputs."""
    sums: frozenset[UOp]
    """The sums that one kernel computes."""

    def joined(self, other: ProductLoops) -> ProductLoops | None:
        """The loops of a kernel that computes both, None if they differ or are too many."""
        sums = self.sums | other.sums
        if self[:3] != other[:3] or len(sums) > MAX_SUMS:
            return None
        return self._replace(sums=sums)

    def moved(self, node: UOp) -> ProductLoops:
        """The loops with one more movement of the outputs, which `node` is."""
        old, new = ([d for d in x.shape if not is_one(d)] for x in (node.src[0], node))
        if node.op is Ops.RESHAPE and old == new:
            return self
        return self._replace(movement=(*self.movement, (node.op, node.arg)))


def product_loops(node: UOp) -> ProductLoops | None:
    """The loops of a REDUCE_AXIS, None if it is no sum of products of floats without windows."""
    product = below_casts(node.src[0])
    if node.arg.op is not Ops.ADD or product.op is not Ops.MUL:
        return None
    operands = [below_casts(x) for x in product.src]
    if not dtypes.is_float(product.dtype) or not all(map(_is_plain, operands)):
        return None
    roles: list[str] = []
    sizes: dict[str, list[Any]] = {ROW: [], COLUMN: [], SHARED: []}
    repeated = [[is_one(d) for d in x.src[0].shape] for x in operands]
    for axis, size in enumerate(node.shape):
        if axis in node.arg.axes or is_one(size):
            continue
        if all(x[axis] for x in repeated):
            return None
        role = ROW if repeated[1][axis] else COLUMN if repeated[0][axis] else SHARED
        roles.append(role)
        sizes[role].append(size)
    first = next((x for x in roles if x is not SHARED), None)
    if first is None or not sizes[ROW] or not sizes[COLUMN]:
        return None
    exchanged = {ROW: COLUMN, COLUMN: ROW, SHARED: SHARED}
    axes = tuple(roles if first is ROW else [exchanged[x] for x in roles])
    order: tuple[Any, ...] = ()
    for mine, other in zip((ROW, COLUMN), reversed(operands), strict=True):
        if all(isinstance(x, int) for x in sizes[mine]) and prod(sizes[mine]) <= MAX_SKINNY_ROWS:
            order = (*order, _order(other))
    return ProductLoops(axes, order, (), frozenset({node}))


def _is_plain(operand: UOp) -> bool:
    """Whether an operand ends in an EXPAND, and is not read through windows or padding."""
    ops = [x.op for x in _movement(operand)]
    return ops[:1] == [Ops.EXPAND] and READS_MASKED.isdisjoint(ops)


def _order(operand: UOp) -> tuple[Any, ...]:
    """The permutations of an operand, which tell its contiguous axis."""
    return tuple(x.arg for x in _movement(operand) if x.op is Ops.PERMUTE)


def _movement(node: UOp) -> Iterator[UOp]:
    """The movement and casts of a value, the last first."""
    while node.op in GroupOp.Movement or node.op is Ops.CAST:
        yield node
        node = node.src[0]
