"""Chains of one movement op: reshapes of reshapes and permutes of permutes are one op.

Input: a movement op as op, source and argument. Output: the node of the same value without the op
of the same kind below it. Invariant: shape and dtype are kept; where a value is sharded, a reshape
may follow another layout (`comm/simplify.py`).
"""

from __future__ import annotations

from typing import Any

from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def is_chain(op: Ops, source: UOp) -> bool:
    """Whether an op and its source are movement that can be one op."""
    return op is source.op and (op is Ops.RESHAPE or op is Ops.PERMUTE)


def merged_chain(op: Ops, source: UOp, arg: Any) -> UOp:
    """The value of a movement op whose source `is_chain`: one op, or what it moves."""
    below = source.src[0]
    if op is Ops.PERMUTE:
        arg = tuple([source.arg[i] for i in arg])
        return below if arg == tuple(range(len(arg))) else UOp(op, below.dtype, (below,), arg)
    merged = UOp(op, below.dtype, (below,), arg)
    return below if merged.shape == below.shape else merged
