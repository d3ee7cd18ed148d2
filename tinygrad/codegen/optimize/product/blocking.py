"""Block a long reduction: partial sums of each block accumulate in scratch memory.

Before: `store(f(sum over outer, inner of value))` over some loops. After, with an element of
scratch memory `acc` for each step of the loops `outputs`:

    for outputs: acc = 0
    for outer: for outputs: acc += sum over inner of value
    for outputs: store(f(acc))

Several sums that are added are one: the second step is repeated for each of them. The operands of
one block can then be staged, and stay in cache while all outputs use them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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
    total: UOp,
    reduces: Sequence[tuple[UOp, list[UOp]]],
    outputs: list[UOp],
    factory: RangeFactory,
    number: int,
) -> UOp:
    """The store, with `total` accumulated in scratch memory number `number`.

    `total` is a reduction or a sum of some; `reduces` are these, each with its `outer` loops.
    """
    op, dtype = reduces[0][0].arg, total.dtype
    pointer = dtype.ptr(math.prod(extent(r) for r in outputs), AddrSpace.LOCAL)
    scratch = UOp(Ops.DEFINE_LOCAL, pointer, (), number)
    context = sorted(FreeRanges()[total].difference(outputs), key=lambda r: int(r.arg.index))

    cleared = clone_ranges(outputs, factory)
    start = scratch.after(*context) if context else scratch
    last = start.index(row_major_index(cleared)).store(identity_element(op, dtype), *cleared)

    for reduce, outer in reduces:
        inner = [r for r in loops_of(reduce) if r not in outer]
        loops = clone_ranges(outputs, factory)
        table = dict(zip(outputs, loops, strict=True))
        block = substitute(reduce.src[0], table).reduce(*inner, arg=op)
        current = scratch.after(last, *outer).index(row_major_index(loops))
        updated = UOp(op, dtype, (current.load(dtype=dtype), block))
        last = current.store(updated, *outer, *loops)

    done = scratch.after(last).index(row_major_index(outputs))
    return store.substitute({total: done.load(dtype=dtype)})
