"""The nest of a matrix product: its operands, and its loops as rows, columns and a reduction.

In: a nest of plain loops. Out: a `Product`, if the nest is one contraction that is large enough for
tiles; no graph is changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.codegen.optimize.contraction import Contraction, find_contraction
from tinygrad.codegen.optimize.nest import Nest, points
from tinygrad.codegen.optimize.threads.product.block_tile import ProductSize
from tinygrad.codegen.optimize.threads.product.bulk_source import BulkSource, find_source
from tinygrad.codegen.optimize.threads.product.flat_axis import FlatAxis, contiguous_width, flatten
from tinygrad.dtype import dtypes
from tinygrad.renderer.matrix_instruction import MatrixInstruction, multiply_adds
from tinygrad.settings import ALLOW_TF32, TC
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# the shorter side of a product, below which most of a tile would be past its end
MIN_SIDE = 8
MIN_DEPTH = 8
MIN_LANES = 32


def find_product(nest: Nest) -> Product | None:
    """The nest as one matrix product, large enough for tiles, or None."""
    found = find_contraction(nest)
    product = None if found is None else as_product(found)
    if product is None or min(product.size.rows, product.size.columns) < MIN_SIDE:
        return None
    return product if product.size.depth >= MIN_DEPTH else None


@dataclass(frozen=True)
class Product:
    """A contraction as a batch of matrix products; `columns` is contiguous in the output."""

    store: UOp
    reduce: UOp
    operands: tuple[UOp, UOp]
    rows: FlatAxis
    columns: FlatAxis
    reduction: FlatAxis
    batch: tuple[UOp, ...]

    @property
    def size(self) -> ProductSize:
        """The size of the matrices, and their number."""
        axes = self.rows, self.columns, self.reduction
        rows, columns, depth = (x.max_size for x in axes)
        return ProductSize(rows, columns, depth, points(frozenset(self.batch)))

    def sources(self) -> tuple[BulkSource | None, ...]:
        """Both operands as tensors that hardware copies boxes of, where it can."""
        axes = self.rows, self.columns
        return tuple(
            find_source(unconverted(x), axis, self.reduction, self.batch)
            for x, axis in zip(self.operands, axes, strict=True)
        )

    def instructions(
        self, known: tuple[MatrixInstruction, ...], warp: int
    ) -> tuple[MatrixInstruction, ...]:
        """What can compute the product: matrix instructions if there are, else multiply-adds."""
        # lanes that exchange nothing need no warp
        return self.usable(known) or (multiply_adds(self.reduce.dtype, max(warp, MIN_LANES)),)

    def usable(self, known: tuple[MatrixInstruction, ...]) -> tuple[MatrixInstruction, ...]:
        """The matrix instructions that can compute the product, none with TC=0."""
        sources = {unconverted(x).dtype for x in self.operands}
        return tuple(
            x
            for x in known
            if TC
            and sources == {x.operand}
            and x.accumulator is self.reduce.dtype
            and (ALLOW_TF32 or not x.rounds_operands)
            and (x.held_side is None or x.orders == self._orders())
        )

    def _orders(self) -> tuple[bool, ...]:
        """Whether each operand that hardware copies is contiguous along the reduction."""
        return tuple(x is not None and x.loops[0] in self.reduction.loops for x in self.sources())


def as_product(found: Contraction) -> Product | None:
    """The contraction as a matrix product, or None if its sizes do not allow it."""
    if found.is_inner or len(found.sums) > 1:
        return None
    reduce, operands = found.sums[0].reduce, found.sums[0].operands
    if reduce.dtype not in {dtypes.float32, dtypes.float64, dtypes.int32}:
        return None
    free = found.free
    address = found.store.src[0]
    sides = [
        axis
        for loops, x in zip(found.axes, operands, strict=True)
        if (axis := flatten(loops, x, free)) is not None
    ]
    reduction = flatten(reduce.src[1:], operands[0], free)
    if len(sides) < 2 or reduction is None:
        return None
    columns = 0 if contiguous_width([address], sides[0], 2, free) > 1 else 1
    return Product(
        found.store,
        reduce,
        (operands[1 - columns], operands[columns]),
        sides[1 - columns],
        sides[columns],
        reduction,
        tuple(found.shared),
    )


def unconverted(operand: UOp) -> UOp:
    """The operand before a conversion from a narrow number, which matrix instructions do."""
    if operand.op is Ops.CAST:
        nbytes = {dtypes.float32: 2, dtypes.int32: 1}.get(operand.dtype)
        if operand.src[0].dtype.itemsize == nbytes:
            return operand.src[0]
    return operand
