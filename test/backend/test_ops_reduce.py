"""Reductions, statistics, running reductions and sorting against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.backend.oracle import arrays, compare, torch
from tinygrad import Tensor, dtypes

AXES = [None, 0, 1, -1, (0, 2), (0, 1, 2)]


def over(axis: Any, keepdim: bool) -> dict[str, Any]:
    """torch's arguments for an axis; it takes a tuple for all axes."""
    return {"dim": (0, 1, 2) if axis is None else axis, "keepdim": keepdim}


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("sum", "sum"),
        ("mean", "mean"),
        ("max", "amax"),
        ("min", "amin"),
        ("logsumexp", "logsumexp"),
    ],
)
def test_reduction(name: str, theirs: str, axis: Any, keepdim: bool) -> None:
    compare(
        arrays([(3, 4, 5)]),
        lambda x: getattr(torch, theirs)(x, **over(axis, keepdim)),
        lambda x: getattr(x, name)(axis, keepdim=keepdim),
    )


@pytest.mark.parametrize("correction", [0, 1, 5])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
@pytest.mark.parametrize("name", ["var", "std"])
def test_spread(name: str, axis: Any, correction: int) -> None:
    compare(
        arrays([(3, 8, 5)]),
        lambda x: getattr(torch, name)(x, **over(axis, False), correction=correction),
        lambda x: getattr(x, name)(axis, correction=correction),
    )


@pytest.mark.parametrize("name", ["var_mean", "std_mean"])
def test_spread_and_mean(name: str) -> None:
    compare(arrays([(3, 5)]), lambda x: getattr(torch, name)(x, 1), lambda x: getattr(x, name)(1))


@pytest.mark.parametrize("axis", [0, 1])
def test_product(axis: int) -> None:
    compare(arrays([(4, 5)]), lambda x: x.prod(axis), lambda x: x.prod(axis))


def test_gradient_of_a_product_with_zeros() -> None:
    x = np.array([[1, 2, 3], [0, 2, 3], [0, 0, 3]], np.float32)
    compare([x], lambda x: x.prod(1), lambda x: x.prod(1))


def test_equal_maxima_share_the_gradient() -> None:
    x = np.array([[1, 3, 3], [2, 2, 2]], np.float32)
    compare([x], lambda x: x.amax(1), lambda x: x.max(1))
    compare([x], lambda x: x.amin(1), lambda x: x.min(1))


@pytest.mark.parametrize("name", ["any", "all"])
@pytest.mark.parametrize("axis", [0, 1])
def test_quantifier(name: str, axis: int) -> None:
    x = np.array([[True, True], [False, True], [False, False]])
    compare([x], lambda x: getattr(x, name)(axis), lambda x: getattr(x, name)(axis))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_integers(name: str, dtype: Any) -> None:
    limits = [0, 1] if dtype is np.bool_ else [np.iinfo(dtype).min, 0, 3, np.iinfo(dtype).max]
    x = np.array(limits, dtype)
    assert getattr(Tensor(x), name)().item() == getattr(x, name)().item()


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (dtypes.int8, dtypes.int32),
        (dtypes.uint8, dtypes.uint32),
        (dtypes.bool, dtypes.int32),
        (dtypes.int64, dtypes.int64),
        (dtypes.float16, dtypes.float16),
    ],
)
def test_dtype_of_a_sum(dtype: Any, expected: Any) -> None:
    assert Tensor([1, 1], dtype=dtype).sum().dtype == expected
    assert Tensor([1, 1], dtype=dtype).cumsum().dtype == expected


def test_half_sums_do_not_saturate_on_the_way() -> None:
    x = Tensor(np.full(4096, 2.0, np.float16))
    assert x.sum().item() == 8192.0
    assert x.mean().item() == 2.0


def test_reductions_of_nothing() -> None:
    empty = Tensor.zeros(0, 3)
    assert empty.sum(0).tolist() == [0.0, 0.0, 0.0]
    assert empty.prod(0).tolist() == [1.0, 1.0, 1.0]
    assert empty.max(0).tolist() == [-np.inf] * 3


def test_large_sum() -> None:
    x = arrays([(1000, 1000)])[0]
    compare([x], lambda x: x.sum(), lambda x: x.sum(), rtol=1e-4, atol=1e-2)


def test_an_axis_that_there_is_not_is_named() -> None:
    with pytest.raises(IndexError, match=r"no axis 2 in shape \(3, 4\)"):
        Tensor.ones(3, 4).sum(2)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_position_of_the_first_extreme(name: str, axis: int | None) -> None:
    x = np.array([[2, 5, 5, 1], [7, 1, 7, 1], [2, 2, 2, 2]], np.float32)
    found = getattr(Tensor(x), name)(axis)
    assert found.dtype == dtypes.int32
    np.testing.assert_array_equal(found.numpy(), getattr(np, name)(x, axis))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name: str, axis: int) -> None:
    compare(arrays([(3, 4, 5)]), lambda x: getattr(x, name)(axis), lambda x: getattr(x, name)(axis))
    far = arrays([(3, 4, 5)], -1000, 1000)
    compare(far, lambda x: getattr(x, name)(axis), lambda x: getattr(x, name)(axis))


def test_logsumexp_of_infinities() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 1], [-np.inf, 2]], np.float32)
    compare([x], lambda x: x.logsumexp(1), lambda x: x.logsumexp(1), gradient=False)


# ---- running reductions ----

LENGTHS = [1, 5, 127, 129, 1000, 5000]


@pytest.mark.parametrize("length", LENGTHS)
def test_running_sum(length: int) -> None:
    compare(
        arrays([(2, length)], -1, 1),
        lambda x: x.cumsum(1),
        lambda x: x.cumsum(1),
        rtol=1e-4,
        atol=1e-4,
        gradient_atol=1e-3,
    )


@pytest.mark.parametrize("length", [1, 5, 129, 1000])
def test_running_maximum(length: int) -> None:
    x = arrays([(length, 2)])[0]
    compare([x], lambda x: x.cummax(0).values, lambda x: x.cummax(0)[0])


@pytest.mark.parametrize("length", [1, 5, 200])
def test_running_product(length: int) -> None:
    x = arrays([(2, length)], 0.9, 1.1)
    compare(
        x,
        lambda x: x.cumprod(1),
        lambda x: x.cumprod(1),
        rtol=1e-4,
        gradient_rtol=1e-3,
        gradient_atol=1e-2,
    )


def test_running_logsumexp() -> None:
    compare(arrays([(3, 20)], -50, 50), lambda x: x.logcumsumexp(1), lambda x: x.logcumsumexp(1))


# ---- sorting ----


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("length", [1, 2, 7, 100, 300])
def test_sort_is_stable(length: int, descending: bool) -> None:
    x = (
        np.random.default_rng(length)
        .integers(0, max(2, length // 3), (3, length))
        .astype(np.float32)
    )
    compare(
        [x],
        lambda x: torch.sort(x, dim=1, descending=descending, stable=True),
        lambda x: x.sort(1, descending=descending),
    )


def test_sort_along_the_first_axis_and_of_integers() -> None:
    x = np.random.default_rng(0).integers(-9, 9, (20, 3)).astype(np.int32)
    compare([x], lambda x: torch.sort(x, dim=0, stable=True), lambda x: x.sort(0))


@pytest.mark.parametrize("largest", [True, False])
def test_topk(largest: bool) -> None:
    x = np.random.default_rng(0).permutation(60).reshape(3, 20).astype(np.float32)
    compare([x], lambda x: torch.topk(x, 4, 1, largest), lambda x: x.topk(4, 1, largest))


def test_more_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="topk: 4 values of an axis of size 3"):
        Tensor([1, 2, 3]).topk(4)
