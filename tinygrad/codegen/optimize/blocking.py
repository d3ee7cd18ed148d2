"""Block a long reduction: partial sums of each block accumulate in scratch memory.

Before: `store(f(sum over outer, inner of value))` over some loops. After, with scratch memory `acc`
that has an element for each step of the loops `outputs`:

    for outputs: acc = 0
    for outer: for outputs: acc += sum over inner of value
    for outputs: store(f(acc))

The operands of one block can then be staged, and stay in cache while all outputs use them.
"""

from __future__ import annotations

import math

from tinygrad.codegen.analysis.identity import identity_element
from tinygrad.codegen.analysis.ranges import (
    FreeRanges,
    RangeFactory,
    clone_ranges,
    extent,
    loops_of,
    substitute,
)
from tinygrad.codegen.optimize.staging import row_major_index
from tinygrad.dtype import AddrSpace
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def accumulate_in_memory(
    store: UOp,
    reduce: UOp,
    outer: list[UOp],
    outputs: list[UOp],
    factory: RangeFactory,
    number: int,
) -> UOp:
    """The store, with `reduce` blocked and read from scratch memory number `number`."""
    op, dtype = reduce.arg, reduce.dtype
    inner = [r for r in loops_of(reduce) if r not in outer]
    pointer = dtype.ptr(math.prod(extent(r) for r in outputs), AddrSpace.LOCAL)
    scratch = UOp(Ops.DEFINE_LOCAL, pointer, (), number)
    context = sorted(FreeRanges()[reduce].difference(outputs), key=lambda r: int(r.arg.index))

    cleared = clone_ranges(outputs, factory)
    start = scratch.after(*context) if context else scratch
    clear = start.index(row_major_index(cleared)).store(identity_element(op, dtype), *cleared)

    loops = clone_ranges(outputs, factory)
    table = dict(zip(outputs, loops, strict=True))
    block = substitute(reduce.src[0], table).reduce(*inner, arg=op)
    current = scratch.after(clear, *outer).index(row_major_index(loops))
    update = current.store(UOp(op, dtype, (current.load(dtype=dtype), block)), *outer, *loops)

    done = scratch.after(update).index(row_major_index(outputs))
    return store.substitute({reduce: done.load(dtype=dtype)})
