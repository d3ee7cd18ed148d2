"""Reductions, statistics and cumulative ops against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.ops.oracle import WITH_NAN, Array, arrays, compare, torch
from test.sharding.common import GRID, on, placed
from tinygrad import Tensor, dtypes

AXES = [None, 0, 1, -1, (0, 2), (-1, 0, 1), [1, 2]]


def log_sum_exp(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    largest = np.max(x, axis, keepdims=True)
    largest = np.where(np.isinf(largest), 0, largest)
    total = np.log(np.sum(np.exp(x - largest), axis, keepdims=True)) + largest
    return total if keepdims else total.reshape(np.sum(x, axis).shape)


def softmax(x: Array, axis: int = -1) -> Array:
    return np.exp(log_softmax(x, axis))


def log_softmax(x: Array, axis: int = -1) -> Array:
    return x - log_sum_exp(x, axis, True)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "logsumexp": log_sum_exp,
    "prod": np.prod,
    "var": lambda x, axis, keepdims: np.var(x, axis, ddof=1, keepdims=keepdims),
    "std": lambda x, axis, keepdims: np.std(x, axis, ddof=1, keepdims=keepdims),
}


@pytest.mark.sample(18)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_and_its_first_two_gradients(name: str, axis: Any, keepdim: bool) -> None:
    axes = tuple(axis) if isinstance(axis, list) else axis
    # each derivative of a product is a product for each element
    shape = (2, 3, 2) if name == "prod" else (3, 4, 5)
    compare(
        arrays([shape], 0.3, 1.5),
        lambda x: REDUCTIONS[name](x, axes, keepdims=keepdim),
        lambda x: getattr(x, name)(axis, keepdim=keepdim),
        second=True,
        rtol=2e-5,
        gradient_rtol=1e-3,
    )


def test_a_reduction_over_no_axis_changes_nothing() -> None:
    x = arrays([(2, 3)])[0]
    for name in ("sum", "max", "mean", "prod"):
        compare([x], lambda x: x, lambda x, name=name: getattr(x, name)(()), gradient=False)


SHAPES: list[tuple[int, ...]] = [(), (1,), (1, 1), (1, 4), (4, 1), (3, 0), (0,)]


@pytest.mark.sample(2)
@pytest.mark.filterwarnings("ignore:Mean of empty", "ignore:invalid value")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "logsumexp"])
def test_reduction_of_small_shapes(name: str, shape: tuple[int, ...]) -> None:
    if 0 in shape and name == "logsumexp":
        assert Tensor.zeros(shape).logsumexp().item() == -np.inf
        return
    function = lambda x: REDUCTIONS[name](x, None, keepdims=False)  # noqa: E731
    compare(arrays([shape], 0.5, 2), function, lambda x: getattr(x, name)())


VIEWS: dict[str, Callable[[Any], Any]] = {
    "permuted": lambda x: x.transpose(0, 2) if isinstance(x, Tensor) else x.swapaxes(0, 2),
    "cut": lambda x: x[1:, ::2, 1:-1],
    "turned": lambda x: x[:, ::-1],
    "expanded": lambda x: x[:, :1] + 0 * x[:1],
}


@pytest.mark.parametrize("view", VIEWS)
def test_reductions_of_views(view: str) -> None:
    made = VIEWS[view]
    for name in ("sum", "max", "mean"):
        compare(
            arrays([(3, 4, 5)]),
            lambda x, name=name: REDUCTIONS[name](made(x), (0, 2), keepdims=False),
            lambda x, name=name: getattr(made(x), name)((0, 2)),
        )
    x = arrays([(3, 4, 5)])[0]
    np.testing.assert_array_equal(made(Tensor(x)).argmax(1).numpy(), made(x).argmax(1))
    found = made(Tensor(x)).cumsum(1).numpy()
    np.testing.assert_allclose(found, made(x).cumsum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.sample(4)
@pytest.mark.parametrize("correction", [0, 1, 5])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
@pytest.mark.parametrize("name", ["var", "std"])
def test_variance_and_standard_deviation(name: str, axis: Any, correction: int) -> None:
    compare(
        arrays([(3, 8, 5)]),
        lambda x: getattr(np, name)(x, axis, ddof=correction),
        lambda x: getattr(x, name)(axis, correction=correction),
        gradient_atol=1e-4,
    )


def test_the_variance_of_large_numbers_does_not_suffer_from_the_rounding_of_their_mean() -> None:
    x = (1e7 + np.random.default_rng(0).standard_normal((2, 2000))).astype(np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(Tensor(x).var(1).numpy(), wide.var(1, ddof=1), 1e-6)
    np.testing.assert_allclose(Tensor(x).std().numpy(), wide.std(ddof=1), 1e-6)


SPREADS = [(1e20, 1e19), (-3e37, 3e36), (0, 1e-30), (1e-30, 1e-31), (0, 1e-35), (0, 1e30), (5, 0)]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16])
@pytest.mark.parametrize(("mean", "deviation"), SPREADS)
def test_the_spread_of_very_large_and_small_numbers(
    mean: float, deviation: float, dtype: Any
) -> None:
    drawn = mean + deviation * np.random.default_rng(0).standard_normal((3, 40, 5))
    x = Tensor(drawn.astype(np.float32)).cast(dtype).realize().requires_grad_()
    wide = x.float().numpy().astype(np.float64)
    centered = wide - wide.mean(1, keepdims=True)
    expected = np.std(wide, 1, ddof=1)
    # the mean, the results and the gradients are rounded
    rtol = {dtypes.float32: 1e-5, dtypes.bfloat16: 2.0**-7}[dtype]
    std = x.std(1)
    np.testing.assert_allclose(std.float().numpy(), expected, rtol=rtol)
    share = centered / np.where(expected == 0, 1, 39 * expected)[:, None]
    gradient = std.sum().gradient(x)[0].float().numpy()
    np.testing.assert_allclose(gradient, share, rtol=rtol, atol=rtol * np.abs(share).max())
    with np.errstate(over="ignore"):
        variance = np.var(wide, 1, ddof=1).astype(np.float32)
    # subnormal numbers have few bits
    np.testing.assert_allclose(x.var(1).float().numpy(), variance, rtol=rtol, atol=1e-44)
    gradient = x.var(1).sum().gradient(x)[0].float().numpy()
    share = 2 / 39 * centered
    np.testing.assert_allclose(gradient, share, rtol=rtol, atol=rtol * np.abs(share).max())


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_spread_of_large_numbers_in_layouts(axis: int) -> None:
    drawn = 1e20 + 1e19 * np.random.default_rng(0).standard_normal((4, 8, 4))
    x = placed(drawn.astype(np.float32), on(axis))
    expected = x.numpy().astype(np.float64).std((0, 1), ddof=1)
    np.testing.assert_allclose(x.std((0, 1)).numpy(), expected, rtol=1e-5)


def test_the_second_gradient_of_a_deviation_of_small_numbers_is_that_of_large_ones() -> None:
    drawn = np.random.default_rng(0).standard_normal(10).astype(np.float32)

    def second(scale: float) -> Array:
        x = Tensor(drawn * np.float32(scale)).requires_grad_()
        (first,) = x.std().gradient(x)
        return (first * Tensor(drawn)).sum().gradient(x)[0].numpy() * scale

    np.testing.assert_allclose(second(2.0**-90), second(1.0), rtol=1e-5)


def test_variance_of_as_many_elements_as_the_correction_is_nan() -> None:
    assert np.isnan(Tensor([1.0]).var().item())
    assert np.isnan(Tensor(2.5).std().item())
    assert Tensor([1.0, 3.0]).var(correction=3).item() == np.inf


def test_the_gradient_of_the_deviation_of_equal_elements_is_zero():
    x = Tensor([[2.0, 2.0], [1.0, 3.0]], requires_grad=True)
    x.std(1).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [[0, 0], [-(0.5**0.5), 0.5**0.5]], rtol=1e-6)


@pytest.mark.parametrize("name", ["var_mean", "std_mean"])
def test_variance_and_mean(name: str) -> None:
    first = getattr(np, name.removesuffix("_mean"))
    compare(
        arrays([(3, 5)]),
        lambda x: (first(x, 1, ddof=1), x.mean(1)),
        lambda x: getattr(x, name)(1),
        lambda x: getattr(torch, name)(x, 1),
    )


def test_first_two_gradients_of_a_product_with_zeros() -> None:
    x = np.array([[1, 2, 3], [0, 2, 3], [0, 0, 3]], np.float32)
    product = lambda x: x.prod(1)  # noqa: E731
    compare([x], product, product, product, second=True)


@pytest.mark.parametrize("name", ["max", "min"])
def test_equal_extremes_share_the_gradient(name: str) -> None:
    x = Tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [3.0, 1.0, 1.0]], requires_grad=True)
    (found,) = getattr(x, name)(1).sum().gradient(x)
    third = 1 / 3
    shares = {
        "max": [[0, 0.5, 0.5], [third] * 3, [1, 0, 0]],
        "min": [[1, 0, 0], [third] * 3, [0, 0.5, 0.5]],
    }
    np.testing.assert_allclose(found.numpy(), shares[name], rtol=1e-6)


@pytest.mark.parametrize("name", ["any", "all"])
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
def test_any_and_all(name: str, axis: Any) -> None:
    x = np.array([[True, True], [False, True], [False, False]])
    for values in (x, x * np.float32(0.5), x * np.int32(-3)):
        compare(
            [values],
            lambda x: getattr(np, name)(x, axis),
            lambda x: getattr(x, name)(axis),
            gradient=False,
        )


INTEGERS = [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64, np.bool_]


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_integers(name: str, dtype: Any) -> None:
    limits = [0, 1] if dtype is np.bool_ else [np.iinfo(dtype).min, 0, 3, np.iinfo(dtype).max]
    x = np.array(limits, dtype)
    assert getattr(Tensor(x), name)().item() == getattr(x, name)().item()
    assert getattr(Tensor(x), f"arg{name}")().item() == getattr(x, f"arg{name}")()
    assert Tensor(x).sort(descending=True)[0].tolist() == sorted(limits, reverse=True)


@pytest.mark.parametrize(
    ("dtype", "total", "product", "mean"),
    [
        (dtypes.int8, dtypes.int32, dtypes.int32, dtypes.float32),
        (dtypes.uint16, dtypes.uint32, dtypes.uint32, dtypes.float32),
        (dtypes.bool, dtypes.int32, dtypes.int32, dtypes.float32),
        (dtypes.int64, dtypes.int64, dtypes.int64, dtypes.float32),
        (dtypes.float16, dtypes.float16, dtypes.float16, dtypes.float16),
        (dtypes.bfloat16, dtypes.bfloat16, dtypes.bfloat16, dtypes.bfloat16),
        (dtypes.float64, dtypes.float64, dtypes.float64, dtypes.float64),
    ],
)
def test_dtype_of_a_reduction(dtype: Any, total: Any, product: Any, mean: Any) -> None:
    x = Tensor([1, 1], dtype=dtype)
    assert x.sum().dtype == x.cumsum().dtype == total
    assert x.prod().dtype == x.cumprod(0).dtype == product
    assert x.max().dtype == dtype
    assert x.mean().dtype == x.var().dtype == mean
    assert x.sum(dtype=dtypes.float64).dtype == x.prod(dtype="double").dtype == dtypes.float64
    assert (x.sum().item(), x.prod().item(), x.mean().item()) == (2, 1, 1)


def test_sums_and_products_of_small_integers_do_not_wrap() -> None:
    x = Tensor([200, 200, 3], dtype=dtypes.uint8)
    assert x.sum().item() == 403
    assert x.cumsum().tolist() == [200, 400, 403]
    assert x.prod().item() == 200 * 200 * 3
    assert x.prod(dtype=dtypes.uint8).item() == 200 * 200 * 3 % 256
    assert x.cumprod(0).tolist() == [200, 200 * 200, 200 * 200 * 3]
    assert Tensor([True, True]).prod().item() == 1


def test_half_precision_sums_are_accumulated_in_float32() -> None:
    x = Tensor(np.full(4096, 2.0, np.float16))
    assert x.sum().item() == 8192.0
    assert x.mean().item() == 2.0


def test_reductions_of_no_elements() -> None:
    empty = Tensor.zeros(0, 3)
    assert empty.sum(0).tolist() == [0.0, 0.0, 0.0]
    assert empty.prod(0).tolist() == [1.0, 1.0, 1.0]
    assert empty.max(0).tolist() == [-np.inf] * 3
    assert empty.min(0).tolist() == [np.inf] * 3
    assert empty.any(0).tolist() == [False] * 3
    assert empty.all(0).tolist() == [True] * 3
    assert np.isnan(empty.mean(0).numpy()).all()
    assert np.isnan(empty.var(0).numpy()).all()
    assert empty.sum(1).shape == empty.max(1).shape == empty.argmax(1).shape == (0,)
    assert empty.softmax(0).shape == empty.cumsum(0).shape == empty.sort(0)[0].shape == (0, 3)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argmax_of_no_elements_is_an_error(name: str) -> None:
    for x, axis in ((Tensor.zeros(0, 3), 0), (Tensor.zeros(0), None), (Tensor.zeros(2, 0), -1)):
        with pytest.raises(ValueError, match="argmax and argmin need a nonempty axis"):
            getattr(x, name)(axis)


@pytest.mark.parametrize("shape", [(136,), (2, 100), (17, 8), (3, 1000)])
def test_sum_of_an_expanded_number(shape: tuple[int, ...]) -> None:
    x = Tensor([3.0, 5.0]).realize()
    assert x[1].expand(*shape).sum().item() == 5 * np.prod(shape)


def test_large_sum() -> None:
    x = arrays([(1000, 1000)])[0]
    assert Tensor(x).sum().item() == pytest.approx(x.astype(np.float64).sum(), rel=1e-4, abs=1e-2)


# ---- NaN and infinities ----

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod"])
def test_nan_propagates_through_a_reduction(name: str) -> None:
    function = REDUCTIONS[name]
    for axis in (0, 1):
        compare(
            [WITH_NAN],
            lambda x, axis=axis: function(x, axis, keepdims=False),
            lambda x, axis=axis: getattr(x, name)(axis),
            gradient=False,
        )


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_position_of_the_first_extreme_or_nan(name: str, axis: int | None) -> None:
    ties = np.array([[2, 5, 5, 1], [7, 1, 7, 1], [2, 2, 2, 2]], np.float32)
    for x in (ties, ties.astype(np.int32), ties > 2, WITH_NAN):
        found = getattr(Tensor(x), name)(axis)
        assert found.dtype == dtypes.int32
        np.testing.assert_array_equal(found.numpy(), getattr(np, name)(x, axis))
        kept = getattr(Tensor(x), name)(axis if axis is not None else 0, keepdim=True)
        assert kept.shape == ((len(x), 1) if axis == 1 else (1, x.shape[1]))


def test_argmax_has_no_gradient() -> None:
    assert not Tensor([1.0, 2.0], requires_grad=True).argmax().requires_grad


# ---- exponentials ----


@pytest.mark.sample(4)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name: str, axis: int) -> None:
    ours = lambda x: getattr(x, name)(axis)  # noqa: E731
    expected = {"softmax": softmax, "log_softmax": log_softmax}[name]
    compare(arrays([(3, 4, 5)]), lambda x: expected(x, axis), ours, ours, second=True)
    far = arrays([(3, 4, 5)], -1000, 1000)
    compare(far, lambda x: expected(x, axis), ours, ours, gradient_atol=1e-4)


def test_softmax_of_integers_of_a_scalar_and_in_another_dtype() -> None:
    assert Tensor([1, 1]).softmax().tolist() == [0.5, 0.5]
    assert Tensor(3.0).softmax().item() == 1.0
    x = Tensor([1.0, 1.0], dtype=dtypes.float16)
    assert x.softmax(dtype=dtypes.float32).dtype == dtypes.float32
    assert x.log_softmax(dtype="float").dtype == dtypes.float32


def test_softmax_with_infinities() -> None:
    x = np.array([[-INF, 0.0], [-INF, -INF], [INF, 0.0], [NAN, 0.0]], np.float32)
    found = Tensor(x).softmax(1).numpy()
    np.testing.assert_array_equal(found, [[0, 1], [NAN, NAN], [NAN, NAN], [NAN, NAN]])


def test_logsumexp_of_infinities() -> None:
    x = np.array([[-INF, -INF], [INF, 1], [-INF, 2], [NAN, 1]], np.float32)
    compare([x], lambda x: log_sum_exp(x, 1), lambda x: x.logsumexp(1), gradient=False)


@pytest.mark.parametrize("columns", [512, 1100])
def test_rounding_errors_of_long_columns_grow_with_the_root_of_their_length(columns: int) -> None:
    # equal numbers, so that the errors of one accumulator would not average out
    length = 20_000
    x = Tensor(np.full((length, columns), 0.1, np.float32)).realize()
    for found, number in ((x.sum(0), np.float32(0.1)), (x.sqrt().sum(0), np.sqrt(np.float32(0.1)))):
        np.testing.assert_allclose(found.numpy(), length * float(number), rtol=3e-6)


# ---- cumulative ops ----


@pytest.mark.parametrize("length", [1, 5, 127, 129, 1000, 1001, 5000])
def test_cumsum(length: int) -> None:
    x = arrays([(2, length)], -1, 1)
    expected = np.cumsum(x[0].astype(np.float64), 1)
    np.testing.assert_allclose(Tensor(x[0]).cumsum(1).numpy(), expected, rtol=1e-4, atol=1e-4)
    if length <= 129:
        function = lambda x: x.cumsum(1)  # noqa: E731
        compare(x, function, function, function, atol=1e-5, gradient_atol=1e-4, second=length < 9)


@pytest.mark.parametrize("shape", [(7, 16), (37, 48), (2, 40, 33), (2, 200, 20)], ids=str)
def test_running_sums_of_rows_and_of_columns_and_their_gradients(shape: tuple[int, ...]) -> None:
    x, weights = arrays([shape, shape], -1, 1)
    for axis in range(len(shape)):
        tensor = Tensor(x, requires_grad=True)
        found = (tensor * 2).cumsum(axis)
        (found * Tensor(weights)).sum().backward()
        expected = np.cumsum(2 * x.astype(np.float64), axis)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)
        later = np.flip(np.cumsum(np.flip(2 * weights.astype(np.float64), axis), axis), axis)
        assert tensor.grad is not None
        np.testing.assert_allclose(tensor.grad.numpy(), later, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [1, 5, 200])
def test_cumprod(length: int) -> None:
    function = lambda x: x.cumprod(1)  # noqa: E731
    compare(
        arrays([(2, length)], 0.9, 1.1),
        function,
        function,
        function,
        rtol=1e-4,
        gradient_rtol=1e-3,
        gradient_atol=1e-2,
        second=length < 9,
    )


def running_maximum(x: Array) -> tuple[Array, Array]:
    """The cumulative maximum along axis 0, and the first position of each maximum."""
    positions = [x[: i + 1].argmax(0) for i in range(len(x))]
    return np.maximum.accumulate(x, 0), np.stack(positions).astype(np.int32)


@pytest.mark.parametrize("length", [1, 5, pytest.param(129, marks=pytest.mark.slow)])
def test_cummax(length: int) -> None:
    function = lambda x: x.cummax(0)  # noqa: E731
    compare(arrays([(length, 2)]), running_maximum, function, function, second=length < 9)


def test_cummax_has_the_first_position_of_equals_and_of_nan() -> None:
    integers = np.round(arrays([(140, 2)])[0] * 3).astype(np.int32)
    for x in (integers, integers[:9] > 0, WITH_NAN):
        compare([x], running_maximum, lambda x: x.cummax(-2), gradient=False)


@pytest.mark.sample(2)
@pytest.mark.parametrize("length", [9, pytest.param(140, marks=pytest.mark.slow)])
def test_of_equal_numbers_the_last_has_the_gradient_of_cummax(length: int) -> None:
    x = np.round(arrays([(3, length)])[0] * 2)
    x[1, 0], x[2, length // 2 :: 2] = np.inf, np.nan
    weights = arrays([x.shape], -1, 1, seed=1)[0]
    expected = np.zeros_like(x)
    for row, numbers in enumerate(x):
        last = 0
        for i, number in enumerate(numbers):
            if np.isnan(number) or number >= numbers[last]:
                last = i
            expected[row, last] += weights[row, i]
    for layout in (None, on(0), on(1), on((0, 1), GRID)):
        y = placed(x, layout)
        (found,) = (y.cummax(1)[0] * Tensor(weights).to(y.device)).sum().gradient(y)
        assert found.device == y.device
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def running_minimum(x: Array) -> tuple[Array, Array]:
    """The cumulative minimum along axis 0, and the first position of each minimum."""
    positions = [x[: i + 1].argmin(0) for i in range(len(x))]
    return np.minimum.accumulate(x, 0), np.stack(positions).astype(np.int32)


def test_cummin() -> None:
    function = lambda x: x.cummin(0)  # noqa: E731
    compare(arrays([(7, 2)]), running_minimum, function, second=True)
    integers = np.round(arrays([(40, 2)])[0] * 3)
    for x in (integers.astype(np.int32), integers.astype(np.uint8), integers > 0, WITH_NAN):
        compare([x], running_minimum, function, gradient=False)


def test_cummax_of_a_scalar_and_of_no_elements() -> None:
    assert [x.tolist() for x in Tensor(2.5).cummax()] == [2.5, 0]
    assert [x.tolist() for x in Tensor.zeros(0, 2).cummax()] == [[], []]
    assert Tensor([1.0]).cummax()[1].dtype == dtypes.int32


def test_logcumsumexp() -> None:
    expected = lambda x: np.logaddexp.accumulate(x, 1)  # noqa: E731
    function = lambda x: x.logcumsumexp(1)  # noqa: E731
    compare(arrays([(3, 20)], -50, 50), expected, function, function)
    compare(arrays([(3, 4)]), expected, function, function, second=True)
    compare([WITH_NAN], expected, function, function, gradient=False)


@pytest.mark.sample(4)
@pytest.mark.parametrize("length", [17, 130, 1000, 1001])
def test_logcumsumexp_of_blocks_keeps_prefixes_far_below_later_elements(length: int) -> None:
    x = arrays([(3, length)], -50, 50)[0]
    x[0, 3:12] = -np.inf
    found = Tensor(x).logcumsumexp(1).numpy()
    expected = np.logaddexp.accumulate(x.astype(np.float64), 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    function = lambda x: x.logcumsumexp(1)  # noqa: E731
    compare(arrays([(3, length)]), lambda x: np.logaddexp.accumulate(x, 1), function, function)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_cumulative_ops_along_every_axis(name: str) -> None:
    functions = {"cumsum": np.cumsum, "cumprod": np.cumprod, "logcumsumexp": None}
    x = arrays([(3, 4, 2)], 0.5, 1.5)[0]
    for axis in (0, 1, -1, -3):
        expected = (functions[name] or np.logaddexp.accumulate)(x.astype(np.float64), axis)
        found = getattr(Tensor(x), name)(axis)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


# ---- sums that exceed the dtype ----


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32, np.uint32, np.int64, np.uint64])
def test_means_of_integers_do_not_overflow(kind: Any) -> None:
    x = np.full((3, 5000), np.iinfo(kind).max, kind)
    x[0] = np.iinfo(kind).min
    found = Tensor(x).realize().mean(1)
    assert found.dtype is dtypes.float32
    np.testing.assert_array_equal(found.numpy(), x.astype(np.float64).mean(1).astype(np.float32))


def test_the_mean_of_an_image_is_exact() -> None:
    # its sum exceeds 32 bits
    image = Tensor.full((3, 4000, 3000), 120, dtype=dtypes.uint8).contiguous()
    assert image.mean().item() == 120
    assert Tensor([2000000000] * 2).mean().item() == 2000000000


def test_positions_past_32_bits_are_64_bits() -> None:
    x = Tensor.empty(2**31 + 8, dtype=dtypes.uint8)
    assert x.argmax().dtype is x.argmin().dtype is dtypes.int64
    assert x[: 2**31 - 1].argmax().dtype is dtypes.int32
    assert x[:7].argmax().dtype is dtypes.int32


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((20000,), 0),
        ((50000,), 0),
        ((100003,), 0),
        ((1 << 20,), 0),
        ((3, 20000), 1),
        ((20000, 48), 0),
        ((30, 4, 700), (0, 2)),
    ],
)
def test_the_error_of_a_long_sum_is_a_few_units_in_the_last_place(
    shape: tuple[int, ...], axis: int | tuple[int, ...]
) -> None:
    # equal elements round in one direction, so that errors add up
    values = np.full(shape, 0.1, np.float32)
    expected = values.astype(np.float64).sum(axis)
    found = Tensor(values).realize().sum(axis).numpy()
    np.testing.assert_allclose(found, expected, rtol=32 * float(np.finfo(np.float32).eps))
