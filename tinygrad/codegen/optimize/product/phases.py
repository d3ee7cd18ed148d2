"""Split output loops into phases where their quotient and remainder by one number index operands.

Before: `for y: image[(y + 1) // 2] * weight[(y + 1) % 2]`, as in a transposed convolution of stride
2. After: `for q: for p: image[q + (p + 1) // 2] * weight[(p + 1) % 2]` with `y = 2 * q + p`: `q` is
an axis of the images alone, and one of two phases `p` is affine.
"""

from __future__ import annotations

from tinygrad.codegen.analysis.affine_index import affine
from tinygrad.codegen.analysis.ranges import FreeRanges, extent, is_static, loops_of
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.normalize import index_roots
from tinygrad.codegen.optimize.split import Fit
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

MAX_PHASES = 8


def split_into_phases(nest: Nest) -> None:
    """Split the loops of a store whose sum has indices with their quotients by a few."""
    nodes = nest.root.toposort()
    if len(nest.stores) != 1 or not any(u.op is Ops.REDUCE for u in nodes):
        return
    quotients = [u for u in nodes if u.op in {Ops.IDIV, Ops.MOD}]
    if not quotients:
        return
    free = FreeRanges()
    factors = [x for root in index_roots(nodes) for x in affine(root).terms]
    for axis in loops_of(nest.stores[0]):
        inside = [x for x in quotients if axis in free[x]]
        phases = {_phases(x, axis) for x in inside}
        others = [x for x in factors if axis in free[x] and x is not axis]
        count = phases.pop() if len(phases) == 1 else 0
        if count and all(x in inside for x in others):
            nest.split(axis, count, AxisType.LOOP, Fit.BOUNDED)
            nest.note(f"loop {axis.arg.index} in {count} phases")


def _phases(quotient: UOp, axis: UOp) -> int:
    """The divisor of a quotient or remainder of `axis` plus a constant, if it divides the steps of
    the loop; else 0.
    """
    dividend, divisor = quotient.src
    if divisor.op is not Ops.CONST or affine(dividend).terms != {axis: 1} or not is_static(axis):
        return 0
    count = int(divisor.arg)
    divides = 1 < count <= MAX_PHASES and extent(axis) % count == 0
    return count if divides and extent(axis) > count else 0
