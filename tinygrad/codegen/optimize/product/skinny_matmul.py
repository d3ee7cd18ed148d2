"""Skinny matrix product with K-contiguous B: accumulators of all rows stay in registers.

Before: `out[m, n] = sum over k of a[m, k] * b[n, k]` with few rows m, as in decoding of a language
model. After: the loops over m are a register tile, innermost, so that each element of `b` is loaded
(and dequantized) once for all rows. Lanes are left to the reduction axis k, as in a matrix-vector
product; `b` is not packed.
"""

from __future__ import annotations

import math

from tinygrad.codegen.analysis.ranges import extent, is_static, loops_of
from tinygrad.codegen.optimize.contraction import Contraction
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.product.tiling import SLOW_OPERATIONS
from tinygrad.codegen.optimize.staging import is_contiguous
from tinygrad.uop.ops import AxisType, UOp

# outputs whose accumulators, several vectors each, fit the registers
MAX_SKINNY_OUTPUTS = 8


def tile_skinny_product(nest: Nest, contraction: Contraction) -> bool:
    """Make a register tile of the skinny side; returns whether the product is skinny."""
    for side in (0, 1):
        skinny = contraction.axes[side]
        if is_skinny(skinny) and not contraction.shared and is_k_contiguous(contraction, side):
            tile = [nest.set_kind(axis, AxisType.TILE) for axis in skinny]
            store = nest.stores[0]
            nest.reorder(store, [*[r for r in loops_of(store) if r not in tile], *tile])
            nest.note(f"skinny tile of {math.prod(map(extent, tile))} outputs")
            return True
    return False


def is_skinny(axes: list[UOp]) -> bool:
    """Whether the accumulators of all outputs along some axes fit the registers."""
    return all(map(is_static, axes)) and 1 < math.prod(map(extent, axes)) <= MAX_SKINNY_OUTPUTS


def is_k_contiguous(contraction: Contraction, side: int) -> bool:
    """Whether no operand of the wide side is contiguous along an output axis.

    The operand of the skinny side is computed again for each wide output, so it must be cheap, and
    contiguous along the reduction, which becomes lanes.
    """
    for x in contraction.sums:
        skinny, wide = x.operands[side], x.operands[1 - side]
        if any(u.op in SLOW_OPERATIONS for u in skinny.toposort()):
            return False
        if not is_contiguous(skinny, x.reduce.src[-1], contraction.free):
            return False
        if any(is_contiguous(wide, axis, contraction.free) for axis in contraction.axes[1 - side]):
            return False
    return True
