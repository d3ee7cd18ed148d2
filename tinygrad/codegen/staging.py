"""Copy an operand to scratch memory before it is read many times.

Before: an expression over `axes` and outer loops. After: a load from scratch memory, in the order
of `axes`, after a store nest over clones of `axes` that computes the expression. The nest stands in
the innermost loop that the expression depends on besides `axes`: a panel that depends on none is
filled once for a whole call.
"""

from __future__ import annotations

import math

from tinygrad.codegen.ranges import (
    FreeRanges,
    RangeFactory,
    extent,
    substitute,
)
from tinygrad.codegen.split import Fit, split_axis
from tinygrad.dtype import AddrSpace, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp

# the steps of a contiguous axis that make scattering worth while
MIN_STEPS = 8
MIN_LANES = 4
# of the widest vectors; narrower machines take several
VECTOR_BYTES = 64


def position_of(axes: list[UOp], padding: int = 0) -> UOp:
    """The row-major position of a point of some loops; the innermost rows are `padding` longer."""
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
    operand: UOp, axes: list[UOp], factory: RangeFactory, number: int, padding: int = 0
) -> UOp:
    """The operand read back from scratch memory number `number`. The last of `axes` are the
    lanes."""
    size = math.prod(extent(r) for r in axes[:-1]) * (extent(axes[-1]) + padding)
    scratch = UOp(Ops.DEFINE_LOCAL, operand.dtype.ptr(size, AddrSpace.LOCAL), (), number)
    fill = fill_nest(scratch, operand, axes, factory, padding)
    ready = UOp(Ops.AFTER, scratch.dtype, (scratch, fill))
    return ready.index(position_of(axes, padding)).load(dtype=operand.dtype)


def fill_nest(
    scratch: UOp, operand: UOp, axes: list[UOp], factory: RangeFactory, padding: int
) -> UOp:
    """The store nest that fills the scratch memory, with lanes along whatever is contiguous."""
    clones: list[UOp] = []
    for r in axes:
        size = substitute(r.src[0], dict(zip(axes, clones, strict=False)))
        clones.append(factory.new(size, AxisType.LOOP))
    table = dict(zip(axes, clones, strict=True))
    free = FreeRanges()
    lane = axes[-1]
    along = lane
    if not is_contiguous(operand, lane, free):
        # without a long contiguous axis, the lanes are gathered
        along = contiguous_axis(operand, axes, free, lane)
    place = scratch.index(position_of(clones, padding))
    store = place.store(substitute(operand, table), *clones)
    return vectorize_fill(store, table[along], factory)


def vectorize_fill(store: UOp, along: UOp, factory: RangeFactory) -> UOp:
    """Make vectors of neighbours along one loop, the innermost of all then."""
    lanes = lanes_of(store.src[1])
    while lanes > 1 and lanes >= 2 * extent(along):
        lanes //= 2
    if lanes < MIN_LANES:
        return store
    root, outer, inner = split_axis(
        UOp.sink(store), along, lanes, AxisType.VECTOR, factory, Fit.MASKED
    )
    store = root.src[0]
    own = [r for r in store.src[2:] if r is not inner]
    if outer is not None and own[-1] is not outer:
        # a block of terms of every lane: what is loaded and written stays in the first-level cache
        own.remove(outer)
        own.insert(max(0, len(own) - 2), outer)
    return store.replace(src=(*store.src[:2], *own, inner))


def is_contiguous(operand: UOp, axis: UOp, free: FreeRanges) -> bool:
    """Whether every load of the operand reads neighbours, or one element, along `axis`."""
    lanes = lanes_of(operand)
    return all(
        free.lane_stride(u.src[0].src[1], axis, lanes) in {0, 1}
        for u in operand.toposort()
        if u.op is Ops.LOAD
    )


def lanes_of(operand: UOp) -> int:
    """How many elements of an operand a vector has."""
    return VECTOR_BYTES // max(2, operand.dtype.itemsize)


def contiguous_axis(operand: UOp, axes: list[UOp], free: FreeRanges, default: UOp) -> UOp:
    """The innermost axis along which the operand is contiguous and long enough, or `default`."""
    for axis in reversed(axes[:-1]):
        long_enough = axis.arg.kind is AxisType.REDUCE and extent(axis) >= MIN_STEPS
        if long_enough and is_contiguous(operand, axis, free):
            return axis
    return default
