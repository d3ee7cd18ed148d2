"""Scalar expressions over variables, each variable an array of the values it takes."""

from __future__ import annotations

import numpy as np

from test.evaluator.arithmetic import Array, elementwise
from tinygrad.dtype import DType, dtypes, to_numpy_dtype
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def variable(name: str, dtype: DType) -> UOp:
    """A leaf that stands for an array."""
    return UOp(Ops.DEFINE_VAR, dtype, (), (name, dtypes.min(dtype), dtypes.max(dtype)))


def evaluate(expression: UOp, **arrays: Array) -> Array:
    """The values of a scalar expression, its variables taken from `arrays`."""
    values: dict[UOp, Array] = {}
    with np.errstate(all="ignore"):
        for node in expression.toposort():
            if node.op is Ops.DEFINE_VAR:
                values[node] = arrays[node.arg[0]]
                assert values[node].dtype == to_numpy_dtype(node.dtype)
            else:
                values[node] = elementwise(node, [values[x] for x in node.src])
    return values[expression]
