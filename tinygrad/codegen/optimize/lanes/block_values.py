"""Compute what a block of steps of a reduction has in common once, before the reduction.

Before: `sum over k of x[k] * (q[n, k] * s(n, k / 32) - m(n, k / 32))`, as in a product with a
quantised matrix, whose scales are decoded from packed bits. After: a nest computes the `s` and `m`
of row n, vectorized along the blocks, into scratch memory, from which vectors of the reduction
broadcast them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tinygrad.codegen.analysis.ranges import FreeRanges, extent, is_static, loops_of, substitute
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.staging import stage
from tinygrad.dtype import dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import AxisType, UOp

# steps of a block, at least a vector of them
BLOCK_STEPS = (256, 128, 64, 32, 16)
# values of a row stay in the first-level cache
MIN_BLOCKS, MAX_BLOCKS = 8, 1 << 12
# operations of a value that is cheaper to load
MIN_OPERATIONS = 3
MAX_VALUES = 4


def stage_block_values(nest: Nest, axis: UOp) -> None:
    """Stage the values of output loops that are equal in blocks of a reduction `axis`."""
    if not is_static(axis):
        return
    free = FreeRanges()
    loops = {r for store in nest.stores for r in loops_of(store)}
    roots = [u.src[0] for u in nest.root.toposort() if u.op is Ops.REDUCE and axis in loops_of(u)]
    found: dict[UOp, UOp] = {}
    for value in _values_of_blocks(roots, axis, loops, free):
        if len(found) == MAX_VALUES:
            break
        for steps in BLOCK_STEPS:
            staged = _staged(nest, value, axis, steps)
            if staged is not None:
                found[value] = staged
                break
    if found:
        nest.root = nest.root.substitute(found)
        nest.note(f"{len(found)} values of blocks of loop {axis.arg.index} kept")


def _values_of_blocks(
    roots: list[UOp], axis: UOp, loops: set[UOp], free: FreeRanges
) -> Iterator[UOp]:
    """Values that may be equal in blocks, outermost first; none is inside of another."""
    stack, seen = [*roots], set(roots)
    while stack:
        u = stack.pop()
        if u.op is Ops.LOAD or axis not in free[u]:
            continue
        if _may_be_equal(u, axis) and not loops.isdisjoint(free[u]):
            yield u
            continue
        for x in u.src:
            if x not in seen and x.dtype is not dtypes.index:
                seen.add(x)
                stack.append(x)


def _may_be_equal(u: UOp, axis: UOp) -> bool:
    """Whether a value of several operations uses the axis in quotients alone."""
    if not dtypes.is_float(u.dtype):
        return False
    nodes = u.toposort()
    operations = sum(x.op in GroupOp.Elementwise and x.dtype is not dtypes.index for x in nodes)
    if operations < MIN_OPERATIONS or any(x.op is Ops.REDUCE for x in nodes):
        return False
    return all(x.op is Ops.IDIV for x in nodes if axis in x.src)


def _staged(nest: Nest, value: UOp, axis: UOp, steps: int) -> UOp | None:
    """The load of a staged value, if it is equal in all blocks of so many steps."""
    count = extent(axis) // steps
    if extent(axis) % steps or not MIN_BLOCKS <= count <= MAX_BLOCKS:
        return None
    block = nest.factory.new(count, AxisType.LOOP)
    inside = nest.factory.new(steps, AxisType.LOOP)
    of_block = substitute(value, {axis: block * steps + inside})
    if inside in FreeRanges()[of_block]:
        return None
    staged = stage(of_block, [block], nest.factory, nest.factory.number())
    quotient = UOp(Ops.IDIV, dtypes.index, (axis, UOp.const(dtypes.index, steps)))
    return substitute(staged, {block: quotient})
