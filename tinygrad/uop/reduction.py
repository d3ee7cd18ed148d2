"""What reductions have in common, whether they go along axes or to the rows that an index names."""

from __future__ import annotations

from tinygrad.dtype import ConstType, DType, dtypes
from tinygrad.uop import Ops

SCATTER_REDUCE_OPS: dict[Ops, Ops] = {
    Ops.SCATTER_ADD: Ops.ADD,
    Ops.SCATTER_MUL: Ops.MUL,
    Ops.SCATTER_MAX: Ops.MAX,
}
"""How each scatter combines a row with what is there."""


def identity(op: Ops, dtype: DType) -> ConstType:
    """What changes nothing when it is combined with another value by `op`."""
    return {Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dtypes.min(dtype)}[op]
