"""Identity elements of reductions as constants of a kernel graph."""

from __future__ import annotations

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.reduction import identity


def identity_element(op: Ops, dtype: DType) -> UOp:
    """The identity element of a reduction by `op`."""
    scalar = dtype.scalar()
    return UOp(Ops.CONST, dtype, (), dtypes.as_const(identity(op, scalar), scalar))
