"""Identity elements of reductions as constants of a kernel graph, and the blocks of long sums."""

from __future__ import annotations

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.reduction import identity


def identity_element(op: Ops, dtype: DType) -> UOp:
    """The identity element of a reduction by `op`."""
    scalar = dtype.scalar()
    return UOp(Ops.CONST, dtype, (), dtypes.as_const(identity(op, scalar), scalar))


MIN_BLOCK = 64
MAX_BLOCK = 128
"""The minimum steps of a block of a long sum, about the square root of all of them, and the maximum
steps of a sum that is one block.
"""


def steps_of_block(steps: int) -> int:
    """The steps of a block of a sum: all if they are few, else about the square root of them, since
    the rounding errors of one accumulator grow with its steps.
    """
    return steps if steps <= MAX_BLOCK else max(MIN_BLOCK, 1 << steps.bit_length() // 2)
