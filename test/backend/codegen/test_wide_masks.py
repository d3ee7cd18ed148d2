"""Masked loads that are wider than a register become one load for each register."""

from test.backend.codegen.kernels import buffer
from test.devices import only_cpu
from tinygrad.codegen.lower.wide_masks import masked_lanes, select_lanes
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

pytestmark = only_cpu
MASK = dtypes.bool.vec(16)
VALID = tuple(2 <= lane < 10 for lane in range(16))


def load(valid: UOp) -> UOp:
    first = UOp.const(dtypes.index, 4)
    where = UOp(Ops.INDEX, dtypes.float32.ptr(64), (buffer(0, 64), first, valid))
    return UOp(Ops.LOAD, dtypes.float32.vec(16), (where,))


def test_each_register_has_the_mask_of_its_own_lanes() -> None:
    condition = UOp.variable("n", 0, 9).alu(Ops.CMPLT, UOp.const(dtypes.index, 5))
    splat = UOp(Ops.VECTORIZE, MASK, (condition,))
    lanes = masked_lanes(load(splat & UOp(Ops.CONST, MASK, (), VALID)), 32)
    assert lanes is not None
    assert [lane.arg for lane in lanes] == [*range(8), *range(8)]
    for start in (0, 8):
        (part,) = {lane.src[0] for lane in lanes[start : start + 8]}
        assert part.dtype == dtypes.float32.vec(8)
        _, first, valid = part.src[0].src
        assert (first.vmin, first.vmax) == (4 + start, 4 + start)
        assert [x.op for x in valid.src] == [Ops.VECTORIZE, Ops.CONST]
        assert valid.src[0].src == (condition,)
        assert valid.src[1].arg == VALID[start : start + 8]


def test_a_load_of_one_register_or_with_one_condition_stays() -> None:
    assert masked_lanes(load(UOp(Ops.CONST, MASK, (), VALID)), 64) is None
    condition = UOp.variable("n", 0, 9).alu(Ops.CMPLT, UOp.const(dtypes.index, 5))
    assert masked_lanes(load(condition), 32) is None


def test_selected_lanes_are_computed_from_those_of_the_sources() -> None:
    numbers = UOp(Ops.CONST, dtypes.int32.vec(4), (), (10, 11, 12, 13))
    variable = UOp(Ops.DEFINE_VAR, dtypes.int32.vec(4), (), ("v", 0, 9))
    shuffled = UOp(Ops.GEP, dtypes.int32.vec(4), (variable + numbers,), (3, 3, 1, 0))
    chosen = select_lanes(shuffled, (0, 2))
    assert chosen.op is Ops.ADD and chosen.dtype == dtypes.int32.vec(2)
    assert chosen.src[0].op is Ops.GEP and chosen.src[0].arg == (3, 1)
    assert chosen.src[1].arg == (13, 11)
