"""An operand of a product as a tensor in memory, of which hardware copies boxes.

It is one load whose index is a sum of multiples of loops: each loop is a dimension. What lies past
the end of a loop is past the end of its dimension, and copied as zeros. Any other operand is copied
by the threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tinygrad.codegen.analysis.affine_index import affine
from tinygrad.codegen.analysis.ranges import extent, is_static
from tinygrad.codegen.optimize.threads.product.flat_axis import FlatAxis
from tinygrad.dtype import dtypes
from tinygrad.renderer.matrix_instruction import SWIZZLE_BYTES
from tinygrad.renderer.tensor_map import TensorMap
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


@dataclass(frozen=True)
class BulkSource:
    """A tensor in memory. Its dimensions are loops, that of contiguous elements first."""

    pointer: UOp
    loops: tuple[UOp, ...]
    map: TensorMap
    """Its box is one swizzled row of elements."""

    def box(self, coordinates: dict[UOp, UOp], rows: int) -> UOp:
        """The box of `rows` rows at these coordinates."""
        is_row = [x in coordinates for x in self.loops[1:]]
        sizes = (self.map.box[0], *(rows if x else 1 for x in is_row))
        places = (coordinates.get(x, x) for x in self.loops)
        return UOp(Ops.BOX, dtypes.void, (self.pointer, *places), replace(self.map, box=sizes))


def find_source(
    operand: UOp, outer: FlatAxis, reduction: FlatAxis, batch: Iterable[UOp]
) -> BulkSource | None:
    """The operand as a tensor in memory, or None if hardware cannot copy it."""
    if operand.op is not Ops.LOAD or len(operand.src) > 1 or len(operand.src[0].src) != 2:
        return None
    pointer, index = operand.src[0].src
    if pointer.op is not Ops.DEFINE_GLOBAL or len(outer.loops) + len(reduction.loops) > 2:
        return None
    form = affine(index)
    axes = {*outer.loops, *reduction.loops}
    if not axes <= form.terms.keys() <= axes.union(batch):
        return None
    terms = sorted(form.terms.items(), key=lambda x: x[1])
    loops = tuple(loop for loop, _ in terms)
    first, *strides = (stride for _, stride in terms)
    if first != 1 or loops[0] not in axes or not all(map(is_static, loops)):
        return None
    itemsize = operand.dtype.itemsize
    found = TensorMap(
        itemsize,
        form.constant * itemsize,
        tuple(map(extent, loops)),
        tuple(x * itemsize for x in strides),
        (SWIZZLE_BYTES // itemsize, *(1 for _ in strides)),
    )
    return BulkSource(pointer, loops, found) if found.can_be_encoded else None
