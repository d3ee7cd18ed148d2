"""Binary elementwise ops against numpy: arithmetic, comparison, selection, promotion."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.ops.oracle import EDGES, arrays, compare, torch
from tinygrad import Tensor, dtypes

BINARY: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
}
BROADCASTS: list[list[tuple[int, ...]]] = [
    *([(3, 5), (3, 5)], [(3, 5), (5,)], [(4, 1, 5), (3, 1)], [(), (3,)]),
    *([(1, 1), (2, 3)], [(0, 3), (3,)], [(2, 1, 1, 2), (3, 1, 1)]),
]


@pytest.mark.sample(6)
@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_function_of_two_tensors(name: str, shapes: list[tuple[int, ...]]) -> None:
    function = BINARY[name]
    compare(arrays(shapes, 0.5, 2), function, function, function, second=True, rtol=2e-5)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("number", [2, 3.5])
def test_function_of_a_tensor_and_a_number(name: str, number: float) -> None:
    function = BINARY[name]
    for both in (lambda x: function(x, number), lambda x: function(number, x)):
        compare(arrays([(3, 5)], 0.5, 2), both, both, both, rtol=2e-5)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5, 7, 33, -33])
def test_constant_power(exponent: float) -> None:
    function = lambda x: x ** float(exponent)  # noqa: E731
    power = lambda x: x**exponent  # noqa: E731
    compare(
        arrays([(3, 5)], 0.8, 1.5),
        *(function, power, power),
        second=True,
        rtol=5e-5,
        gradient_rtol=3e-4,
    )


@pytest.mark.parametrize("base", [2, 1.5, 10])
def test_power_of_a_constant(base: float) -> None:
    function = lambda x: base**x  # noqa: E731
    compare(arrays([(3, 5)]), function, function, function, second=True, rtol=2e-5)


POWER_EDGES = [-np.inf, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, np.inf, np.nan]


def test_power_of_negative_zero_and_infinite_numbers() -> None:
    base, exponent = np.meshgrid(POWER_EDGES, POWER_EDGES)
    inputs = [base.astype(np.float32), exponent.astype(np.float32)]
    compare(inputs, np.power, Tensor.pow, "pow", gradient=False, rtol=2e-5)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 3.0, -1.0, 2.5, np.inf, -np.inf, np.nan])
def test_constant_power_at_the_edges(exponent: float) -> None:
    compare([EDGES], lambda x: x**exponent, lambda x: x**exponent, gradient=False, rtol=2e-5)


def test_integer_power_is_exact_and_wraps() -> None:
    base = np.array([-3, -2, -1, 0, 1, 2, 3, 7], np.int32)
    compare([base], lambda x: x**5, lambda x: x**5)
    exponent = np.array([3, 4, 5, 0, 6, 30, 19, 11], np.int32)
    compare([base, exponent], operator.pow, operator.pow)
    small = np.array([0, 2, 3, 15, 129, 255], np.uint8)
    compare([small, small[::-1].copy()], operator.pow, operator.pow)


def test_integers_to_negative_powers_are_rounded_toward_zero() -> None:
    base = np.array([1, -1, -1, 2, -3, 2**31 - 1], np.int32)
    found = Tensor(base) ** Tensor([-1, -1, -2, -1, -3, -2])
    assert found.tolist() == [1, -1, 1, 0, 0, 0]


def test_integer_to_a_negative_power_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="power of -1"):
        Tensor([1, 2]) ** -1


INTEGERS = np.array([-7, -4, -1, 0, 1, 4, 7, 9], np.int32)
DIVISORS = np.array([2, -3, 8, -2, 3, 5, -7, 3], np.int32)


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8])
@pytest.mark.parametrize(
    "function",
    [
        *(operator.floordiv, operator.mod, operator.and_, operator.or_, operator.xor),
        *(operator.lt, operator.gt, operator.le, operator.ge, operator.eq, operator.ne),
    ],
)
def test_operator_on_integers(function: Callable[..., Any], dtype: Any) -> None:
    a, b = INTEGERS.astype(dtype), DIVISORS.astype(dtype)
    compare([a, b], function, function, function)
    compare([a], lambda x: function(x, 3), lambda x: function(x, 3), lambda x: function(x, 3))


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint64])
def test_integer_division_by_the_limits_of_the_dtype(kind: Any) -> None:
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    values = np.array([low, low + 1, 0, 1, 5, high // 2, high - 1, high], kind)
    x = Tensor(values).realize()
    # next to powers of two, which float64 does not tell from them
    for divisor in {low, high, high // 2, high // 2 + 2} - {0}:
        by = np.array(divisor, kind)
        np.testing.assert_array_equal((x // divisor).numpy(), values // by)
        np.testing.assert_array_equal((x % divisor).numpy(), values % by)


def test_integer_division_rounding_toward_zero() -> None:
    compare([INTEGERS, DIVISORS], lambda a, b: np.trunc(a / b).astype(np.int32), Tensor.idiv)


DIVISIONS = {None: np.divide, "trunc": lambda a, b: np.trunc(a / b), "floor": np.floor_divide}


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
def test_division_of_floats(mode: str | None) -> None:
    compare(
        [INTEGERS.astype(np.float32) + 0.25, DIVISORS.astype(np.float32)],
        DIVISIONS[mode],
        lambda a, b: a.div(b, rounding_mode=mode),
        lambda a, b: torch.div(a, b, rounding_mode=mode),
    )


def test_division_is_correctly_rounded() -> None:
    numbers = np.arange(1, 200, dtype=np.float32)
    assert (Tensor(numbers) / Tensor(numbers)).numpy().tolist() == [1.0] * 199
    assert (Tensor(numbers) / 49).numpy().tolist() == (numbers / np.float32(49)).tolist()


SMALL_POWERS = {dtypes.half: -20, dtypes.float: -135, dtypes.double: -1074}


@pytest.mark.parametrize("dtype", SMALL_POWERS, ids=str)
def test_division_by_a_power_of_two_whose_inverse_overflows(dtype: Any) -> None:
    divisor = 2.0 ** SMALL_POWERS[dtype]
    assert (Tensor([divisor, divisor * 4], dtype=dtype) / divisor).tolist() == [1.0, 4.0]


@pytest.mark.parametrize("dividend", [np.float32, np.int32])
def test_division_by_zero_is_infinite_or_nan(dividend: Any) -> None:
    x = np.array([5, -5, 0], dividend)
    assert str((Tensor(x) / 0).tolist()) == "[inf, -inf, nan]"


@pytest.mark.parametrize("function", [operator.mod, operator.floordiv])
def test_remainder_of_floats_has_the_sign_of_the_divisor(function: Callable[..., Any]) -> None:
    inputs = [INTEGERS.astype(np.float32) + 0.25, DIVISORS.astype(np.float32)]
    compare(inputs, function, function, function, gradient=False)


@pytest.mark.parametrize("function", [operator.lt, operator.le, operator.gt, operator.ge])
def test_comparison_with_nan_is_false(function: Callable[..., Any]) -> None:
    compare([EDGES, EDGES[::-1].copy()], function, function, function, gradient=False)
    compare([EDGES], lambda x: function(x, 1.0), lambda x: function(x, 1.0), gradient=False)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_fmod_is_the_remainder_of_a_division_that_rounds_toward_zero() -> None:
    signed = np.array([-7.5, 7.5, 6, -6, 1, -0.0, np.inf, -1e30, np.nan], np.float32)
    for divisor in (2, -3, 0.75, np.inf, 0, np.nan):
        b = np.full_like(signed, divisor)
        found, expected = Tensor(signed).fmod(Tensor(b)).numpy(), np.fmod(signed, b)
        np.testing.assert_array_equal(found, expected)
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]))
    for dtype in (np.int8, np.int64, np.uint8):
        a, b = np.array([7, 128 - 7, 6, 0]).astype(dtype), np.array([3, 5, 2, 9], dtype)
        for x in (a, -a):
            np.testing.assert_array_equal(Tensor(x).fmod(Tensor(b)).numpy(), np.fmod(x, b))
    assert Tensor([-7, 7]).fmod(4).tolist() == [-3, 3]
    assert Tensor([3, 4]).fmod(7, reverse=True).tolist() == [1, 3]


def test_the_gradient_of_fmod() -> None:
    x = np.array([[-7.5, 7.5, 5.0], [4.0, -2.0, 0.3]], np.float32)
    y = np.array([2.2, -2.2, 3.1], np.float32)
    compare([x, y], np.fmod, lambda x, y: x.fmod(y))


def test_usum_and_uprod_combine_all_operands() -> None:
    x, y, z = arrays([(2, 3), (3,), (2, 1)])
    compare([x, y, z], lambda x, y, z: x + y + z, lambda x, y, z: x.usum(y, z))
    compare([x, y, z], lambda x, y, z: x * y * z, Tensor.uprod)
    assert Tensor([True, False]).usum(Tensor([True, False])).tolist() == [True, False]
    assert Tensor([3]).usum().tolist() == [3]


def test_shifts_and_not() -> None:
    small = np.array([0, 1, 2, 3], np.int32)
    for function in (operator.lshift, operator.rshift):
        compare([INTEGERS[4:], small], function, function, function)
    compare([INTEGERS], lambda x: x >> 1, lambda x: x >> 1)
    for x in (INTEGERS, INTEGERS.astype(np.uint8), INTEGERS > 0):
        compare([x], operator.invert, operator.invert, operator.invert)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_maximum_and_minimum(name: str) -> None:
    function = getattr(np, name)
    compare(arrays([(3, 5), (3, 5)]), function, getattr(Tensor, name), name, second=True)
    compare([INTEGERS, DIVISORS], function, getattr(Tensor, name), name)
    # equal operands receive half the gradient each, like central differences
    equal = np.ones(4, np.float32)
    compare([equal, equal], function, getattr(Tensor, name), name)
    compare([EDGES, EDGES[::-1].copy()], function, getattr(Tensor, name), name, gradient=False)


def test_minimum_of_the_smallest_integers() -> None:
    least = np.array([-(2**31), 2**31 - 1], np.int32)
    compare([least, least[::-1].copy()], np.minimum, Tensor.minimum)


@pytest.mark.parametrize("bounds", [(-1, 1), (None, 0.5), (0.25, None)])
def test_clamp(bounds: tuple[float | None, float | None]) -> None:
    function = lambda x: x.clamp(*bounds)  # noqa: E731
    compare(arrays([(3, 5)]), lambda x: np.clip(x, *bounds), function, function, second=True)
    compare([EDGES], lambda x: np.clip(x, *bounds), function, function, gradient=False)


def test_where_broadcasts_and_promotes() -> None:
    mask = arrays([(3, 1)], seed=5)[0] > 0
    compare([mask, *arrays([(3, 5), (5,)])], np.where, Tensor.where, "where")
    compare([mask, *arrays([(3, 5)])], lambda m, x: np.where(m, x, 0), lambda m, x: m.where(x, 0))
    assert Tensor([True]).where(1, 2.5).dtype == dtypes.float32


def test_copysign_respects_the_sign_of_zero() -> None:
    signs = np.array([0.0, -0.0, np.inf, -np.inf, 2, -3], np.float32)
    inputs = [np.arange(6, dtype=np.float32) - 3, signs]
    compare(inputs, np.copysign, Tensor.copysign, "copysign", gradient=False)


def test_logaddexp_does_not_overflow() -> None:
    compare(arrays([(5,), (5,)], -500, 500), np.logaddexp, Tensor.logaddexp, "logaddexp")
    compare(arrays([(5,), (5,)]), np.logaddexp, Tensor.logaddexp, second=True)
    edges = np.array([np.inf, -np.inf, 1.0, np.nan], np.float32)
    compare([edges, edges], np.logaddexp, Tensor.logaddexp, "logaddexp", gradient=False)


def test_lerp_of_floats_and_of_bytes() -> None:
    function = lambda a, b: a.lerp(b, 0.3)  # noqa: E731
    compare(arrays([(5,), (5,)]), lambda a, b: a + 0.3 * (b - a), function, function)
    low, high = Tensor([0, 100], dtype=dtypes.uint8), Tensor([255, 200], dtype=dtypes.uint8)
    assert low.lerp(high, Tensor([0.5, 0.5])).tolist() == [128, 150]
    assert Tensor([1.0, 4.0]).lerp(2, 0.5).tolist() == [1.5, 3.0]


def test_masked_fill() -> None:
    x = arrays([(3, 5)])[0]
    function = lambda x, m: x.masked_fill(m, 2.0)  # noqa: E731
    compare([x, x > 0], lambda x, m: np.where(m, 2.0, x), function, function)


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
def test_predicates(name: str) -> None:
    compare([EDGES], getattr(np, name), getattr(Tensor, name), name, gradient=False)
    compare([INTEGERS], getattr(np, name), getattr(Tensor, name))


def test_isinf_of_one_sign() -> None:
    compare([EDGES], np.isposinf, lambda x: x.isinf(detect_negative=False), gradient=False)
    compare([EDGES], np.isneginf, lambda x: x.isinf(detect_positive=False), gradient=False)


@pytest.mark.parametrize("equal_nan", [False, True])
def test_isclose(equal_nan: bool) -> None:
    other = (EDGES * (1 + 1e-7)).astype(np.float32)
    compare(
        [EDGES, other],
        lambda a, b: np.isclose(a, b, equal_nan=equal_nan),
        lambda a, b: a.isclose(b, equal_nan=equal_nan),
        lambda a, b: torch.isclose(a, b, equal_nan=equal_nan),
        gradient=False,
    )


def test_isclose_of_integers_and_of_a_number() -> None:
    low, high = Tensor([1, 2], dtype=dtypes.uint8), Tensor([2, 1], dtype=dtypes.uint8)
    assert low.isclose(high, atol=1).tolist() == [True, True]
    low, high = Tensor([-128, 0], dtype=dtypes.int8), Tensor([127, -128], dtype=dtypes.int8)
    assert low.isclose(high, atol=1).tolist() == [False, False]
    assert low.isclose(high, rtol=1).tolist() == [False, True]
    assert Tensor([1.0, 1.1]).isclose(1).tolist() == [True, False]


def test_errors_name_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(4,\) do not broadcast"):
        Tensor.ones(2, 3) + Tensor.ones(4)


def test_errors_name_operands_that_are_no_numbers() -> None:
    with pytest.raises(TypeError, match="tensor or a number, not 'a'"):
        Tensor([1]) + "a"


PROMOTIONS = [
    (dtypes.int32, 1, dtypes.int32),
    (dtypes.int32, 1.5, dtypes.float32),
    (dtypes.uint8, 1, dtypes.uint8),
    (dtypes.bool, 1, dtypes.int32),
    (dtypes.bool, True, dtypes.bool),
    (dtypes.float16, 1.5, dtypes.float16),
    (dtypes.float16, 1, dtypes.float16),
    (dtypes.int8, 2.0, dtypes.float32),
]


@pytest.mark.parametrize(("dtype", "number", "expected"), PROMOTIONS)
def test_a_number_takes_the_dtype_of_the_tensor_if_it_fits(
    dtype: Any, number: Any, expected: Any
) -> None:
    assert (Tensor([1], dtype=dtype) + number).dtype == expected
    assert (number + Tensor([1], dtype=dtype)).dtype == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (dtypes.int32, dtypes.float16, dtypes.float16),
        (dtypes.int8, dtypes.uint8, dtypes.int16),
        (dtypes.float16, dtypes.bfloat16, dtypes.float32),
        (dtypes.bool, dtypes.uint8, dtypes.uint8),
        (dtypes.int64, dtypes.float32, dtypes.float32),
    ],
)
def test_two_dtypes_promote(first: Any, second: Any, expected: Any) -> None:
    assert (Tensor([1], dtype=first) * Tensor([1], dtype=second)).dtype == expected


def test_small_integers_wrap_around() -> None:
    x = Tensor([250, 5], dtype=dtypes.uint8)
    assert (x + 10).tolist() == [4, 15]
    assert (x - 6).tolist() == [244, 255]
    assert (-x).tolist() == [6, 251]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_the_gradient_of_a_remainder_is_one_where_it_is_zero_too(dtype: Any) -> None:
    dividends, divisors = [0.0, 2.0, -3.0, 2.5, -2.5, 7.0], [1.0, -2.0, 3.0, 2.0, 2.0, -3.0]
    a, b = (Tensor(x, dtype=dtype, requires_grad=True) for x in (dividends, divisors))
    (a % b).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert a.grad.tolist() == [1] * 6
    assert b.grad.tolist() == [-(x // y) for x, y in zip(dividends, divisors, strict=True)]
