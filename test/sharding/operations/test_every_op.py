"""Every op along every axis in every layout: values and gradients equal those on one device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.devices import device_names, nth
from test.sharding.common import (
    DEVICES,
    GRID,
    REPLICATED,
    Program,
    array,
    assert_same_as_on_one_device,
    on,
    placed,
)
from tinygrad import Tensor, dtypes
from tinygrad.device import Sharding

FIVE = (*DEVICES, nth(4))
SIX = (*FIVE, nth(5))
# (8, 12) over these: 3, 3, 2 rows; 3, 3, 3, 3, 0 columns; 6 columns by 3, 3, 2 rows
UNEVEN = [on(0, devices=DEVICES[:3]), on(1, devices=FIVE), on((1, 0), (2, 3), devices=SIX)]
LAYOUTS = [on(0), on(1), on((0, 1), GRID), *UNEVEN]

# programs of one matrix (8, 12)
MOVEMENTS: dict[str, Program] = {
    "permute": lambda x: x.permute(1, 0),
    "flip 0": lambda x: x.flip(0),
    "flip 1": lambda x: x.flip(1),
    "pad 0": lambda x: x.pad(((1, 3), (0, 0))),
    "pad 1": lambda x: x.pad(((0, 0), (4, 0))),
    "pad with a value": lambda x: x.pad(((1, 3), (0, 4)), value=2.0),
    "pad reflect": lambda x: x.reshape(1, 8, 12).pad((2, 2), mode="reflect"),
    "shrink 0": lambda x: x.shrink(((2, 6), None)),
    "shrink 1": lambda x: x.shrink((None, (4, 12))),
    "a slice of complete shards": lambda x: x[4:8],
    "a slice across shards": lambda x: x[1:6, 2:5],
    "stride 0": lambda x: x[::2],
    "stride 1": lambda x: x[:, 1::3],
    "negative stride": lambda x: x[::-2, ::-1],
    "one row": lambda x: x[3],
    "one column": lambda x: x[:, -5],
    "one element": lambda x: x[6, 7],
    "new axes": lambda x: x[None, :, None, ..., None],
    "reshape flat": lambda x: x.reshape(96),
    "reshape across": lambda x: x.reshape(6, 16),
    "reshape in": lambda x: x.reshape(2, 4, 3, 4),
    "reshape and swap": lambda x: x.reshape(4, 2, 12).transpose(0, 1).reshape(8, 12),
    "expand": lambda x: x.reshape(8, 1, 12).expand(8, 3, 12),
    "repeat": lambda x: x.repeat(2, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "roll 0": lambda x: x.roll(3, 0),
    "roll 1": lambda x: x.roll(-5, 1),
    "cat 0": lambda x: x.cat(x * 2, dim=0),
    "cat 1": lambda x: x.cat(x * 2, dim=1),
    "stack": lambda x: Tensor.stack(x, x + 1, dim=1),
    "split": lambda x: x.split([3, 5], 0)[1],
    "chunk": lambda x: x.chunk(3, 1)[2],
    "unfold": lambda x: x.unfold(1, 4, 2),
    "triu": lambda x: x.triu(1),
    "tril": lambda x: x.tril(-1),
    "diag": lambda x: x[0].diag(),
    "bitcast": lambda x: x.detach().bitcast(dtypes.int).bitcast(dtypes.float),
    "diagonal": lambda x: x[:8, :8].diagonal(),
    "a diagonal off the center": lambda x: x.reshape(2, 4, 12).diagonal(-2, 2, 1),
    "pad replicate": lambda x: x.pad((-2, 3, 2, -3), mode="replicate"),
    "fmod": lambda x: x.fmod(0.7),
    "exact gelu": lambda x: x.gelu("none").usum(x, 1),
    "masked_fill": lambda x: x.masked_fill(x > 0, -1.0),
    "unflatten": lambda x: x.unflatten(1, (3, 4)),
}

REDUCTIONS: dict[str, Program] = {
    "cumsum 0": lambda x: x.cumsum(0),
    "cumsum 1": lambda x: x.cumsum(1),
    "cummax": lambda x: x.cummax(0)[0],
    "cummin": lambda x: x.cummin(1)[0],
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "softmax 0": lambda x: x.softmax(0),
    "softmax 1": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(0),
    "var": lambda x: x.var(0),
    "std": lambda x: x.std(1),
    "prod": lambda x: (x * 0.5 + 2).prod(0),
    "max 0": lambda x: x.max(0),
    "max": lambda x: x.max(),
    "layernorm": lambda x: x.layernorm(),
    "normalize": lambda x: x.normalize(),
    "normalize by the third power": lambda x: x.normalize(3, dim=0),
    "argmax": lambda x: x.argmax(0),
    "argmax of all": lambda x: x.argmax(),
    "einsum": lambda x: Tensor.einsum("ij,kj->ik", x, x * 0.5),
}


def rows(x: Tensor, *values: Any) -> Tensor:
    """Indices on the device of `x`."""
    return Tensor(list(values), device=x.device)


INDEXING: dict[str, Program] = {
    "sort 0": lambda x: x.sort(0)[0],
    "sort 1": lambda x: x.sort(1)[0],
    "argsort": lambda x: x.argsort(1),
    "topk": lambda x: x.topk(3, 0)[0],
    "rows by tensor": lambda x: x[rows(x, 1, 7, 7, 0)],
    "columns by tensor": lambda x: x[:, rows(x, 1, 11, 4, 0)],
    "elements by tensors": lambda x: x[rows(x, 1, 7), rows(x, 2, 5)],
    "rows by a matrix": lambda x: x[rows(x, [1, 7, 3], [0, 0, 2])],
    "rows by a list": lambda x: x[[3, 1]],
    "masked_select of a size": lambda x: x.masked_select(x.detach() > 0, size=60),
    "nonzero of a size": lambda x: (x.detach() > 0).nonzero(60, -1),
    "gather 0": lambda x: x.gather(0, rows(x, [0, 3, 7, 1])),
    "gather 1": lambda x: x.gather(1, rows(x, [0, 3], [7, 1], [11, 4])),
    "scatter": lambda x: x.scatter(0, rows(x, [0, 3, 7, 1]), x[:1, :4] * 5),
    "scatter_reduce": lambda x: x.scatter_reduce(1, rows(x, [0], [3]), x[:2, :1], "sum"),
}

# programs of a batch of images (4, 4, 8, 8)
IMAGES: dict[str, Program] = {
    "max_pool2d": lambda x: x.max_pool2d(2),
    "max_pool2d with overlap": lambda x: x.max_pool2d(3, stride=2, padding=1),
    "avg_pool2d": lambda x: x.avg_pool2d(3, stride=1),
    "conv2d": lambda x: x.conv2d(x[:2, :, :3, :3], padding=1),
    "conv2d with strides": lambda x: x.conv2d(x[:2, :, :2, :3], stride=2, dilation=(2, 1)),
    "conv_transpose2d": lambda x: x.conv_transpose2d(x[:, :2, :3, :2], stride=2),
    "causal attention": lambda x: x.scaled_dot_product_attention(x, x * 0.5, is_causal=True),
    "interpolate": lambda x: x.interpolate((4, 16), mode="nearest"),
    "interpolate linearly": lambda x: x.interpolate((16, 5)),
    "global average": lambda x: x.mean((2, 3)),
}


@pytest.mark.sample(22)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", MOVEMENTS)
def test_movement_of_a_sharded_tensor_is_that_on_one_device(name: str, layout: Sharding) -> None:
    assert_same_as_on_one_device(MOVEMENTS[name], [array(8, 12)], [layout])


@pytest.mark.parametrize("axes", [(0, 1, None), (1, 0, None), (None, 1, 0)], ids=str)
def test_reflections_along_both_axes_of_a_mesh_with_replicas(axes: tuple[int | None, ...]) -> None:
    layout = on(axes, (2, 2, 2), devices=device_names(8))
    assert_same_as_on_one_device(
        lambda x: x.pad((2, 1, 0, 3), mode="reflect"), [array(8, 12)], [layout]
    )


@pytest.mark.sample(18)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_of_a_sharded_tensor_is_that_on_one_device(name: str, layout: Sharding) -> None:
    assert_same_as_on_one_device(REDUCTIONS[name], [array(8, 12)], [layout], 1e-4)


@pytest.mark.sample(18)
@pytest.mark.parametrize("layout", [on(0), on(1), *UNEVEN], ids=str)
@pytest.mark.parametrize("name", INDEXING)
def test_indexing_a_sharded_tensor_is_that_on_one_device(name: str, layout: Sharding) -> None:
    assert_same_as_on_one_device(INDEXING[name], [array(8, 12)], [layout])


@pytest.mark.sample(16)
@pytest.mark.parametrize("count", [4, 3])
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("name", IMAGES)
def test_an_op_on_sharded_images_is_that_on_one_device(name: str, axis: int, count: int) -> None:
    layout = on(axis, devices=DEVICES[:count])
    assert_same_as_on_one_device(IMAGES[name], [array(4, 4, 8, 8)], [layout], 1e-4, 1e-4)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_masked_select_of_a_sharded_tensor_is_that_of_numpy(layout: Sharding) -> None:
    value = array(8, 12)
    x = placed(value, layout)
    np.testing.assert_array_equal(x.masked_select(x > 0).numpy(), value[value > 0])
    np.testing.assert_array_equal((x > 0).nonzero().numpy(), np.argwhere(value > 0))


WRITES: dict[str, tuple[Any, Program]] = {
    "rows": (np.s_[2:5], lambda x: x[4:7] * 3),
    "every third column": (np.s_[:, 1::3], lambda x: x[:, :4] * 3),
    "a block": (np.s_[3:7, 5:6], lambda x: x[:4, 2:3]),
    "one element": (np.s_[-1, -1], lambda x: x.sum()),
    "rows by a list": ([7, 0], lambda x: x[:2] * 3),
}


def written(x: Tensor, name: str) -> Tensor:
    """A realized copy of `x` with one slice overwritten."""
    index, value = WRITES[name]
    copy = x.detach().clone().realize()
    copy[index] = value(x.detach())
    return copy


@pytest.mark.sample(3)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", WRITES)
def test_writing_to_a_sharded_tensor_is_that_on_one_device(name: str, layout: Sharding) -> None:
    assert_same_as_on_one_device(lambda x: written(x, name), [array(8, 12)], [layout], 1e-4)


@pytest.mark.parametrize("index", [on(0), REPLICATED], ids=str)
@pytest.mark.parametrize("table", [on(0), on(1), REPLICATED], ids=str)
def test_rows_by_a_sharded_index_are_those_on_one_device(table: Sharding, index: Sharding) -> None:
    numbers = np.array([5, 0, 3, 3], np.int32)
    assert_same_as_on_one_device(lambda t, i: t[i], [array(8, 12), numbers], [table, index])


def test_two_arguments_in_different_layouts_are_joined() -> None:
    arrays = [array(8, 12), array(8, 12, seed=1)]
    for dim in (0, 1):
        assert_same_as_on_one_device(
            lambda x, y, dim=dim: x.cat(y, dim=dim), arrays, [on(0), on(1)]
        )
