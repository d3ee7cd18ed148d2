"""Stage an operand: pack it into scratch memory, to be read many times.

Before: an expression over `axes` and outer loops. After: a load from scratch memory, laid out in
the order of `axes`, after a nest over clones of `axes` that computes and stores the expression. The
nest is placed in the innermost loop that the expression depends on besides `axes`: a panel that
depends on none is packed once per call.
"""

from __future__ import annotations

import math

from tinygrad.codegen.analysis.accesses import index_of
from tinygrad.codegen.analysis.ranges import (
    FreeRanges,
    RangeFactory,
    clone_ranges,
    extent,
    is_static,
    loops_of,
    substitute,
    with_loops,
)
from tinygrad.codegen.optimize.split import Fit, split_axis
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

# steps of a contiguous axis that pay for scattered stores
MIN_STEPS = 8
MIN_LANES = 4
# of the widest vectors; a narrower machine uses several for each
VECTOR_BYTES = 64


def row_major_index(axes: list[UOp], padding: int = 0) -> UOp:
    """The row-major index of a step of some loops, with rows padded by `padding` elements."""
    index: UOp = UOp.const(dtypes.index, 0)
    stride = 1
    for axis in reversed(axes):
        term = axis if stride == 1 else axis * stride
        index = term if index.op is Ops.CONST else term + index
        stride *= extent(axis)
        if axis is axes[-1]:
            stride += padding
    return index


def stage(
    operand: UOp,
    axes: list[UOp],
    factory: RangeFactory,
    number: int,
    padding: int = 0,
    order: list[UOp] | None = None,
) -> UOp:
    """The operand, loaded from scratch memory number `number`. The last axis is contiguous.

    The memory is filled in the `order` of the axes, if one is given.
    """
    size = math.prod(extent(r) for r in axes[:-1]) * (extent(axes[-1]) + padding)
    scratch = UOp(Ops.DEFINE_LOCAL, operand.dtype.ptr(size, AddrSpace.LOCAL), (), number)
    fill = fill_nest(scratch, operand, axes, factory, padding, order)
    return scratch.after(fill).index(row_major_index(axes, padding)).load(dtype=operand.dtype)


def fill_nest(
    scratch: UOp,
    operand: UOp,
    axes: list[UOp],
    factory: RangeFactory,
    padding: int = 0,
    order: list[UOp] | None = None,
) -> UOp:
    """The nest that fills the scratch memory, vectorized along a contiguous axis of the operand."""
    clones = clone_ranges(axes, factory, AxisType.LOOP)
    table = dict(zip(axes, clones, strict=True))
    free = FreeRanges()
    lane = axes[-1]
    along = lane
    if not is_contiguous(operand, lane, free):
        # without a long contiguous axis, the loads are gathers
        along = contiguous_axis(operand, axes, free, lane)
    place = scratch.index(row_major_index(clones, padding))
    store = place.store(substitute(operand, table), *(table[r] for r in order or axes))
    return vectorize_fill(store, table[along], factory)


def vectorize_fill(store: UOp, along: UOp, factory: RangeFactory) -> UOp:
    """Vectorize a store along one loop, which becomes the innermost."""
    lanes = packed_lanes(store.src[1])
    while lanes > 1 and lanes >= 2 * extent(along):
        lanes //= 2
    lanes = _contiguous_lanes(store.src[1], along, lanes)
    if lanes < MIN_LANES:
        return store
    # a vector that overlaps the one before needs no mask, which many CPUs store slowly
    fits = is_static(along) and extent(along) >= lanes
    fit = Fit.OVERLAP if fits else Fit.MASKED
    root, outer, inner = split_axis(UOp.sink(store), along, lanes, AxisType.VECTOR, factory, fit)
    store = root.src[0]
    loops = [r for r in loops_of(store) if r is not inner]
    if outer is not None and loops[-1] is not outer:
        # interchanged, so that what is loaded and stored stays in the first-level cache
        loops.remove(outer)
        loops.insert(max(0, len(loops) - 2), outer)
    return with_loops(store, [*loops, inner])


def _contiguous_lanes(value: UOp, axis: UOp, lanes: int) -> int:
    """So many lanes, or fewer if only then every load has stride 1 or 0 between them."""
    free, width = FreeRanges(), lanes
    indices = [index_of(u) for u in value.toposort() if u.op is Ops.LOAD]
    while width >= MIN_LANES and is_static(axis) and extent(axis) % width == 0:
        if all(free.lane_stride(index, axis, width) in {0, 1} for index in indices):
            return width
        width //= 2
    return lanes


def is_contiguous(operand: UOp, axis: UOp, free: FreeRanges) -> bool:
    """Whether every load of the operand has stride 1 or 0 along `axis`."""
    lanes = packed_lanes(operand)
    return all(
        free.lane_stride(index_of(u), axis, lanes) in {0, 1}
        for u in operand.toposort()
        if u.op is Ops.LOAD
    )


def packed_lanes(operand: UOp) -> int:
    """The number of elements of an operand in a vector."""
    return VECTOR_BYTES // max(2, operand.dtype.itemsize)


def contiguous_axis(operand: UOp, axes: list[UOp], free: FreeRanges, default: UOp) -> UOp:
    """The innermost long reduction axis along which the operand is contiguous, or `default`."""
    for axis in reversed(axes[:-1]):
        long_enough = axis.arg.kind is AxisType.REDUCE and extent(axis) >= MIN_STEPS
        if long_enough and is_contiguous(operand, axis, free):
            return axis
    return default
