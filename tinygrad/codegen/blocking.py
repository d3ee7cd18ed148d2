"""Cut a long sum in blocks that add into scratch memory.

Before: `store(f(sum over outside, inside of value))` over some loops. After, with `[]` scratch
memory that has an element for each point of the loops `moved`:

    for moved: [] = 0
    for outside: for moved: [] += sum over inside of value
    for moved: store(f([]))

What one block of terms reads can then be staged, and stays in cache while all outputs use it.
"""

from __future__ import annotations

import math

from tinygrad.codegen.accumulate import identity_element
from tinygrad.codegen.ranges import FreeRanges, RangeFactory, extent, substitute
from tinygrad.codegen.staging import position_of
from tinygrad.dtype import AddrSpace
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def accumulate_in_memory(
    store: UOp,
    reduce: UOp,
    outside: list[UOp],
    moved: list[UOp],
    factory: RangeFactory,
    number: int,
) -> UOp:
    """The store whose `reduce` is read from scratch memory number `number`."""
    op, dtype = reduce.arg, reduce.dtype
    inside = [r for r in reduce.src[1:] if r not in outside]
    pointer = dtype.ptr(math.prod(extent(r) for r in moved), AddrSpace.LOCAL)
    scratch = UOp(Ops.DEFINE_LOCAL, pointer, (), number)
    context = sorted(FreeRanges()[reduce].difference(moved), key=lambda r: int(r.arg.index))

    cleared = clone(moved, factory)
    start = UOp(Ops.AFTER, pointer, (scratch, *context)) if context else scratch
    clear = start.index(position_of(cleared)).store(identity_element(op, dtype), *cleared)

    loops = clone(moved, factory)
    table = dict(zip(moved, loops, strict=True))
    block = substitute(reduce.src[0], table).reduce(*inside, arg=op)
    current = UOp(Ops.AFTER, pointer, (scratch, clear, *outside)).index(position_of(loops))
    update = current.store(UOp(op, dtype, (current.load(dtype=dtype), block)), *outside, *loops)

    done = UOp(Ops.AFTER, pointer, (scratch, update)).index(position_of(moved))
    return store.substitute({reduce: done.load(dtype=dtype)})


def clone(axes: list[UOp], factory: RangeFactory) -> list[UOp]:
    """New loops of the same sizes, also where one's size depends on another."""
    clones: list[UOp] = []
    for r in axes:
        size = substitute(r.src[0], dict(zip(axes, clones, strict=False)))
        clones.append(factory.new(size, r.arg.kind))
    return clones
