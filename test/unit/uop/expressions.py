"""Hypothesis strategies for random expressions, and all values of their variables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from test.evaluator.arithmetic import Array
from tinygrad.dtype import DType, dtypes, to_numpy_dtype
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Draw = Callable[[st.SearchStrategy[Any]], Any]

NAMES = ("a", "b", "c")

EXTREMES: dict[DType, list[Any]] = {
    dtypes.float32: [0.0, -0.0, 1.0, -1.0, 0.1, 2.5, 3e38, -3e38, 1e-40, np.inf, -np.inf, np.nan],
    dtypes.int32: [0, 1, -1, 2, -2, 7, 1 << 30, (1 << 31) - 1, -(1 << 31) + 1],
    dtypes.uint8: [0, 1, 2, 3, 127, 128, 254, 255],
    dtypes.bool: [False, True],
}
"""Values that rules for a dtype are most likely to get wrong."""


@st.composite
def bounded_variables(draw: Draw) -> list[UOp]:
    """Three index variables with small ranges."""
    made = []
    for name in NAMES:
        low = draw(st.sampled_from([0, 0, 0, 1, -2]))
        made.append(UOp.variable(name, low, low + draw(st.integers(1, 5))))
    return made


def all_values(variables: list[UOp]) -> dict[str, Array]:
    """Every combination of values of bounded variables, as one array for each."""
    spans = [range(v.vmin, v.vmax + 1) for v in variables]
    table = np.array(list(itertools.product(*spans)), dtype=np.int64)
    return {v.expr: table[:, i] for i, v in enumerate(variables)}


def extreme_values(dtype: DType) -> dict[str, Array]:
    """Every combination of the extreme values of a dtype, as one array for each name."""
    table = np.array(list(itertools.product(EXTREMES[dtype], repeat=len(NAMES))))
    return {name: table[:, i].astype(to_numpy_dtype(dtype)) for i, name in enumerate(NAMES)}


class _Grower:
    """Draws expressions. Choices are drawn one by one, which is faster than nested strategies."""

    def __init__(self, draw: Draw, variables: list[UOp]) -> None:
        self.draw = draw
        self.variables = variables

    def choose(self, options: Sequence[Any]) -> Any:
        return options[self.draw(_CHOICES[len(options)])]

    def index(self, depth: int) -> UOp:
        """Index arithmetic: sums, multiples, quotients and remainders by constants, MAX, WHERE."""
        op = self.choose(_INDEX_OPS) if depth else None
        if op is None:
            return self.choose([*self.variables, *self.variables, *_INDEX_CONSTANTS])
        first = self.index(depth - 1)
        if op in {Ops.MUL, Ops.IDIV, Ops.MOD}:
            return first.alu(op, self.choose(_INDEX_FACTORS))
        second = self.index(depth - 1)
        return (
            self.condition(depth - 1).where(first, second)
            if op is Ops.WHERE
            else first.alu(op, second)
        )

    def condition(self, depth: int) -> UOp:
        """Comparisons of index expressions, combined by AND, OR and negation."""
        op = self.choose(_CONDITION_OPS) if depth else self.choose(_COMPARISONS)
        if op in _COMPARISONS:
            return self.index(min(depth, 2)).alu(op, self.index(min(depth, 2)))
        first = self.condition(depth - 1)
        return first.logical_not() if op is None else first.alu(op, self.condition(depth - 1))

    def value(self, depth: int) -> UOp:
        """Elementwise arithmetic on values of the variables' dtype, constants included."""
        dtype = self.variables[0].dtype
        constants = [UOp.const(dtype, x) for x in EXTREMES[dtype]]
        op = self.choose([*_VALUE_OPS[dtype], None, Ops.WHERE]) if depth else None
        if op is None:
            return self.choose([*self.variables, *self.variables, *constants])
        first = self.value(depth - 1)
        second = self.value(depth - 1) if self.choose((True, False)) else self.choose(constants)
        if op is not Ops.WHERE:
            return first.alu(op, second)
        condition = self.value(depth - 1).alu(self.choose(_COMPARISONS), self.value(depth - 1))
        condition = condition.logical_not() if self.choose((True, False)) else condition
        return condition.where(first, second)


@st.composite
def index_expressions(draw: Draw, variables: list[UOp], depth: int = 4) -> UOp:
    """Index arithmetic on `variables`."""
    return _Grower(draw, variables).index(depth)


@st.composite
def conditions(draw: Draw, variables: list[UOp], depth: int = 3) -> UOp:
    """Conditions on index arithmetic on `variables`."""
    return _Grower(draw, variables).condition(depth)


@st.composite
def value_expressions(draw: Draw, variables: list[UOp], depth: int = 3) -> UOp:
    """Elementwise arithmetic on `variables`, all of one dtype."""
    return _Grower(draw, variables).value(depth)


_CHOICES = [st.integers(0, max(0, count - 1)) for count in range(32)]
_INDEX_CONSTANTS = [UOp.const(dtypes.index, x) for x in (0, 1, 2, 3, 5, 7, 8, -1, -4)]
_INDEX_FACTORS = [UOp.const(dtypes.index, x) for x in (2, 3, 4, 5, 6, 8, 12, -1, -2, -3)]
_INDEX_OPS = (
    *(None, Ops.ADD, Ops.ADD, Ops.ADD, Ops.MUL, Ops.MUL, Ops.IDIV, Ops.IDIV),
    *(Ops.MOD, Ops.MOD, Ops.MAX, Ops.SUB, Ops.WHERE),
)
_COMPARISONS = (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ)
# None is negation
_CONDITION_OPS = (*_COMPARISONS, Ops.CMPLT, None, Ops.AND, Ops.AND, Ops.OR)
_SHARED = [Ops.ADD, Ops.MUL, Ops.MAX]
_BITS = [Ops.AND, Ops.OR, Ops.XOR]
_VALUE_OPS = {
    dtypes.float32: [*_SHARED, Ops.SUB, Ops.FDIV],
    dtypes.int32: [*_SHARED, *_BITS, Ops.SUB],
    dtypes.uint8: [*_SHARED, *_BITS, Ops.SUB],
    dtypes.bool: [*_SHARED, *_BITS],
}
