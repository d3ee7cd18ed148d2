"""Sorting against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.backend.ops.oracle import Array, arrays, compare, torch
from tinygrad import Tensor, dtypes
from tinygrad.execution.realize import compiled_kernels


def stable_sort(x: Array, axis: int, descending: bool) -> tuple[Array, Array]:
    """NaN counts as the largest."""
    key = np.where(np.isnan(x), np.inf, x) if x.dtype.kind == "f" else x
    order = np.lexsort((key, np.isnan(x)), axis) if x.dtype.kind == "f" else None
    if descending:
        flipped = np.flip(x, axis)
        order = np.flip(stable_sort(flipped, axis, False)[1], axis)
        order = x.shape[axis] - 1 - order
    elif order is None:
        order = np.argsort(x, axis, kind="stable")
    return np.take_along_axis(x, order, axis), order.astype(np.int32)


@pytest.mark.sample(3)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("length", [1, 2, 7, 100, 300])
def test_sort_is_stable(length: int, descending: bool) -> None:
    random = np.random.default_rng(length)
    x = random.integers(0, max(2, length // 3), (3, length)).astype(np.float32)
    x[random.uniform(size=x.shape) < 0.1] = np.nan
    x[random.uniform(size=x.shape) < 0.1] = -0.0
    x[random.uniform(size=x.shape) < 0.1] = -np.inf
    compare(
        [x],
        lambda x: stable_sort(x, 1, descending),
        lambda x: x.sort(1, descending=descending),
        lambda x: torch.sort(x, dim=1, descending=descending, stable=True),
        gradient=False,
    )


def test_a_step_of_a_network_is_one_kernel_in_all_stages() -> None:
    compiled_kernels.clear()
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    np.testing.assert_array_equal(Tensor(values).sort()[0].numpy(), np.sort(values))
    # ten steps in 55 places, keys, directions, and the gather
    assert len(compiled_kernels) <= 15
    compiled_kernels.clear()
    np.testing.assert_array_equal(Tensor(values[:700]).sort()[0].numpy(), np.sort(values[:700]))
    assert len(compiled_kernels) <= 5


@pytest.mark.parametrize("axis", [0, 1, None])
def test_sort_on_shards_of_any_axis(axis: int | None) -> None:
    values = np.random.default_rng(0).standard_normal((4, 300)).astype(np.float32)
    x = Tensor(values).shard(("CPU:1", "CPU:2"), axis=axis)
    found, order = x.sort(1)
    np.testing.assert_array_equal(found.numpy(), np.sort(values, 1))
    np.testing.assert_array_equal(order.numpy(), np.argsort(values, 1, kind="stable"))


def test_sort_of_what_has_no_device() -> None:
    order = (Tensor.arange(300) * 7 % 300).argsort()
    np.testing.assert_array_equal(order.numpy(), np.argsort(np.arange(300) * 7 % 300))


def test_gradient_of_a_sort() -> None:
    x = arrays([(3, 9)])[0]
    compare([x], lambda x: stable_sort(x, 0, False), lambda x: x.sort(0), second=True)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "dtype", [dtypes.int8, dtypes.uint32, dtypes.int64, dtypes.bool, dtypes.float16, dtypes.double]
)
def test_sort_along_the_first_axis_of_other_dtypes(dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0, 9, (20, 3))
    values, order = Tensor(x, dtype=dtype).sort(0)
    expected = stable_sort(Tensor(x, dtype=dtype).numpy(), 0, False)
    assert values.dtype == dtype
    np.testing.assert_array_equal(values.numpy(), expected[0])
    np.testing.assert_array_equal(order.numpy(), expected[1])


def test_sort_of_a_scalar_and_of_views() -> None:
    assert [x.tolist() for x in Tensor(2.5).sort()] == [2.5, 0]
    x = arrays([(4, 6)])[0]
    found = Tensor(x).T.flip(0)[:, ::2].argsort(0, descending=True)
    np.testing.assert_array_equal(found.numpy(), stable_sort(x.T[::-1, ::2], 0, True)[1])


@pytest.mark.parametrize("largest", [True, False])
def test_topk(largest: bool) -> None:
    x = np.random.default_rng(0).permutation(60).reshape(3, 20).astype(np.float32)
    x[0, 4] = np.nan
    compare(
        [x],
        lambda x: [y[:, :4] for y in stable_sort(x, 1, largest)],
        lambda x: x.topk(4, 1, largest),
        lambda x: torch.topk(x, 4, 1, largest),
        gradient=False,
    )
    assert Tensor(x).topk(0)[0].shape == (3, 0)
    assert Tensor(x).topk(3, dim=0)[0].shape == (3, 20)


@pytest.mark.sample(3)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.uint32, dtypes.int32, dtypes.uint8])
def test_topk_of_few_elements_of_a_long_axis(dtype: Any, largest: bool) -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, (300, 3), dtype=np.uint32)
    bits[:2], bits[2] = [[0], [0xFFFFFFFF]], 1 << 31
    x = bits.view(np.int32) if dtype is dtypes.float32 else bits
    x = Tensor(x).cast(dtype).numpy()
    if dtype is dtypes.float32:
        x[5], x[6:8] = np.nan, np.inf
    values, order = Tensor(x).topk(5, 0, largest)
    expected = [y[:5] for y in stable_sort(x, 0, largest)]
    np.testing.assert_array_equal(values.numpy(), expected[0])
    np.testing.assert_array_equal(order.numpy(), expected[1])
    # instead of 45 compare-exchange steps
    assert len(Tensor(x).realize().topk(5, 0, largest)[1].schedule()) <= 7


@pytest.mark.sample(1)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("length", [1 << 14, 20001])
def test_topk_of_blocks_of_a_very_long_axis(length: int, largest: bool) -> None:
    x = np.random.default_rng(0).integers(-5000, 5000, (2, length)).astype(np.float32)
    x[0, 5], x[0, -1], x[1, 7] = np.nan, np.inf, -np.inf
    values, order = Tensor(x).topk(9, -1, largest)
    expected = [y[:, :9] for y in stable_sort(x, -1, largest)]
    np.testing.assert_array_equal(values.numpy(), expected[0])
    np.testing.assert_array_equal(order.numpy(), expected[1])


def test_topk_of_an_invalid_count_is_an_error() -> None:
    for k in (4, -1):
        with pytest.raises(ValueError, match=f"topk: k={k} of an axis of size 3"):
            Tensor([1, 2, 3]).topk(k)
    with pytest.raises(ValueError, match="topk needs a tensor with axes"):
        Tensor(1).topk(1)
    with pytest.raises(NotImplementedError, match="sorted_"):
        Tensor([1, 2, 3]).topk(2, sorted_=False)
