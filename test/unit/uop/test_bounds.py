"""Bounds (`vmin`, `vmax`) contain every value of an expression, and are tight where needed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from test.evaluator.expression import evaluate, variable
from test.unit.uop.expressions import (
    EXTREMES,
    all_values,
    bounded_variables,
    conditions,
    extreme_values,
    index_expressions,
    value_expressions,
)
from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

EXAMPLES = 150


@given(st.data())
@settings(max_examples=EXAMPLES)
def test_bounds_contain_every_value_of_an_index(data: st.DataObject) -> None:
    variables = data.draw(bounded_variables())
    expression = data.draw(index_expressions(variables) | conditions(variables))
    found = evaluate(expression, **all_values(variables))
    assert expression.vmin <= found.min() <= found.max() <= expression.vmax


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", list(EXTREMES))
@given(st.data())
@settings(max_examples=EXAMPLES)
def test_bounds_contain_every_value_that_wraps_or_is_infinite(
    dtype: DType, data: st.DataObject
) -> None:
    variables = [variable(name, dtype) for name in "abc"]
    expression = data.draw(value_expressions(variables))
    found = evaluate(expression, **extreme_values(dtype))
    numbers = found[~np.isnan(found)]
    # finite bounds imply that there is no NaN
    assert len(numbers) == found.size or not math.isfinite(expression.vmin)
    assume(numbers.size)
    assert expression.vmin <= numbers.min() <= numbers.max() <= expression.vmax


a = UOp.variable("a", 0, 10)
b = UOp.variable("b", -3, 5)
i = UOp.variable("i", 0, 200, dtypes.uint8)
p = variable("p", dtypes.bool)
x = variable("x", dtypes.float32)


@pytest.mark.parametrize(
    ("expression", "bounds"),
    [
        (UOp.const(dtypes.int32, 5), (5, 5)),
        (UOp.const(dtypes.uint8, -1), (255, 255)),
        (UOp.const(dtypes.float32, math.nan), (-math.inf, math.inf)),
        (UOp.const(dtypes.float32, 2.5), (2.5, 2.5)),
        (a, (0, 10)),
        (a.bind(3), (0, 10)),
        (UOp.range(12, 0), (0, 11)),
        (UOp.range(a + 1, 0), (0, 10)),
        (UOp.arange(7), (0, 6)),
        (a + b, (-3, 15)),
        (a.alu(Ops.SUB, b), (-5, 13)),
        (b.alu(Ops.NEG), (-5, 3)),
        (a * b, (-30, 50)),
        (b * b, (-15, 25)),
        (b // 2, (-1, 2)),
        (a // b, (dtypes.min(dtypes.index), dtypes.max(dtypes.index))),
        (a // (b + 4), (0, 10)),
        (a % 4, (0, 3)),
        (b % 4, (-3, 3)),
        ((a + 40) % 64, (40, 50)),
        (a % (b + 4), (0, 8)),
        (a.maximum(b), (0, 10)),
        (a < 11, (True, True)),
        (a < 0, (False, False)),
        (a < 5, (False, True)),
        (a.ne(11), (True, True)),
        (a.eq(11), (False, False)),
        (UOp.const(dtypes.int32, 3).eq(3), (True, True)),
        ((a < 11) & (a < 0), (False, False)),
        ((a < 11) | p, (True, True)),
        ((a < 11) ^ (b < 9), (False, False)),
        (i & 15, (0, 15)),
        (i | 1, (1, 255)),
        (i ^ 1, (0, 255)),
        (i << 1, (0, 255)),
        ((i & 15) << 2, (0, 60)),
        (i >> 3, (0, 25)),
        (i >> i, (0, 255)),
        (i + 100, (0, 255)),
        (i + 55, (55, 255)),
        (p.where(a, b), (-3, 10)),
        ((a < 11).where(a, b), (0, 10)),
        ((a < 0).where(a, b), (-3, 5)),
        (i.cast(dtypes.int32), (0, 200)),
        (b.cast(dtypes.uint8), (0, 255)),
        (b.cast(dtypes.bool), (False, True)),
        ((a + 1).cast(dtypes.bool), (True, True)),
        (b.cast(dtypes.float32), (-3.0, 5.0)),
        (x.cast(dtypes.int32), (dtypes.min(dtypes.int32), dtypes.max(dtypes.int32))),
        (UOp.const(dtypes.float32, 2.5).cast(dtypes.int32), (2, 2)),
        (x, (-math.inf, math.inf)),
        (x.maximum(0.0), (-math.inf, math.inf)),
        (x < x + 1.0, (False, True)),
        (b.cast(dtypes.float32) < 6.0, (True, True)),
        (b.cast(dtypes.float32).maximum(1.0), (1.0, 5.0)),
        (UOp(Ops.VECTORIZE, dtypes.index.vec(2), (a, b)), (-3, 10)),
        (UOp(Ops.VECTORIZE, dtypes.index.vec(2), (a, b)).gep(0), (-3, 10)),
        (UOp(Ops.SPECIAL, dtypes.index, (UOp.const(dtypes.index, 8),), "gidx0"), (0, 7)),
        (UOp(Ops.SPECIAL, dtypes.int32, (), ("gidx0", 8)), (0, 7)),
        (UOp(Ops.CONST, dtypes.int32.vec(3), (), (4, 1, 2)), (1, 4)),
        (UOp(Ops.NOOP, dtypes.uint8), (0, 255)),
    ],
)
def test_the_bounds_of(expression: UOp, bounds: tuple[Any, Any]) -> None:
    assert (expression.vmin, expression.vmax) == bounds


def test_bounds_of_a_deep_expression_need_no_recursion() -> None:
    total = a
    for _ in range(5000):
        total = total + 1
    assert (total.vmin, total.vmax) == (5000, 5010)
