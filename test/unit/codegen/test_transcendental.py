"""Elementary functions and powers: errors in ulps, and results at edge cases.

The evaluator rounds every operation, so the bounds also hold for targets without fused operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import mpmath
import numpy as np
import pytest

from test.elementary import FUNCTIONS, arguments, error_in_ulps, max_error
from test.evaluator.arithmetic import Array
from test.evaluator.expression import evaluate, variable
from tinygrad.codegen.decompose import trigonometry
from tinygrad.codegen.decompose.decompositions import ELEMENTARY
from tinygrad.codegen.decompose.power import power, power_in_float64
from tinygrad.dtype import DType, dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.simplify.elementary import elementary

Function = Callable[[UOp], UOp]
FLOATS = {dtypes.float32: np.float32, dtypes.float64: np.float64}
DOCS = Path(__file__).parents[3] / "docs" / "numerics.md"
# a row of the table: the function, and the maximum error in float32 and in float64
ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", re.MULTILINE)
INF, NAN = float("inf"), float("nan")


def documented() -> dict[str, dict[DType, float]]:
    """The maximum errors that the docs state."""
    rows = ROW.findall(DOCS.read_text())
    return {name: dict(zip(FLOATS, map(float, errors), strict=True)) for name, *errors in rows}


def apply(op: Ops, values: Array, dtype: DType = dtypes.float32) -> Array:
    """The values of a function, computed in its dtype."""
    expression = ELEMENTARY[op](variable("x", dtype))
    with np.errstate(all="ignore"):
        return evaluate(expression, x=np.asarray(values).astype(FLOATS[dtype]))


def test_every_elementary_function_is_decomposed_folded_and_documented() -> None:
    assert GroupOp.Elementary == ELEMENTARY.keys() == FUNCTIONS.keys()
    table = documented()
    assert table.keys() >= {op.name.lower() for op in GroupOp.Elementary} | {"pow"}
    assert not [name for name, errors in table.items() if max(errors.values()) > 2]


@pytest.mark.sample(8)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", sorted(GroupOp.Elementary))
def test_errors_are_within_those_of_the_docs(op: Ops, dtype: DType) -> None:
    error, argument = max_error(op, dtype, apply(op, arguments(dtype), dtype))
    assert error <= documented()[op.name.lower()][dtype], argument
    # odd functions keep the sign of zero
    if apply(op, np.array([0.0]), dtype)[0] == 0 and op is not Ops.ACOSH:
        is_odd = op not in {Ops.LOG, Ops.LOG2}
        assert list(np.signbit(apply(op, np.array([0.0, -0.0]), dtype))) == [False, is_odd]


@pytest.mark.parametrize("op", sorted(GroupOp.Elementary))
def test_constants_are_folded_to_the_same_values(op: Ops) -> None:
    xs = arguments(dtypes.float64)
    folded = np.array([elementary(op, float(x)) for x in xs])
    # Python's functions are those of the C library, which may lose more for huge angles
    assert max_error(op, dtypes.float64, folded)[0] <= (16 if op in {Ops.COS, Ops.TAN} else 2.5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_errors_of_powers(dtype: DType) -> None:
    function = power if dtype is dtypes.float64 else power_in_float64
    generator = np.random.default_rng(2)
    largest = 300 if dtype is dtypes.float64 else 38
    ranges = [(0, 3, 3), (0.5, 2, 1000), (0.999, 1.001, 5e5), (0.999, 1.001, 9e4)]
    x = [generator.uniform(low, high, 100) for low, high, _ in ranges]
    y = [generator.uniform(-limit, limit, 100) for *_, limit in ranges]
    x.append(10.0 ** generator.uniform(-largest, largest, 200))
    y.append(generator.uniform(-2, 2, 200))
    x, y = (np.concatenate(values).astype(FLOATS[dtype]) for values in (x, y))
    with np.errstate(all="ignore"):
        got = evaluate(function(variable("x", dtype), variable("y", dtype)), x=x, y=y)
    with mpmath.workprec(200):
        pairs = zip(x, y, got, strict=True)
        exact = [(mpmath.power(float(a), float(b)), float(c)) for a, b, c in pairs]
        errors = [error_in_ulps(result, value, dtype) for value, result in exact]
    assert max(errors) <= documented()["pow"][dtype]


SPECIAL = [
    *(0.0, 1.0, 2.0, 3.0, 0.5, 1.5, INF, 1e300, 1e-300, 5e-324, 2.0**53, 2.0**52 + 1),
    *(-0.0, -1.0, -2.0, -3.0, -0.5, -1.5, -INF, -1e300, -5e-324, -(2.0**52) - 1, NAN),
]


@pytest.mark.parametrize("dtype", FLOATS)
def test_power_of_every_pair_of_special_numbers(dtype: DType) -> None:
    function = power if dtype is dtypes.float64 else power_in_float64
    with np.errstate(all="ignore"):
        special = np.array(SPECIAL).astype(FLOATS[dtype])
        x, y = (a.ravel() for a in np.meshgrid(special, special))
        expected = x**y
    got = evaluate(function(variable("x", dtype), variable("y", dtype)), x=x, y=y)
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(FLOATS[dtype]).eps)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(expected[number]))


def test_float32_power_without_float64_loses_little_at_moderate_exponents() -> None:
    generator = np.random.default_rng(2)
    x = generator.uniform(0.1, 4, 50_000).astype(np.float32)
    y = generator.uniform(-3, 3, 50_000).astype(np.float32)
    expression = power(variable("x", dtypes.float32), variable("y", dtypes.float32))
    got = evaluate(expression, x=x, y=y)
    np.testing.assert_allclose(got, x.astype(np.float64) ** y, rtol=16 * 2.0**-24)


def test_bits_of_the_inverse_of_two_pi() -> None:
    def inverse_tangent(denominator: int, unit: int) -> int:
        """unit * atan(1 / denominator)."""
        term = unit // denominator
        total, n = term, 1
        while term:
            term //= -denominator * denominator
            n += 2
            total += term // n
        return total

    unit = 1 << (trigonometry.INVERSE_TWO_PI_BITS + 64)
    pi = 4 * (4 * inverse_tangent(5, unit) - inverse_tangent(239, unit))
    turn = 2 * pi
    assert (unit * unit // turn) >> 64 == trigonometry.INVERSE_TWO_PI


EXACT = {
    Ops.EXP2: {
        **{float(n): 2.0**n for n in (-149, -140, -126, -1, 0, 1, 10, 127)},
        128.0: INF,
        -150.0: 0.0,
        1e-40: 1.0,
        3e38: INF,
        -3e38: 0.0,
    },
    Ops.LOG2: {2.0**n: float(n) for n in (-149, -140, -126, -1, 0, 1, 10, 127)},
}


@pytest.mark.parametrize("op", EXACT)
def test_powers_of_two_are_exact(op: Ops) -> None:
    table = EXACT[op]
    got = apply(op, np.array(list(table)))
    np.testing.assert_array_equal(got, np.array(list(table.values())).astype(got.dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("function", [*ELEMENTARY.values(), lambda x: power(x, x)])
def test_vectors_have_the_same_lanes_everywhere(function: Function, dtype: DType) -> None:
    result = function(variable("x", dtype.vec(8)))
    assert result.dtype is dtype.vec(8)
    for node in result.toposort():
        assert node.dtype.count == 8, node
        if node.op in GroupOp.ALU:
            assert {x.dtype.count for x in node.src} == {8}


LIMITS = {
    Ops.EXP2: 27,
    Ops.EXP: 31,
    Ops.EXPM1: 31,
    Ops.LOG2: 38,
    Ops.LOG: 41,
    Ops.LOG1P: 51,
    Ops.SIN: 114,
    Ops.COS: 114,
    Ops.TAN: 122,
    Ops.ASIN: 30,
    Ops.ACOS: 35,
    Ops.ATAN: 30,
    Ops.SINH: 48,
    Ops.COSH: 34,
    Ops.TANH: 35,
    Ops.ASINH: 58,
    Ops.ACOSH: 60,
    Ops.ATANH: 62,
    Ops.ERF: 64,
    Ops.LOGISTIC: 33,
    Ops.SOFTPLUS: 54,
    Ops.ASINH: 62,
    Ops.ATANH: 57,
}
DIVISIONS = {Ops.ASINH: 0, Ops.ATANH: 1}


@pytest.mark.parametrize("op", LIMITS)
def test_number_of_float32_operations(op: Ops) -> None:
    nodes = ELEMENTARY[op](variable("x", dtypes.float32)).toposort()
    free = {Ops.CONST, Ops.DEFINE_VAR, Ops.BITCAST}
    assert sum(u.op not in free for u in nodes) <= LIMITS[op]
    assert sum(u.op is Ops.FDIV for u in nodes) <= DIVISIONS.get(op, 1)
