"""Unary elementwise ops against numpy: ordinary values, edge cases, dtypes, views, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from test.backend.ops.oracle import EDGES, Array, arrays, assert_close, compare
from test.elementary import arguments, max_error
from test.evaluator.arithmetic import rounded
from tinygrad import Device, Tensor, dtypes
from tinygrad.device import is_dtype_supported
from tinygrad.uop import GroupOp, Ops

error_function = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0, -x))


def softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def elu(x: Array) -> Array:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


@dataclass(frozen=True)
class Unary:
    """A unary function in numpy, and its name in torch if that differs."""

    numpy: Callable[[Array], Any]
    torch: str = ""
    low: float = -3.0
    high: float = 3.0


UNARY: dict[str, Unary] = {
    "abs": Unary(np.abs),
    "acos": Unary(np.arccos, "", -0.99, 0.99),
    "acosh": Unary(np.arccosh, "", 1.05, 50),
    "asin": Unary(np.arcsin, "", -0.99, 0.99),
    "asinh": Unary(np.arcsinh, "", -50, 50),
    "atan": Unary(np.arctan, "", -30, 30),
    "atanh": Unary(np.arctanh, "", -0.98, 0.98),
    "ceil": Unary(np.ceil),
    "celu": Unary(elu),
    "cos": Unary(np.cos, "", -100, 100),
    "cosh": Unary(np.cosh),
    "elu": Unary(elu),
    "erf": Unary(error_function),
    "exp": Unary(np.exp),
    "exp2": Unary(np.exp2),
    "floor": Unary(np.floor),
    "gelu": Unary(gelu, "-"),
    "hardsigmoid": Unary(lambda x: np.clip(x / 6 + 0.5, 0, 1), "", -4, 4),
    "hardswish": Unary(lambda x: x * np.clip(x + 3, 0, 6) / 6, "", -4, 4),
    "hardtanh": Unary(lambda x: np.clip(x, -1, 1)),
    "leaky_relu": Unary(lambda x: np.where(x > 0, x, 0.01 * x)),
    "log": Unary(np.log, "", 0.1, 30),
    "log10": Unary(np.log10, "", 0.1, 30),
    "log2": Unary(np.log2, "", 0.1, 30),
    "logsigmoid": Unary(lambda x: -softplus(-x), "", -40, 40),
    "mish": Unary(lambda x: x * np.tanh(softplus(x)), "", -20, 20),
    "neg": Unary(np.negative),
    "quick_gelu": Unary(lambda x: x * sigmoid(1.702 * x), "-"),
    "reciprocal": Unary(lambda x: 1 / x, "", 0.1, 5),
    "relu": Unary(lambda x: np.maximum(x, 0)),
    "relu6": Unary(lambda x: np.clip(x, 0, 6), "", -8, 8),
    "round": Unary(np.round),
    "rsqrt": Unary(lambda x: 1 / np.sqrt(x), "", 0.1, 5),
    "selu": Unary(lambda x: 1.0507 * np.where(x > 0, x, 1.67326 * elu(x))),
    "sigmoid": Unary(sigmoid, "", -20, 20),
    "sign": Unary(np.sign),
    "silu": Unary(lambda x: x * sigmoid(x)),
    "sin": Unary(np.sin, "", -100, 100),
    "sinh": Unary(np.sinh),
    "softplus": Unary(softplus),
    "softsign": Unary(lambda x: x / (1 + np.abs(x))),
    "sqrt": Unary(np.sqrt, "", 0.1, 5),
    "square": Unary(np.square),
    "swish": Unary(lambda x: x * sigmoid(x), "silu"),
    "tan": Unary(np.tan, "", -1.4, 1.4),
    "tanh": Unary(np.tanh, "", -20, 20),
    "trunc": Unary(np.trunc),
}


def torch_name(name: str) -> str | None:
    """The name in torch; None if torch has no such function, or a different one of that name."""
    return None if UNARY[name].torch == "-" else UNARY[name].torch or name


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", UNARY)
def test_function_of_one_tensor_and_its_first_two_gradients(name: str) -> None:
    case = UNARY[name]
    inputs = arrays([(5, 33)], case.low, case.high)
    theirs = torch_name(name)
    compare(inputs, case.numpy, getattr(Tensor, name), theirs, second=True, rtol=2e-5)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", UNARY)
def test_function_of_one_tensor_at_the_edges(name: str) -> None:
    compare([EDGES], UNARY[name].numpy, getattr(Tensor, name), gradient=False, rtol=2e-5)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_trigonometry_of_infinities_is_nan(name: str) -> None:
    found = getattr(Tensor([np.inf, -np.inf, np.nan]), name)().numpy()
    assert np.isnan(found).all()


@pytest.mark.parametrize(
    "name", ["sigmoid", "tanh", "silu", "softplus", "elu", "logsigmoid", "mish", "gelu", "selu"]
)
def test_activations_and_their_gradients_are_finite_for_large_inputs(name: str) -> None:
    x = np.array([-300, -100, -90, 90, 100, 300], np.float32)
    compare([x], UNARY[name].numpy, getattr(Tensor, name), torch_name(name))


@pytest.mark.parametrize("beta", [-4, 0.5, 4])
def test_softplus_does_not_overflow_with_beta(beta: float) -> None:
    x = np.array([-3e38, -2.0, 0.0, 2.0, 3e38], np.float32)
    tensor = Tensor(x, requires_grad=True)
    result = tensor.softplus(beta)
    result.sum().backward()
    exact = x.astype(np.float64)
    np.testing.assert_allclose(result.numpy(), softplus(beta * exact) / beta, 1e-5)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(tensor.grad.numpy(), 1 / (1 + np.exp(-beta * exact)), 1e-5)


# the relative error of one rounding; the errors of a function's steps add up
ROUNDING = {dtypes.float16: 2.0**-11, dtypes.bfloat16: 2.0**-8, dtypes.float64: 2.0**-53}


# polynomials with this error in every dtype
@pytest.mark.sample(3)
@pytest.mark.parametrize("name", UNARY)
def test_function_of_other_floats(name: str) -> None:
    case = UNARY[name]
    x = arrays([(7,)], case.low / 4 if case.low < 0 else case.low, case.high / 4)[0]
    values = [rounded(x, dtype) for dtype in ROUNDING]
    found = [getattr(Tensor(x, dtype=dtype), name)() for dtype in ROUNDING]
    Tensor.realize(*found)
    for result, value, (dtype, rounding) in zip(found, values, ROUNDING.items(), strict=True):
        assert result.dtype == dtype
        error = 32 * rounding
        assert_close(result.numpy(), case.numpy(value.astype(np.float64)), error, error, str(dtype))


KEEPS_INTEGERS = {"abs", "ceil", "floor", "neg", "relu", "round", "sign", "square", "trunc"}
KEEPS_INTEGERS |= {"hardtanh", "relu6"}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", UNARY)
def test_function_of_integers_and_bools(name: str) -> None:
    # inside the domain of every function
    for x in (np.array([1, 1, 1], np.int32), np.array([1, 1, 1], np.uint8), np.array([True])):
        found = getattr(Tensor(x), name)()
        with np.errstate(divide="ignore"):
            expected = UNARY[name].numpy(x.astype(np.float64))
        if name in KEEPS_INTEGERS:
            assert not found.is_floating_point()
            expected = (~x if x.dtype == bool else -x) if name == "neg" else expected
        else:
            assert found.dtype == dtypes.float32
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-6)


OF_FLOATS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(),
    "log_softmax": lambda x: x.log_softmax(),
    "logsumexp": lambda x: x.logsumexp(),
    "logcumsumexp": lambda x: x.logcumsumexp(),
    "gelu": lambda x: x.gelu(),
    "lerp": lambda x: x.lerp(x.flip(0), 0.25),
    "cross entropy of logits": lambda x: x.binary_crossentropy_logits(x > 1),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", OF_FLOATS)
def test_functions_of_floats_do_not_wrap_around_on_integers(name: str) -> None:
    small = np.array([0, 1, 1])
    for x in (np.array([-128, 127, 12], np.int8), small.astype(np.uint8), small.astype(bool)):
        found, wanted = OF_FLOATS[name](Tensor(x)), OF_FLOATS[name](Tensor(x).float())
        assert found.dtype is wanted.dtype
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)


FLAT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sign": lambda x, y: x.sign(),
    "floor": lambda x, y: x.floor(),
    "ceil": lambda x, y: x.ceil(),
    "trunc": lambda x, y: x.trunc(),
    "round": lambda x, y: x.round(),
    "zeroth power": lambda x, y: x**0,
    "floor division": lambda x, y: x // y,
    "truncated division": lambda x, y: x.div(y, rounding_mode="trunc"),
    "sign of the second": lambda x, y: Tensor([2.0, 3.0, 4.0]).copysign(x),
}


@pytest.mark.parametrize("name", FLAT)
def test_the_gradient_of_a_constant_function_is_zero(name: str) -> None:
    x, y = Tensor([-1.5, 0.0, 2.0], requires_grad=True), Tensor([1.0, -3.0, 0.7])
    value = FLAT[name](x, y)
    assert value.sum().gradient(x)[0].tolist() == [0, 0, 0]
    # beside another function
    assert (value + x * 3).sum().gradient(x)[0].tolist() == [3, 3, 3]


def test_gelu_is_exact_without_an_approximation() -> None:
    function = lambda x: x.gelu(approximate="none")  # noqa: E731
    exact = lambda x: x / 2 * (1 + error_function(x / math.sqrt(2)))  # noqa: E731
    compare(arrays([(4, 9)], -6, 6), exact, function, second=True)
    x = Tensor([-1.0, 2.0])
    assert x.gelu("tanh").tolist() == x.gelu().tolist() != x.gelu("none").tolist()
    with pytest.raises(ValueError, match="approximate='erf' is not"):
        x.gelu(approximate="erf")


def test_powers_of_ten_have_exact_logarithms() -> None:
    exponents = list(range(-5, 11))
    for dtype in (dtypes.float32, dtypes.float64):
        powers = Tensor([10.0**n for n in exponents], dtype=dtype)
        np.testing.assert_allclose(powers.log10().numpy(), exponents, rtol=3e-7)


def test_the_gradient_of_copysign_turns_with_the_sign() -> None:
    x = Tensor([-1.5, 0.0, 2.0, 3.0], requires_grad=True)
    copied = x.copysign(Tensor([1.0, -1.0, -2.0, 5.0]))
    assert copied.sum().gradient(x)[0].tolist() == [-1, 0, -1, 1]
    zeros = Tensor([-0.0, -0.0, 0.0]).copysign(Tensor([-2.0, 3.0, -0.0])).numpy()
    np.testing.assert_array_equal(np.signbit(zeros), [True, False, True])


def test_the_gradient_of_a_remainder() -> None:
    x, y = Tensor([-1.5, 5.0, 7.3], requires_grad=True), Tensor([1.0, -1.5, -2.0])
    y.requires_grad = True
    by_x, by_y = (x % y).sum().gradient(x, y)
    assert by_x.tolist() == [1, 1, 1]
    assert by_y.tolist() == [2, 4, 4]


def test_the_inverse_hyperbolic_cosine_is_nan_outside_its_domain() -> None:
    x = Tensor([0.5, -2.0, -0.5, -math.inf], requires_grad=True)
    assert np.isnan(x.acosh().numpy()).all()
    (slope,) = x.acosh().sum().gradient(x)
    assert np.isnan(slope.numpy()).all()


def test_a_quotient_of_large_exponentials() -> None:
    for dtype, value in ((dtypes.float64, 300.0), (dtypes.float32, 80.0)):
        x = Tensor([value], dtype=dtype, requires_grad=True)
        y = x.exp() / (1 + x.exp())
        assert y.item() == 1
        assert y.sum().gradient(x)[0].item() == 0


def test_sign_and_absolute_value_of_integers() -> None:
    x = np.array([-(2**31) + 1, -5, 0, 7], np.int32)
    compare([x], np.abs, Tensor.abs)
    compare([x], np.sign, Tensor.sign)


VIEWS: dict[str, Callable[[Array], Tensor]] = {
    "permuted": lambda x: Tensor(np.ascontiguousarray(x.T)).realize().T,
    "flipped": lambda x: Tensor(np.ascontiguousarray(x[::-1])).realize().flip(0),
    "strided": lambda x: Tensor(np.repeat(x, 2, axis=1)).realize()[:, ::2],
    "expanded": lambda x: Tensor(x[None]).realize().expand(3, *x.shape)[1],
    "padded and shrunk": lambda x: Tensor(x).realize().pad(((1, 1), (2, 0)))[1:-1, 2:],
}


@pytest.mark.parametrize("view", VIEWS)
def test_functions_of_views(view: str) -> None:
    names = ["exp", "relu", "sin", "tanh", "gelu", "round", "abs", "erf"]
    x = arrays([(3, 5)])[0]
    made = VIEWS[view](x)
    found = [*(getattr(made, name)() for name in names), made + made.flip(1), made * made[:1]]
    Tensor.realize(*found)
    expected = [*(UNARY[name].numpy(x) for name in names), x + x[:, ::-1], x * x[:1]]
    for result, wanted, name in zip(found, expected, [*names, "sum", "product"], strict=True):
        assert_close(result.numpy(), wanted, 2e-5, 1e-6, name)


def test_functions_of_empty_tensors_and_scalars() -> None:
    found = {name: getattr(Tensor(0.5), name)() for name in UNARY if name != "acosh"}
    Tensor.realize(*found.values())
    for name, result in found.items():
        expected = np.asarray(UNARY[name].numpy(np.float64(0.5)))
        assert_close(result.numpy(), expected, 2e-5, 1e-6, name)
        assert getattr(Tensor.ones(0, 3), name)().numpy().shape == (0, 3)


KINKS: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "relu": (Tensor.relu, 0.0, 0.0),
    "relu6": (Tensor.relu6, 0.0, 0.0),
    "abs": (Tensor.abs, 0.0, 0.0),
    "leaky_relu": (Tensor.leaky_relu, 0.0, 0.01),
    "sign": (Tensor.sign, 0.0, 0.0),
    "round": (Tensor.round, 0.5, 0.0),
    "hardtanh": (Tensor.hardtanh, 1.0, 1.0),
    "maximum": (lambda x: x.maximum(0), 0.0, 0.5),
    "minimum": (lambda x: x.minimum(0), 0.0, 0.5),
    "clip": (lambda x: x.clip(1, 2), 1.0, 1.0),
    "sqrt": (Tensor.sqrt, 0.0, math.inf),
    "square root of a square": (lambda x: x.square().sqrt(), 0.0, math.nan),
    "power": (lambda x: x**2.5, 0.0, 0.0),
    "first power": (lambda x: x.pow(Tensor([1.0])), 0.0, 1.0),
    "relu of NaN": (Tensor.relu, math.nan, 1.0),
    "clip of NaN": (lambda x: x.clip(1, 2), math.nan, 1.0),
    "maximum of NaN": (lambda x: x.maximum(0), math.nan, 1.0),
    "minimum of NaN": (lambda x: x.minimum(0), math.nan, 1.0),
    "maximum with NaN": (lambda x: x.maximum(math.nan), 2.0, 1.0),
    "minimum with NaN": (lambda x: x.minimum(math.nan), 2.0, 1.0),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", KINKS)
def test_gradient_at_a_kink(name: str) -> None:
    function, place, slope = KINKS[name]
    x = Tensor([place], requires_grad=True)
    (found,) = function(x).sum().gradient(x, materialize_grads=True)
    np.testing.assert_allclose(found.item(), slope)


@pytest.mark.sample(4)
@pytest.mark.parametrize("op", sorted(GroupOp.Elementary))
def test_compiled_functions_are_as_accurate_as_evaluated_ones(op: Ops) -> None:
    for dtype in filter(is_dtype_supported, (dtypes.float32, dtypes.float64)):
        values = arguments(dtype)
        x = Tensor(values)
        got = x._derive(x.uop.alu(op)).numpy()
        has_subnormals = Device[Device.DEFAULT].target.has_subnormals
        assert max_error(op, dtype, got, has_subnormals=has_subnormals)[0] <= 2.5


def test_rounding_keeps_the_sign_of_zero() -> None:
    values = np.array([0.0, -0.0, 0.3, -0.3, 0.5, -0.5, -0.7], np.float32)
    found = Tensor(values).round().numpy()
    np.testing.assert_array_equal(found, np.round(values))
    np.testing.assert_array_equal(np.signbit(found), np.signbit(values))


@pytest.mark.parametrize("decimals", [0, 1, 2, -1, -2])
def test_round_takes_a_number_of_decimals(decimals: int) -> None:
    values = np.array([0.0, 1.25, -1.375, 12.5, 149.0, -3751.0, 0.005], np.float64)
    np.testing.assert_allclose(round(Tensor(values), decimals).numpy(), np.round(values, decimals))
    integers = np.array([5, 15, -25, 149, 1250])
    np.testing.assert_array_equal(
        Tensor(integers).round(decimals).numpy(), np.round(integers, decimals)
    )
    half = Tensor(values[:4].astype(np.float16)).round(decimals)
    assert half.dtype is dtypes.float16
    with pytest.raises(ValueError, match="40 decimals"):
        half.round(40)


def test_divmod_and_positive_are_operators() -> None:
    x = Tensor([7, -7])
    assert [y.tolist() for y in divmod(x, 3)] == [[2, -3], [1, 2]]
    assert [y.tolist() for y in divmod(20, x)] == [[2, -3], [6, -1]]
    assert (+x).tolist() == [7, -7]
    assert math.trunc(Tensor(-2.7)) == -2
