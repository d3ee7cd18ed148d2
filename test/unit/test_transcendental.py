"""exp2, log2, sin and pow: errors in ULPs, and results at edge cases.

The evaluator rounds every operation, so the bounds also hold for targets without fused operations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.evaluator.arithmetic import Array
from test.evaluator.expression import evaluate, variable
from tinygrad.codegen.decompose import sine
from tinygrad.codegen.decompose.sine import sin
from tinygrad.codegen.decompose.transcendental import exp2, log2, power
from tinygrad.dtype import DType, dtypes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

Function = Callable[[UOp], UOp]
FLOATS = {dtypes.float32: np.float32, dtypes.float64: np.float64}
INF, NAN = float("inf"), float("nan")
FUNCTIONS: list[tuple[Function, Callable[[Array], Array]]] = [
    (exp2, np.exp2),
    (log2, np.log2),
    (sin, np.sin),
]


def apply(function: Function, values: Array, dtype: DType = dtypes.float32) -> Array:
    """The values of a function, computed in its dtype."""
    return evaluate(function(variable("x", dtype)), x=np.asarray(values).astype(FLOATS[dtype]))


def errors_in_ulps(got: Array, exact: Array) -> Array:
    """The error of `got` against float64 values in float32 ulps; infinite where one is NaN."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
    # infinity counts as the number after the largest
    limit = 2.0**128
    step = np.where(np.isfinite(rounded), np.spacing(np.abs(rounded)), 2.0**104).astype(np.float64)
    error = np.abs(np.clip(got.astype(np.float64), -limit, limit) - np.clip(exact, -limit, limit))
    error = np.where(np.isnan(got) != np.isnan(exact), INF, np.nan_to_num(error / step))
    assert error.shape == got.shape
    return error


def random_floats(count: int) -> Array:
    """float32 values with random bits."""
    bits = np.random.default_rng(7).integers(0, 2**32, count, dtype=np.uint32)
    return bits.view(np.float32)


def uniform(low: float, high: float, count: int = 100_000) -> Array:
    return np.random.default_rng(5).uniform(low, high, count).astype(np.float32)


@pytest.mark.parametrize(
    ("function", "exact", "low", "high", "ulps"),
    [
        (exp2, np.exp2, -151, 129, 1.1),
        (exp2, np.exp2, -1, 1, 1.1),
        (log2, np.log2, 0.5, 2, 1.3),
        (log2, np.log2, 0.99, 1.01, 1.3),
        (sin, np.sin, -8, 8, 1.5),
        (sin, np.sin, -128, 128, 1.6),
        (sin, np.sin, -(2**30), 2**30, 2.6),
    ],
)
def test_float32_errors_in_an_interval(
    function: Function, exact: Callable[[Array], Array], low: float, high: float, ulps: float
) -> None:
    values = uniform(low, high)
    error = errors_in_ulps(apply(function, values), exact(values.astype(np.float64)))
    assert error.max() <= ulps, values[error.argmax()]


@pytest.mark.parametrize(
    ("function", "exact", "ulps"), [(exp2, np.exp2, 1.1), (log2, np.log2, 1.3), (sin, np.sin, 2.6)]
)
def test_float32_errors_over_all_floats(
    function: Function, exact: Callable[[Array], Array], ulps: float
) -> None:
    values = random_floats(200_000)
    with np.errstate(all="ignore"):
        expected = exact(values.astype(np.float64))
    error = errors_in_ulps(apply(function, values), expected)
    assert error.max() <= ulps, values[error.argmax()]


@pytest.mark.parametrize(("function", "exact"), FUNCTIONS)
@given(value=st.floats(width=32))
def test_float32_results_are_accurate_for_any_number(
    function: Function, exact: Callable[[Array], Array], value: float
) -> None:
    values = np.array([value], np.float32)
    with np.errstate(all="ignore"):
        expected = exact(values.astype(np.float64))
    assert errors_in_ulps(apply(function, values), expected)[0] <= 2.6


@pytest.mark.parametrize(
    ("function", "exact", "low", "high"),
    [
        (exp2, np.exp2, -1080, 1030),
        (exp2, np.exp2, -1, 1),
        (log2, np.log2, 0.5, 2),
        (log2, np.log2, 0, 1e300),
        (sin, np.sin, -128, 128),
        (sin, np.sin, -1e9, 1e9),
    ],
)
def test_float64_is_within_2_ulps_of_numpy(
    function: Function, exact: Callable[[Array], Array], low: float, high: float
) -> None:
    values = np.random.default_rng(3).uniform(low, high, 50_000)
    with np.errstate(all="ignore"):
        expected = exact(values)
        got = apply(function, values, dtypes.float64)
        error = np.abs(got - expected) / np.spacing(np.abs(expected))
    assert np.nan_to_num(error).max() <= 2
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))


# the exact sines, rounded; two of the arguments are those nearest to a multiple of pi / 2
SINES = [
    (1e5, 0.03574879797201651),
    (1e10, -0.4875060250875107),
    (123456789.125, 0.9998763854272629),
    (1073741824.5, -0.16458741069886315),
    (1e22, -0.8522008497671888),
    (1.7976931348623157e308, 0.004961954789184062),
    (6381956970095103 * 2.0**797, 1.0),
    (6381956970095103 * 2.0**798, -9.374331848509255e-19),
    (3.141592653589793, 1.2246467991473532e-16),
    (1e-310, 1e-310),
    (-7.5, -0.9379999767747389),
    (128.0, 0.7210377105017316),
]


@pytest.mark.parametrize(("value", "sine_of_value"), SINES)
def test_float64_sine_of_large_and_of_tiny_arguments(value: float, sine_of_value: float) -> None:
    got = apply(sin, np.array([value]), dtypes.float64)[0]
    assert abs(got - sine_of_value) <= 2 * np.spacing(abs(sine_of_value))


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

    unit = 1 << (sine.INVERSE_TWO_PI_BITS + 64)
    pi = 4 * (4 * inverse_tangent(5, unit) - inverse_tangent(239, unit))
    turn = 2 * pi
    assert (unit * unit // turn) >> 64 == sine.INVERSE_TWO_PI


EDGES = {
    exp2: {
        0.0: 1.0,
        1.0: 2.0,
        -1.0: 0.5,
        10.0: 1024.0,
        127.0: 2.0**127,
        128.0: INF,
        INF: INF,
        -INF: 0.0,
        -126.0: 2.0**-126,
        -149.0: 2.0**-149,
        -150.0: 0.0,
        1e-40: 1.0,
        3e38: INF,
        -3e38: 0.0,
    },
    log2: {
        1.0: 0.0,
        2.0: 1.0,
        0.5: -1.0,
        1024.0: 10.0,
        0.0: -INF,
        INF: INF,
        -INF: NAN,
        -1.0: NAN,
        -1e-45: NAN,
        2.0**-126: -126.0,
        2.0**-149: -149.0,
        2.0**-140: -140.0,
        2.0**127: 127.0,
    },
    sin: {0.0: 0.0, INF: NAN, -INF: NAN, 1e-45: 1e-45, -1e-45: -1e-45, 1e-30: 1e-30},
}


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("function", [exp2, log2, sin])
def test_edges_are_exact(function: Function, dtype: DType) -> None:
    table = EDGES[function] | {NAN: NAN}
    if dtype is dtypes.float64 and function is exp2:
        table = {x: y for x, y in table.items() if abs(x) < 120 or abs(x) == INF}
        table |= {
            -1022.0: 2.0**-1022,
            -1074.0: 5e-324,
            -1075.0: 0.0,
            1023.0: 2.0**1023,
            1024.0: INF,
        }
    got = apply(function, np.array(list(table)), dtype)
    np.testing.assert_array_equal(got, np.array(list(table.values())).astype(got.dtype))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_negative_zero(dtype: DType) -> None:
    zero = np.array([-0.0])
    assert apply(exp2, zero, dtype) == 1
    assert apply(log2, zero, dtype) == -INF


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_sine_keeps_the_sign_of_zero(dtype: DType) -> None:
    got = apply(sin, np.array([0.0, -0.0]), dtype)
    assert list(np.signbit(got)) == [False, True]


SPECIAL = [
    *(0.0, 1.0, 2.0, 3.0, 0.5, 1.5, INF, 1e300, 1e-300, 5e-324, 2.0**53, 2.0**52 + 1),
    *(-0.0, -1.0, -2.0, -3.0, -0.5, -1.5, -INF, -1e300, -5e-324, -(2.0**52) - 1, NAN),
]


def test_power_of_every_pair_of_special_numbers() -> None:
    x, y = (a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        expected = x**y
    expression = power(variable("x", dtypes.float64), variable("y", dtypes.float64))
    got = evaluate(expression, x=x, y=y)
    np.testing.assert_allclose(got, expected, rtol=1e-14)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(expected[number]))


@pytest.mark.parametrize(("high", "largest_exponent", "ulps"), [(10, 10, 3), (2, 1000, 100)])
def test_float64_power_is_near_numpys(high: float, largest_exponent: float, ulps: float) -> None:
    generator = np.random.default_rng(2)
    x = generator.uniform(0, high, 50_000)
    y = generator.uniform(-largest_exponent, largest_exponent, 50_000)
    expression = power(variable("x", dtypes.float64), variable("y", dtypes.float64))
    got = evaluate(expression, x=x, y=y)
    with np.errstate(all="ignore"):
        expected = x**y
        error = np.abs(got - expected) / np.spacing(np.abs(expected))
    assert np.nan_to_num(error).max() <= ulps


def test_float32_power_without_float64_loses_little_at_moderate_exponents() -> None:
    generator = np.random.default_rng(2)
    x = generator.uniform(0.1, 4, 50_000).astype(np.float32)
    y = generator.uniform(-3, 3, 50_000).astype(np.float32)
    expression = power(variable("x", dtypes.float32), variable("y", dtypes.float32))
    got = evaluate(expression, x=x, y=y)
    assert errors_in_ulps(got, x.astype(np.float64) ** y).max() <= 8


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("function", [exp2, log2, sin, lambda x: power(x, x)])
def test_vectors_have_the_same_lanes_everywhere(function: Function, dtype: DType) -> None:
    result = function(variable("x", dtype.vec(8)))
    assert result.dtype is dtype.vec(8)
    for node in result.toposort():
        assert node.dtype.count == 8, node
        if node.op in GroupOp.ALU:
            assert {x.dtype.count for x in node.src} == {8}


@pytest.mark.parametrize(
    ("function", "limit"), [(exp2, 25), (log2, 38), (sin, 100), (lambda x: power(x, x), 90)]
)
def test_number_of_float32_operations(function: Function, limit: int) -> None:
    nodes = function(variable("x", dtypes.float32)).toposort()
    free = {Ops.CONST, Ops.DEFINE_VAR, Ops.BITCAST}
    assert sum(u.op not in free for u in nodes) <= limit
