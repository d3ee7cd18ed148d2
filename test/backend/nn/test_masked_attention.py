"""Attention with rows that are masked whole: zeros, with gradients of zero, on every path.

The reference is the plain formula in float64, with weights of 0 where a row has no key.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from test.backend.schedule.kernel_counts import kernels
from test.sharding.common import GRID, array, on
from tinygrad import Tensor, TinyJit, dtypes

Array = np.ndarray[Any, Any]

SMALL = (2, 4, 8, 6)
BLOCKED = (2, 4, 200, 16)
MASKS = ("left padding", "float", "rows", "all")


def mask_of(kind: str, rows: int, keys: int) -> Array:
    """A causal mask of left padding, so that the first rows have no key; a bool or a float one."""
    row, key = np.arange(rows)[:, None], np.arange(keys)[None]
    seen = {
        "left padding": (key <= row) & (key >= 3),
        "float": (key <= row) & (key >= 3),
        "rows": (row % 3 != 1) & (key != row),
        "all": np.zeros((rows, keys), bool),
    }[kind]
    bias = np.linspace(-1, 1, rows * keys, dtype=np.float32).reshape(rows, keys)
    return np.where(seen, bias, -math.inf).astype(np.float32) if kind == "float" else seen


def reference(q: Array, k: Array, v: Array, g: Array, mask: Array) -> list[Array]:
    """The output, and the gradients of queries, keys and values for `g`, that of the output."""
    q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
    scale = 1 / math.sqrt(q.shape[-1])
    scores = q @ k.swapaxes(-1, -2) * scale
    scores = np.where(mask, scores, -math.inf) if mask.dtype == bool else scores + mask
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = weights.sum(-1, keepdims=True)
    weights /= np.where(total == 0, 1, total)
    by_weights = g @ v.swapaxes(-1, -2)
    by_scores = weights * (by_weights - (weights * by_weights).sum(-1, keepdims=True)) * scale
    return [
        weights @ v,
        by_scores @ k,
        by_scores.swapaxes(-1, -2) @ q,
        weights.swapaxes(-1, -2) @ g,
    ]


def attention(q: Tensor, k: Tensor, v: Tensor, g: Tensor, mask: Tensor) -> list[Tensor]:
    out = q.scaled_dot_product_attention(k, v, attn_mask=mask)
    return [out, *(out * g).sum().gradient(q, k, v)]


def inputs(shape: tuple[int, ...], layout: Any = None) -> list[Tensor]:
    tensors = [Tensor(array(*shape, seed=i)).to(layout) for i in range(4)]
    return [x.requires_grad_() for x in tensors]


def check(found: list[Tensor], arguments: list[Tensor], mask: Array, atol: float = 2e-5) -> None:
    expected = reference(*(x.float().numpy() for x in arguments), mask)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.float().numpy(), other, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("shape", [SMALL, BLOCKED], ids=["stored", "blocked"])
@pytest.mark.parametrize("kind", MASKS)
def test_rows_without_keys_are_zero_with_gradients_of_zero(
    kind: str, shape: tuple[int, ...]
) -> None:
    arguments = inputs(shape)
    mask = mask_of(kind, shape[2], shape[2])
    found = attention(*arguments, Tensor(mask).realize())
    Tensor.realize(*found)
    check(found, arguments, mask)


@pytest.mark.parametrize("kind", MASKS)
def test_the_zeros_take_no_further_kernel(kind: str) -> None:
    q, k, v, _ = (x.realize() for x in inputs(BLOCKED))
    mask = Tensor(mask_of(kind, BLOCKED[2], BLOCKED[2])).realize()
    assert kernels(q.scaled_dot_product_attention(k, v, attn_mask=mask)) == 1


LAYOUTS: dict[str, Any] = {
    **{f"axis {axis}": on(axis) for axis in range(4)},
    "heads and rows": on((1, 2), GRID),
    "batch and dim": on((0, 3), GRID),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("shape", [SMALL, BLOCKED], ids=["stored", "blocked"])
@pytest.mark.parametrize("keys", LAYOUTS)
@pytest.mark.parametrize("queries", LAYOUTS)
def test_rows_without_keys_are_zero_in_every_layout(
    queries: str, keys: str, shape: tuple[int, ...]
) -> None:
    q, _, _, g = inputs(shape, LAYOUTS[queries])
    _, k, v, _ = inputs(shape, LAYOUTS[keys])
    mask = mask_of("left padding", shape[2], shape[2])
    found = attention(q, k, v, g, Tensor(mask).to(on(None)).realize())
    Tensor.realize(*found)
    check(found, [q, k, v, g], mask)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_mask_may_be_sharded(axis: int) -> None:
    arguments = inputs(SMALL, on(2))
    mask = mask_of("rows", SMALL[2], SMALL[2])
    check(attention(*arguments, Tensor(mask).to(on(axis)).realize()), arguments, mask)


def test_a_captured_step_reads_masks_with_and_without_empty_rows() -> None:
    step = TinyJit(lambda *x: [y.realize() for y in attention(*x)])
    for kind in ("rows", "all", "left padding", "rows", "all"):
        arguments = [x.realize() for x in inputs(BLOCKED)]
        mask = mask_of(kind, BLOCKED[2], BLOCKED[2])
        check(step(*arguments, Tensor(mask).realize()), arguments, mask)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64])
def test_rows_without_keys_are_zero_in_every_dtype(dtype: Any) -> None:
    arguments = [x.detach().cast(dtype).requires_grad_() for x in inputs(SMALL)]
    mask = mask_of("rows", SMALL[2], SMALL[2])
    # the weights, at most 1, and products of up to 8 numbers are rounded to the dtype
    epsilon = {dtypes.float16: 2.0**-10, dtypes.bfloat16: 2.0**-7}.get(dtype, 1e-6)
    check(attention(*arguments, Tensor(mask).realize()), arguments, mask, atol=8 * epsilon)


def test_dropout_and_grouped_heads_keep_the_zeros() -> None:
    q = Tensor(array(*SMALL)).requires_grad_()
    k, v = (Tensor(array(2, 2, *SMALL[2:], seed=i)).requires_grad_() for i in (1, 2))
    mask = Tensor(mask_of("rows", SMALL[2], SMALL[2]))
    with Tensor.train():
        out = q.scaled_dot_product_attention(k, v, attn_mask=mask, dropout_p=0.5, enable_gqa=True)
    found = [out, *out.sum().gradient(q, k, v)]
    assert all(np.isfinite(x.numpy()).all() for x in found)
    np.testing.assert_array_equal(out.numpy()[:, :, 1::3], 0)
    np.testing.assert_array_equal(found[1].numpy()[:, :, 1::3], 0)


def test_a_mask_that_is_learned_has_a_finite_gradient() -> None:
    q, k, v, g = inputs(SMALL)
    mask = Tensor(mask_of("float", SMALL[2], SMALL[2])).requires_grad_()
    out = q.scaled_dot_product_attention(k, v, attn_mask=mask)
    (gradient,) = (out * g).sum().gradient(mask)
    assert np.isfinite(gradient.numpy()).all()
    np.testing.assert_array_equal(gradient.numpy()[:3], 0)
    assert gradient.numpy()[3:].any()


def test_second_gradients_are_finite() -> None:
    q, k, v, g = inputs(SMALL)
    found = attention(q, k, v, g, Tensor(mask_of("rows", SMALL[2], SMALL[2])))
    second = found[1].square().sum().gradient(q, k, v)
    assert all(np.isfinite(x.numpy()).all() for x in second)
    np.testing.assert_array_equal(second[0].numpy()[:, :, 1::3], 0)


def test_infinite_scores_and_nan_are_not_hidden() -> None:
    q, k, v, _ = inputs(SMALL)
    bad = Tensor(np.where(np.arange(SMALL[3]) == 0, np.nan, q.numpy()).astype(np.float32))
    mask = Tensor(np.ones((SMALL[2], SMALL[2]), bool))
    assert np.isnan(bad.scaled_dot_product_attention(k, v, attn_mask=mask).numpy()).all()
