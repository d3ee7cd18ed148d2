"""A few rows times a matrix whose rows lie along the terms, as where a language model writes.

Before: `out[few, many] = sum over terms of a[few, term] * b[many, term]`. After: the few loops are
a register tile, inside all others, so that each value of `b` is read, and computed, once for all of
them. Lanes are left to be terms, as for a single row; the matrix stays where it is.
"""

from __future__ import annotations

import math

from tinygrad.codegen.nest import Nest
from tinygrad.codegen.ranges import extent, is_static
from tinygrad.codegen.staging import is_contiguous
from tinygrad.codegen.tiling import LONG_OPERATIONS, Contraction
from tinygrad.uop.ops import AxisType, UOp

# so many sums of several vectors each are in registers
MAX_SHARING = 8


def share_terms(nest: Nest, found: Contraction) -> bool:
    """Make a register tile of a few outputs; returns whether that is for the best."""
    for side in (0, 1):
        few = found.axes[side]
        if is_few(few) and not found.shared and reads_along_terms(found, side):
            tile = [nest.set_kind(axis, AxisType.TILE) for axis in few]
            store = nest.stores[0]
            nest.reorder(store, [*[r for r in store.src[2:] if r not in tile], *tile])
            nest.note(f"tile of {math.prod(map(extent, tile))} outputs that share terms")
            return True
    return False


def is_few(axes: list[UOp]) -> bool:
    """Whether the outputs of some axes are few enough to keep all their sums."""
    return all(map(is_static, axes)) and 1 < math.prod(map(extent, axes)) <= MAX_SHARING


def reads_along_terms(found: Contraction, side: int) -> bool:
    """Whether the operand of the many outputs cannot be read along these.

    The other one is computed again for each of the many, so it must cost little.
    """
    few, many = found.operands[side], found.operands[1 - side]
    if any(u.op in LONG_OPERATIONS for u in few.toposort()):
        return False
    return not any(is_contiguous(many, axis, found.free) for axis in found.axes[1 - side])
