"""Layers and losses with sharded data or weights equal those on one device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.sharding.common import (
    GRID,
    REPLICATED,
    array,
    assert_same_as_on_one_device,
    moved,
    on,
    placed,
)
from tinygrad import Tensor, nn
from tinygrad.settings import Context

CLOSE: Any = {"rtol": 1e-4, "atol": 1e-4}


# ---- normalization ----


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_layernorm(axis: int) -> None:
    def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return x.layernorm() * w + b

    arrays = [array(4, 8, 16), array(16, seed=1), array(16, seed=2)]
    assert_same_as_on_one_device(norm, arrays, [on(axis), REPLICATED, REPLICATED], **CLOSE)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_batchnorm_takes_statistics_of_the_global_batch(axis: int) -> None:
    def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        layer = nn.BatchNorm(4)
        layer.weight, layer.bias = w, b
        for statistic in (layer.running_mean, layer.running_var, layer.num_batches_tracked):
            statistic.to_(w.device)
        with Tensor.train():
            return layer(x)

    arrays = [array(8, 4, 4, 4), array(4, seed=1), array(4, seed=2)]
    assert_same_as_on_one_device(norm, arrays, [on(axis), REPLICATED, REPLICATED], **CLOSE)


# ---- convolution ----

CONVOLUTIONS = {
    "data parallel": (on(0), REPLICATED),
    "sharded input channels": (on(1), on(1)),
    "sharded output channels": (REPLICATED, on(0)),
    "sharded rows": (on(2), REPLICATED),
    "everything sharded": (on(0), on(0)),
}


@pytest.mark.sample(10, values=False)
@pytest.mark.parametrize("winograd", [0, 1])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_conv2d(name: str, winograd: int) -> None:
    arrays = [array(4, 4, 8, 8), array(8, 4, 3, 3, seed=1), array(8, seed=2)]
    layouts = [*CONVOLUTIONS[name], REPLICATED]
    with Context(WINO=winograd):
        assert_same_as_on_one_device(
            lambda x, w, b: x.conv2d(w, b, padding=1), arrays, layouts, 1e-3, 1e-2
        )


def test_data_parallel_conv2d_moves_nothing_forward() -> None:
    x, w = placed(array(4, 4, 8, 8), on(0)), placed(array(8, 4, 3, 3), REPLICATED)
    out = x.conv2d(w, padding=1, stride=2).relu().max_pool2d(2)
    assert out.device is on(0)
    assert moved(out) == {}


@pytest.mark.parametrize("layout", [on(0), on(1)], ids=str)
def test_conv_transpose2d(layout: Any) -> None:
    arrays = [array(4, 4, 4, 4), array(4, 8, 3, 3, seed=1)]
    assert_same_as_on_one_device(
        lambda x, w: x.conv_transpose2d(w, stride=2), arrays, [layout, REPLICATED], **CLOSE
    )


# ---- embedding, attention, losses ----


@pytest.mark.parametrize("table", [on(0), on(1), REPLICATED], ids=str)
def test_embedding(table: Any) -> None:
    def embed(index: Tensor, weight: Tensor) -> Tensor:
        layer = nn.Embedding(1004, 8)
        layer.weight = weight
        return layer(index)

    index = np.random.default_rng(0).integers(0, 1004, (4, 5)).astype(np.int32)
    assert_same_as_on_one_device(embed, [index, array(1004, 8)], [REPLICATED, table])


@pytest.mark.parametrize(
    ("rows", "table", "index", "found", "kinds"),
    [
        # the index goes to the 3 other devices, and 3 of 4 partial rows to their shards
        (1004, on(0), on(0), on(0), {"all_gather": 3 * 192, "reduce_scatter": 3 * 1536}),
        (1004, on(1), on(0), on(0), {"all_gather": 3 * 192, "all_to_all": 3 * 1536 // 4}),
        # or the table goes to the 3 other devices
        (8, on(0), on(0), on(0), {"all_gather": 3 * 256}),
        (1004, on((None, 0), GRID), on((0, None), GRID), on((0, None), GRID), None),
        (1004, on((None, 1), GRID), on((0, None), GRID), on((0, 2), GRID), {}),
        (1004, on((0, 1), GRID), on((0, 1), GRID), on((0, 1), GRID), None),
        (13, on(0), on((0, None), GRID), on((0, None), GRID), None),
    ],
    ids=str,
)
def test_rows_of_a_sharded_table_have_the_layout_of_their_index(
    rows: int, table: Any, index: Any, found: Any, kinds: dict[str, int] | None
) -> None:
    numbers = np.random.default_rng(0).integers(0, rows, (8, 6)).astype(np.int32)
    arrays = [numbers, array(rows, 8)]
    assert_same_as_on_one_device(lambda i, w: w[i] * w[i], arrays, [index, table])
    result = placed(arrays[1], table)[placed(numbers, index)]
    assert result.device is found
    assert kinds is None or moved(result) == kinds


@pytest.mark.sample(8, values=False)
@pytest.mark.parametrize("heads", [4, 6])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_with_sharded_heads(heads: int, is_causal: bool) -> None:
    def attend(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
        q, k, v = ((x @ w).reshape(2, 8, heads, 4).transpose(1, 2) for w in (wq, wk, wv))
        mixed = q.scaled_dot_product_attention(k, v, is_causal=is_causal)
        return mixed.transpose(1, 2).reshape(2, 8, heads * 4) @ wo

    dim = heads * 4
    arrays = [array(2, 8, dim), *(array(dim, dim, seed=i) * 0.3 for i in range(1, 5))]
    layouts = [REPLICATED, on(1), on(1), on(1), on(0)]
    assert_same_as_on_one_device(attend, arrays, layouts, 1e-3, 1e-3)


@pytest.mark.parametrize("axis", [0, 1])
def test_cross_entropy(axis: int) -> None:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return logits.sparse_categorical_crossentropy(labels, label_smoothing=0.1)

    labels = np.random.default_rng(0).integers(0, 16, 8).astype(np.int32)
    label_layout = on(0) if axis == 0 else REPLICATED
    assert_same_as_on_one_device(loss, [array(8, 16), labels], [on(axis), label_layout], **CLOSE)


@pytest.mark.parametrize(
    "norm", [nn.GroupNorm(2, 4), nn.InstanceNorm(4)], ids=["group", "instance"]
)
def test_a_norm_of_channels_over_sharded_rows_all_reduces_its_statistics_alone(norm: Any) -> None:
    x = array(2, 4, 16, 8)
    out = norm(placed(x, on(2)).requires_grad_())
    groups = norm.num_groups if isinstance(norm, nn.GroupNorm) else 4
    # the sum, then that of the squares, of each group of each sample, sent to three devices each
    assert moved(out) == {"all_reduce": 2 * 12 * 2 * groups * 4}
    np.testing.assert_allclose(out.numpy(), norm(Tensor(x)).numpy(), rtol=1e-4, atol=1e-5)
