"""Attention over sharded axes: no device stores or sends scores, and the values are the same.

The reference is the plain formula in float64.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from test.sharding.common import DEVICES, TWO, Array, array, moved, placed
from test.together import GlobalCounters
from tinygrad import Sharding, Tensor

HEADS, DEPTH = 4, 16
LAYOUTS = {
    "keys": (None, 2, 2),
    "queries": (2, None, None),
    "queries and keys": (2, 2, 2),
    "heads": (1, 1, 1),
    "depth": (3, 3, 3),
}


def inputs(layout: str, length: int) -> tuple[list[Array], list[Tensor]]:
    """Queries, keys, values, and the gradient of the result."""
    found = [array(1, HEADS, length, DEPTH, seed=i) for i in range(4)]
    tensors = [
        Tensor(x, requires_grad=True).shard(TWO, axis).realize()
        for x, axis in zip(found, (*LAYOUTS[layout], LAYOUTS[layout][0]), strict=True)
    ]
    return found, tensors


def expected(q: Array, k: Array, v: Array, g: Array, seen: Array) -> list[Array]:
    """The result, and its gradients by q, k and v."""
    q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
    scale = 1 / math.sqrt(DEPTH)
    scores = np.where(seen, q @ k.swapaxes(-1, -2) * scale, -math.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    by_weights = g @ v.swapaxes(-1, -2)
    by_scores = weights * (by_weights - (weights * by_weights).sum(-1, keepdims=True)) * scale
    transposed = by_scores.swapaxes(-1, -2)
    return [weights @ v, by_scores @ k, transposed @ q, weights.swapaxes(-1, -2) @ g]


def mask(kind: str, length: int) -> Array:
    row, key = np.arange(length)[:, None], np.arange(length)[None]
    # the first device has no keys that the last rows of a window see, the second none of the first
    return {"plain": key < length, "causal": key <= row, "window": abs(key - row) < 20}[kind]


def attend(q: Tensor, k: Tensor, v: Tensor, kind: str) -> Tensor:
    if kind == "window":
        length = q.shape[2]
        row, key = Tensor.arange(length).reshape(-1, 1), Tensor.arange(length)
        return q.scaled_dot_product_attention(k, v, attn_mask=(key - row).abs() < 20)
    return q.scaled_dot_product_attention(k, v, is_causal=kind == "causal")


@pytest.mark.sample(15, values=False)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["plain", "causal", "window"])
def test_values_and_gradients(layout: str, kind: str) -> None:
    length = 256
    found, (q, k, v, g) = inputs(layout, length)
    result = attend(q, k, v, kind)
    results = [result, *(result * g).sum().gradient(q, k, v)]
    Tensor.realize(*results)
    wanted = expected(*found, mask(kind, length))
    for x, y in zip(results, wanted, strict=True):
        np.testing.assert_allclose(x.numpy(), y, rtol=1e-4, atol=1e-5)


def test_a_row_that_no_device_has_keys_for_is_zero_and_others_are_not() -> None:
    length = 256
    found, (q, k, v, _) = inputs("keys", length)
    seen = np.ones((length, length), dtype=bool)
    seen[3] = False
    seen[5, :140] = False
    seen[7, 120:] = False
    masked = Tensor(seen).shard(TWO, None).realize()
    result = q.scaled_dot_product_attention(k, v, attn_mask=masked).numpy()
    others = np.delete(np.arange(length), 3)
    with np.errstate(invalid="ignore"):
        wanted = expected(*found, seen)[0]
    np.testing.assert_array_equal(result[:, :, 3], 0)
    np.testing.assert_allclose(result[:, :, others], wanted[:, :, others], rtol=1e-4, atol=1e-5)


def cost(layout: str, length: int, *, backward: bool) -> tuple[int, int, int]:
    """Kernels, the peak of bytes in use beside the inputs, and the bytes moved."""
    _, (q, k, v, g) = inputs(layout, length)
    result = q.scaled_dot_product_attention(k, v, is_causal=True)
    results = [result, *(result * g).sum().gradient(q, k, v)] if backward else [result]
    GlobalCounters.reset()
    before = GlobalCounters.mem_used, GlobalCounters.bytes_moved
    Tensor.realize(*results)
    peak, moved = GlobalCounters.mem_peak - before[0], GlobalCounters.bytes_moved - before[1]
    return GlobalCounters.kernel_count, peak, moved


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_cost_is_linear_in_the_length(layout: str) -> None:
    for backward in (False, True):
        kernels, peak, moved = cost(layout, 1024, backward=backward)
        again, doubled, moved_doubled = cost(layout, 2048, backward=backward)
        assert again == kernels
        assert doubled <= 2 * peak
        assert moved_doubled <= 2 * moved
        if not backward and layout != "keys":
            # one for each device
            assert kernels == 2


def test_attention_by_heads_moves_less_than_along_the_length() -> None:
    lengths, heads = Sharding(DEVICES, 2), Sharding(DEVICES, 1)
    arrays = [array(1, HEADS, 32, DEPTH, seed=i) for i in range(3)]
    q, k, v = (placed(x, lengths) for x in arrays)
    along = q.scaled_dot_product_attention(k, v)
    assert moved(along) == {"all_gather": 2 * 3 * arrays[0].nbytes}
    q, k, v = (placed(x, lengths).to(heads) for x in arrays)
    by_heads = q.scaled_dot_product_attention(k, v).to(lengths)
    assert moved(by_heads) == {"all_to_all": 3 * arrays[0].nbytes}
    np.testing.assert_allclose(by_heads.numpy(), along.numpy(), rtol=1e-6, atol=1e-6)
