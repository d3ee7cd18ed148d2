"""Estimates of the operations and memory traffic of a kernel, from the sizes of its loops."""

from __future__ import annotations

import math

from tinygrad.codegen.analysis.affine_index import affine
from tinygrad.codegen.analysis.ranges import FreeRanges, loops_of
from tinygrad.dtype import PtrDType, dtypes
from tinygrad.renderer import Estimates
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, sint


def estimate(sink: UOp) -> Estimates:
    """The estimates of a kernel graph, before its loops are transformed.

    A node runs once for each step of the loops it depends on. Index arithmetic is not counted.
    The traffic of a buffer is at most the bytes accessed, as in a gather from a large table, or in
    one of several views of quantised blocks.
    """
    free = FreeRanges()
    flops: sint = 0
    loaded: sint = 0
    stored: sint = 0
    accessed: dict[UOp, sint] = {}
    for u in sink.toposort():
        if u.op is Ops.LOAD:
            loaded = _times(free[u]) * u.dtype.itemsize + loaded
            nbytes = _elements(u.src[0].src[1], free) * u.dtype.itemsize
            _add(accessed, u.src[0].src[0], nbytes)
        elif u.op is Ops.STORE:
            nbytes = _times(free[u.src[1]].union(loops_of(u))) * u.src[1].dtype.itemsize
            stored = nbytes + stored
            _add(accessed, u.src[0].src[0], nbytes)
        elif u.op is Ops.REDUCE:
            flops = _times(free[u.src[0]].union(loops_of(u))) + flops
        elif u.op in GroupOp.ALU and u.dtype is not dtypes.index:
            per_point = 2 if u.op is Ops.MULACC else 1
            if not dtypes.is_bool(u.dtype):
                flops = _times(free[u]) * per_point + flops
    memory = sum(_traffic(u, nbytes) for u, nbytes in accessed.items())
    return Estimates(_simple(flops), _simple(loaded), _simple(stored), memory)


def _elements(index: UOp, free: FreeRanges) -> sint:
    """An upper bound of the number of different elements that an index names."""
    steps = _times(free[index])
    if not isinstance(steps, int):
        return steps
    factors = affine(index).terms
    return min(steps, math.prod(int(x.vmax) - int(x.vmin) + 1 for x in factors))


def _add(table: dict[UOp, sint], pointer: UOp, nbytes: sint) -> None:
    table[pointer] = nbytes + table.get(pointer, 0)


def _traffic(pointer: UOp, accessed: sint) -> int:
    """The memory traffic of a buffer, assuming that repeated accesses hit a cache."""
    assert isinstance(pointer.dtype, PtrDType)
    size = pointer.dtype.nbytes()
    return min(size, accessed) if isinstance(accessed, int) else size


def _times(ranges: frozenset[UOp]) -> sint:
    static = math.prod(int(r.src[0].arg) for r in ranges if r.src[0].op is Ops.CONST)
    total: sint = static
    for r in sorted(ranges, key=lambda r: int(r.arg.index)):
        if r.src[0].op is not Ops.CONST:
            total = r.src[0] * total
    return total


def _simple(value: sint) -> sint:
    return value.ssimplify() if isinstance(value, UOp) else value
