"""Elementwise functions against torch: ordinary values, edges, gradients, promotion."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.oracle import arrays, compare, torch
from tinygrad import Tensor, dtypes

functional = torch.nn.functional
ANYWHERE = (-3.0, 3.0)

# name: (the same in torch, where both are smooth)
UNARY: dict[str, tuple[Callable[..., Any], tuple[float, float]]] = {
    "abs": (torch.abs, ANYWHERE),
    "acos": (torch.acos, (-0.99, 0.99)),
    "acosh": (torch.acosh, (1.05, 50)),
    "asin": (torch.asin, (-0.99, 0.99)),
    "asinh": (torch.asinh, (-50, 50)),
    "atan": (torch.atan, (-30, 30)),
    "atanh": (torch.atanh, (-0.98, 0.98)),
    "ceil": (torch.ceil, ANYWHERE),
    "celu": (functional.celu, ANYWHERE),
    "cos": (torch.cos, (-100, 100)),
    "cosh": (torch.cosh, ANYWHERE),
    "elu": (functional.elu, ANYWHERE),
    "erf": (torch.erf, ANYWHERE),
    "exp": (torch.exp, ANYWHERE),
    "exp2": (torch.exp2, ANYWHERE),
    "floor": (torch.floor, ANYWHERE),
    "gelu": (lambda x: functional.gelu(x, approximate="tanh"), ANYWHERE),
    "hardsigmoid": (functional.hardsigmoid, (-4, 4)),
    "hardswish": (functional.hardswish, (-4, 4)),
    "hardtanh": (functional.hardtanh, ANYWHERE),
    "leaky_relu": (functional.leaky_relu, ANYWHERE),
    "log": (torch.log, (0.01, 30)),
    "log2": (torch.log2, (0.01, 30)),
    "logsigmoid": (functional.logsigmoid, (-40, 40)),
    "mish": (functional.mish, (-20, 20)),
    "neg": (torch.neg, ANYWHERE),
    "quick_gelu": (lambda x: x * torch.sigmoid(1.702 * x), ANYWHERE),
    "reciprocal": (torch.reciprocal, (0.1, 5)),
    "relu": (torch.relu, ANYWHERE),
    "relu6": (functional.relu6, (-8, 8)),
    "round": (torch.round, ANYWHERE),
    "rsqrt": (torch.rsqrt, (0.1, 5)),
    "selu": (functional.selu, ANYWHERE),
    "sigmoid": (torch.sigmoid, (-20, 20)),
    "sign": (torch.sign, ANYWHERE),
    "silu": (functional.silu, ANYWHERE),
    "sin": (torch.sin, (-100, 100)),
    "sinh": (torch.sinh, ANYWHERE),
    "softplus": (functional.softplus, ANYWHERE),
    "softsign": (functional.softsign, ANYWHERE),
    "sqrt": (torch.sqrt, (0.1, 5)),
    "square": (torch.square, ANYWHERE),
    "swish": (functional.silu, ANYWHERE),
    "tan": (torch.tan, (-1.4, 1.4)),
    "tanh": (torch.tanh, (-20, 20)),
    "trunc": (torch.trunc, ANYWHERE),
}


@pytest.mark.parametrize("name", UNARY)
def test_function_of_one_tensor(name: str) -> None:
    expected, (low, high) = UNARY[name]
    compare(arrays([(5, 33)], low, high), expected, getattr(Tensor, name), rtol=2e-5)


EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, 1e30, -1e30, 90.0, -90.0, np.inf, -np.inf, np.nan],
    dtype=np.float32,
)
# relu of NaN is 0 here; these approximations differ from torch at 1e30 only by overflow
EDGE_FREE = {"relu", "sign", "acosh", "asinh", "cosh", "sin", "cos", "tan", "hardswish", "celu"}
EDGE_FREE |= {"mish", "gelu", "quick_gelu", "sinh", "elu", "selu", "softsign"}


@pytest.mark.parametrize("name", sorted(UNARY.keys() - EDGE_FREE))
def test_function_of_one_tensor_at_the_edges(name: str) -> None:
    expected, _ = UNARY[name]
    compare([EDGES], expected, getattr(Tensor, name), gradient=False, rtol=2e-5)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_trigonometry_of_infinities_is_nan(name: str) -> None:
    found = getattr(Tensor([np.inf, -np.inf, np.nan]), name)().numpy()
    assert np.isnan(found).all()


@pytest.mark.parametrize("value", [-300.0, -100.0, -90.0, 90.0, 100.0, 300.0])
@pytest.mark.parametrize(
    "name", ["sigmoid", "tanh", "silu", "softplus", "elu", "logsigmoid", "mish"]
)
def test_activations_are_finite_far_out_and_so_are_their_gradients(name: str, value: float) -> None:
    expected, _ = UNARY[name]
    compare([np.array([value], np.float32)], expected, getattr(Tensor, name))


BINARY: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
}


@pytest.mark.parametrize(
    "shapes", [[(3, 5), (3, 5)], [(3, 5), (5,)], [(4, 1, 5), (3, 1)], [(), (3,)]]
)
@pytest.mark.parametrize("name", BINARY)
def test_function_of_two_tensors(name: str, shapes: list[tuple[int, ...]]) -> None:
    function = BINARY[name]
    compare(arrays(shapes, 0.5, 2), function, function)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("number", [2, 3.5, -4])
def test_function_of_a_tensor_and_a_number(name: str, number: float) -> None:
    function = BINARY[name]
    compare(arrays([(3, 5)], 0.5, 2), lambda x: function(x, number), lambda x: function(x, number))
    compare(arrays([(3, 5)], 0.5, 2), lambda x: function(number, x), lambda x: function(number, x))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5, 7, 33])
def test_constant_power(exponent: float) -> None:
    compare(arrays([(3, 5)], 0.5, 2), lambda x: x**exponent, lambda x: x**exponent, rtol=2e-5)


@pytest.mark.parametrize("base", [2, 1.5, 10])
def test_power_of_a_constant(base: float) -> None:
    compare(arrays([(3, 5)]), lambda x: base**x, lambda x: base**x, rtol=2e-5)


def test_power_of_two_tensors() -> None:
    compare(arrays([(3, 5), (3, 5)], 0.5, 2), operator.pow, operator.pow, rtol=2e-5)


POWER_EDGES = [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0]


def test_power_of_negative_and_zero_bases() -> None:
    base, exponent = np.meshgrid(POWER_EDGES, POWER_EDGES)
    inputs = [base.astype(np.float32), exponent.astype(np.float32)]
    compare(inputs, torch.pow, Tensor.pow, gradient=False, rtol=2e-5)


def test_integer_power_is_exact_and_wraps() -> None:
    base = np.array([-3, -2, -1, 0, 1, 2, 3, 7], np.int32)
    compare([base], lambda x: x**5, lambda x: x**5)
    exponent = np.array([3, 4, 5, 0, 6, 30, 19, 11], np.int32)
    compare([base, exponent], operator.pow, operator.pow)


def test_integer_to_a_negative_power_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="power of -1"):
        Tensor([1, 2]) ** -1


INTEGERS = np.array([-7, -4, -1, 0, 1, 4, 7, 9], np.int32)
DIVISORS = np.array([2, -3, 8, -2, 3, 5, -7, 3], np.int32)


@pytest.mark.parametrize(
    "function",
    [
        *(operator.floordiv, operator.mod, operator.and_, operator.or_, operator.xor),
        *(operator.lt, operator.gt, operator.le, operator.ge, operator.eq, operator.ne),
    ],
)
def test_operator_on_integers(function: Callable[..., Any]) -> None:
    compare([INTEGERS, DIVISORS], function, function)
    compare([INTEGERS], lambda x: function(x, 3), lambda x: function(x, 3))


def test_integer_division_rounding_toward_zero() -> None:
    compare([INTEGERS, DIVISORS], lambda a, b: torch.div(a, b, rounding_mode="trunc"), Tensor.idiv)


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
def test_division_of_floats(mode: str | None) -> None:
    compare(
        [INTEGERS.astype(np.float32) + 0.25, DIVISORS.astype(np.float32)],
        lambda a, b: torch.div(a, b, rounding_mode=mode),
        lambda a, b: a.div(b, rounding_mode=mode),
    )


def test_division_is_correctly_rounded() -> None:
    numbers = np.arange(1, 200, dtype=np.float32)
    assert (Tensor(numbers) / Tensor(numbers)).numpy().tolist() == [1.0] * 199
    assert (Tensor(numbers) / 49).numpy().tolist() == (numbers / np.float32(49)).tolist()


@pytest.mark.parametrize("function", [operator.mod, operator.floordiv])
def test_remainder_of_floats_has_the_sign_of_the_divisor(function: Callable[..., Any]) -> None:
    inputs = [INTEGERS.astype(np.float32) + 0.25, DIVISORS.astype(np.float32)]
    compare(inputs, function, function, gradient=False)


@pytest.mark.parametrize("function", [operator.lt, operator.le, operator.gt, operator.ge])
def test_comparison_with_nan_is_false(function: Callable[..., Any]) -> None:
    compare([EDGES, EDGES[::-1].copy()], function, function, gradient=False)
    compare([EDGES], lambda x: function(x, 1.0), lambda x: function(x, 1.0), gradient=False)


def test_shifts_and_not() -> None:
    small = np.array([0, 1, 2, 3], np.int32)
    compare([INTEGERS[4:], small], operator.lshift, operator.lshift)
    compare([INTEGERS[4:], small], operator.rshift, operator.rshift)
    compare([INTEGERS], operator.invert, operator.invert)
    compare([INTEGERS > 0], operator.invert, operator.invert)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_larger_and_smaller_of_two(name: str) -> None:
    compare(arrays([(3, 5), (3, 5)]), getattr(torch, name), getattr(Tensor, name))
    compare([INTEGERS, DIVISORS], getattr(torch, name), getattr(Tensor, name))
    equal = np.ones(4, np.float32)
    compare([equal, equal], getattr(torch, name), getattr(Tensor, name))


def test_smaller_of_the_least_integers() -> None:
    least = np.array([-(2**31), 2**31 - 1], np.int32)
    compare([least, least[::-1].copy()], torch.minimum, Tensor.minimum)


@pytest.mark.parametrize("bounds", [(-1, 1), (None, 0.5), (0.25, None)])
def test_clamp(bounds: tuple[float | None, float | None]) -> None:
    compare(arrays([(3, 5)]), lambda x: x.clamp(*bounds), lambda x: x.clamp(*bounds))


def test_where_broadcasts_and_promotes() -> None:
    mask = arrays([(3, 1)])[0] > 0
    compare([mask, *arrays([(3, 5), (5,)])], torch.where, Tensor.where)
    compare(
        [mask, *arrays([(3, 5)])], lambda m, x: torch.where(m, x, 0.0), lambda m, x: m.where(x, 0)
    )
    assert Tensor([True]).where(1, 2.5).dtype == dtypes.float32


def test_copysign_counts_the_sign_of_zero() -> None:
    signs = np.array([0.0, -0.0, np.inf, -np.inf, 2, -3], np.float32)
    compare(
        [np.arange(6, dtype=np.float32) - 3, signs], torch.copysign, Tensor.copysign, gradient=False
    )


def test_logaddexp_does_not_overflow() -> None:
    compare(arrays([(5,), (5,)], -500, 500), torch.logaddexp, Tensor.logaddexp)
    edges = np.array([np.inf, -np.inf, 1.0], np.float32)
    compare([edges, edges], torch.logaddexp, Tensor.logaddexp, gradient=False)


def test_lerp_of_floats_and_of_bytes() -> None:
    compare(arrays([(5,), (5,)]), lambda a, b: torch.lerp(a, b, 0.3), lambda a, b: a.lerp(b, 0.3))
    low, high = Tensor([0, 100], dtype=dtypes.uint8), Tensor([255, 200], dtype=dtypes.uint8)
    assert low.lerp(high, Tensor([0.5, 0.5])).tolist() == [128, 150]


def test_masked_fill() -> None:
    x = arrays([(3, 5)])[0]
    compare([x, x > 0], lambda x, m: x.masked_fill(m, 2.0), lambda x, m: x.masked_fill(m, 2.0))


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
def test_questions(name: str) -> None:
    compare([EDGES], getattr(torch, name), getattr(Tensor, name), gradient=False)


@pytest.mark.parametrize("equal_nan", [False, True])
def test_isclose(equal_nan: bool) -> None:
    other = (EDGES * (1 + 1e-7)).astype(np.float32)
    compare(
        [EDGES, other],
        lambda a, b: torch.isclose(a, b, equal_nan=equal_nan),
        lambda a, b: a.isclose(b, equal_nan=equal_nan),
        gradient=False,
    )


def test_shapes_that_do_not_broadcast_are_named() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(4,\) do not broadcast"):
        Tensor.ones(2, 3) + Tensor.ones(4)


def test_what_is_no_number_is_named() -> None:
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
def test_a_number_takes_the_dtype_of_the_tensor_if_that_can_hold_it(
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
