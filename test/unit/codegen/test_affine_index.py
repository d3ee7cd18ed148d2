"""Simplification of index arithmetic by affine forms."""

from __future__ import annotations

from tinygrad.codegen.analysis.affine_index import simplify_division
from tinygrad.codegen.analysis.ranges import RangeFactory
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp


def test_a_vector_in_a_block_of_overlapping_ones_has_one_quotient() -> None:
    factory = RangeFactory([])
    block, lane = factory.new(18, AxisType.LOOP), factory.new(8, AxisType.VECTOR)
    start = (block < 17).where(block * 56, UOp.const(dtypes.index, 944))
    quotient, rest = (
        simplify_division(UOp(op, dtypes.index, (start + lane, UOp.const(dtypes.index, 32))))
        for op in (Ops.IDIV, Ops.MOD)
    )
    assert lane not in quotient.toposort()
    assert rest.op is Ops.ADD
    assert rest.src[1] is lane
