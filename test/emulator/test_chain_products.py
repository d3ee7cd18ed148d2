"""Attention in registers, emulated: values of float64 in both orders of execution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tinygrad import Device, Tensor, dtypes
from tinygrad.codegen import get_program
from tinygrad.dtype import DType
from tinygrad.renderer import find_renderer
from tinygrad.schedule.grouping.softmax import chains as softmax_chains
from tinygrad.schedule.pipeline import lower_kernel

Arrays = list[np.ndarray]
GPU = "CUDA:5"
# float32 has the errors of exponentials as well
BITS = {dtypes.bfloat16: 8, dtypes.float16: 11, dtypes.float32: 22}


pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    """Sizes of an attention: queries, keys, and the depths of scores and values."""

    queries: int
    keys: int
    depth: int
    width: int
    dtype: DType = dtypes.bfloat16
    heads: int = 2
    key_heads: int = 2
    is_causal: bool = False
    has_mask: bool = False


CASES = {
    "causal": Case(272, 272, 16, 16, is_causal=True),
    "float32": Case(290, 347, 40, 24, dtypes.float32, has_mask=True),
    "odd grouped heads": Case(301, 333, 40, 24, heads=4, key_heads=2),
    "added mask f16": Case(290, 347, 80, 120, dtypes.float16, has_mask=True),
}


def inputs(case: Case) -> list[Tensor]:
    shapes = (case.heads, case.queries, case.depth), (case.key_heads, case.keys, case.depth)
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal((1, *shape), dtype=np.float32)
        for shape in (*shapes, (case.key_heads, case.keys, case.width))
    ]
    return [Tensor(x, device=GPU).cast(case.dtype).realize() for x in arrays]


def expected(
    case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None
) -> np.ndarray:
    groups = case.heads // case.key_heads
    q, k, v = (x.astype(np.float64) for x in (q, k.repeat(groups, 1), v.repeat(groups, 1)))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(case.depth)
    if case.is_causal:
        scores = np.where(np.tri(case.queries, case.keys, dtype=bool), scores, -np.inf)
    if mask is not None:
        scores = scores + mask
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e9))
    total = weights.sum(-1, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total) @ v)


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] if " " in x else []) for x in CASES]
)
def test_attention_in_registers_has_the_values_of_float64(name: str, both_orders: None) -> None:
    case = CASES[name]
    q, k, v = inputs(case)
    mask = None
    if case.has_mask:
        rng = np.random.default_rng(1)
        mask = rng.standard_normal((case.queries, case.keys), dtype=np.float32)
        # rows without keys, and one whose first block of keys is masked
        mask[3::50], mask[4, :200] = -np.inf, -np.inf

    def attention() -> Tensor:
        return q.scaled_dot_product_attention(
            k,
            v,
            attn_mask=None if mask is None else Tensor(mask, device=GPU).realize(),
            is_causal=case.is_causal,
            enable_gqa=case.heads != case.key_heads,
        )

    (item,) = attention().schedule()
    text = get_program(lower_kernel(item.ast), find_renderer(Device[GPU].target)).source
    # of the scores and of the result, each in loops
    assert text.count("= mma_m16n8k16_") == (0 if case.dtype is dtypes.float32 else 2)
    found = attention().float().numpy()
    wanted = expected(case, *(x.float().numpy() for x in (q, k, v)), mask)
    # weights, which are at most 1, and the result are rounded
    np.testing.assert_allclose(found, wanted, atol=4 * 2.0 ** -BITS[case.dtype], rtol=0.01)


def gradients(case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray) -> Arrays:
    groups = case.heads // case.key_heads
    q, k, v, g = (x.astype(np.float64) for x in (q, k.repeat(groups, 1), v.repeat(groups, 1), g))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(case.depth)
    if case.is_causal:
        scores = np.where(np.tri(case.queries, case.keys, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    by_weights = g @ v.swapaxes(-1, -2)
    by_scores = weights * (by_weights - (weights * by_weights).sum(-1, keepdims=True))
    by_scores /= np.sqrt(case.depth)

    def of_keys(x: np.ndarray) -> np.ndarray:
        return np.asarray(x.reshape(1, case.key_heads, groups, *x.shape[2:]).sum(2))

    by_keys = of_keys(by_scores.swapaxes(-1, -2) @ q)
    return [by_scores @ k, by_keys, of_keys(weights.swapaxes(-1, -2) @ g)]


@pytest.mark.slow
def test_gradients_with_matrix_instructions_have_the_values_of_float64(
    both_orders: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # sequences that are long enough would take the emulator minutes
    monkeypatch.setattr(softmax_chains._Search, "is_worth_it", lambda *_: True)
    for case in (Case(301, 333, 32, 24), Case(288, 288, 32, 16, heads=4, is_causal=True)):
        q, k, v = inputs(case)
        rng = np.random.default_rng(2)
        shape = (1, case.heads, case.queries, case.width)
        g = Tensor(rng.standard_normal(shape, dtype=np.float32), device=GPU).cast(case.dtype)
        arrays = [x.float().numpy() for x in (q, k, v, g)]
        for x in (q, k, v):
            x.requires_grad_()
        out = q.scaled_dot_product_attention(
            k, v, is_causal=case.is_causal, enable_gqa=case.heads != case.key_heads
        )
        found = [x.float().numpy() for x in (out * g).sum().gradient(q, k, v)]
        for x, wanted in zip(found, gradients(case, *arrays), strict=True):
            np.testing.assert_allclose(x, wanted, atol=2.0**-7 * np.abs(wanted).max(), rtol=0)
