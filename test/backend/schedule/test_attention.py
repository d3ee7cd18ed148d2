"""Attention in blocks: memory that grows with the length and not its square, and the same values.

The reference is the plain formula in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.schedule.kernel_counts import array, kernels, tensor
from tinygrad import GlobalCounters, Tensor, Variable, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.passes import PassResult, observe_passes

Array = np.ndarray[Any, Any]
LENGTH, HEADS, DEPTH, WIDTH = 150, 8, 16, 24
ROW, KEY = np.arange(LENGTH)[:, None], np.arange(LENGTH)[None]
ADDED = np.random.default_rng(7).standard_normal((LENGTH, LENGTH)).astype(np.float32)
BOOLS = np.random.default_rng(8).random((1, LENGTH, LENGTH)) > 0.3
SLOPES = np.linspace(0.01, 0.08, HEADS, dtype=np.float32)[:, None, None]


def softmax(scores: Array) -> Array:
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(-1, keepdims=True))


def inputs(*, keys: int = LENGTH, shared: int = HEADS) -> tuple[Tensor, Tensor, Tensor]:
    shapes = (HEADS, LENGTH, DEPTH), (shared, keys, DEPTH), (shared, keys, WIDTH)
    q, k, v = (tensor(1, *shape, seed=i) for i, shape in enumerate(shapes))
    return q, k, v


def hidden(seen: Array) -> Array:
    return np.where(seen, 0, -math.inf)


def own(
    change: Callable[[Tensor], Tensor],
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Attention with changed scores."""
    return lambda q, k, v: change(q @ k.transpose(-1, -2) / 4).softmax(-1) @ v


def masked(
    seen: Callable[[Tensor, Tensor], Tensor],
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    row, key = Tensor.arange(LENGTH).reshape(-1, 1), Tensor.arange(LENGTH).reshape(1, -1)
    return own(lambda scores: seen(row, key).where(scores, -math.inf))


KINDS: dict[str, tuple[Callable[..., Tensor], Callable[[Array], Array]]] = {
    "plain": (Tensor.scaled_dot_product_attention, lambda s: s),
    "causal": (
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        lambda s: s + hidden(KEY <= ROW),
    ),
    "added mask": (
        lambda q, k, v: q.scaled_dot_product_attention(k, v, attn_mask=Tensor(ADDED).realize()),
        lambda s: s + ADDED,
    ),
    "bool mask": (
        lambda q, k, v: q.scaled_dot_product_attention(k, v, attn_mask=Tensor(BOOLS).realize()),
        lambda s: s + hidden(BOOLS),
    ),
    "soft cap": (own(lambda s: (s / 3).tanh() * 3), lambda s: np.tanh(s / 3) * 3),
    "bias by distance": (
        own(
            lambda s: (
                s
                + Tensor(SLOPES).realize()
                * (Tensor.arange(LENGTH).reshape(1, -1) - Tensor.arange(LENGTH).reshape(-1, 1))
            )
        ),
        lambda s: s + SLOPES * (KEY - ROW),
    ),
    "sliding window": (
        masked(lambda row, key: (key <= row) & (key > row - 40)),
        lambda s: s + hidden((KEY <= ROW) & (KEY > ROW - 40)),
    ),
}


def expected(
    q: Array, k: Array, v: Array, g: Array, change: Callable[[Array], Array]
) -> list[Array]:
    """The result, and the gradients by the values; the latter need no derivative of `change`."""
    q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
    weights = softmax(change(q @ k.swapaxes(-1, -2) / 4))
    return [weights @ v, weights.swapaxes(-1, -2) @ g]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
def test_attention_is_one_kernel(kind: str) -> None:
    function, change = KINDS[kind]
    q, k, v = inputs()
    result = function(q, k, v)
    assert kernels(result) == 1
    wanted = expected(q.numpy(), k.numpy(), v.numpy(), v.numpy(), change)[0]
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5, atol=2e-6)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", ["causal", "sliding window"])
def test_gradients_of_attention_store_no_scores(kind: str) -> None:
    function, change = KINDS[kind]
    found: list[list[Array]] = []
    q, k, v = inputs()
    gradient = tensor(1, HEADS, LENGTH, WIDTH, seed=4)
    q.requires_grad = k.requires_grad = v.requires_grad = True
    result = function(q, k, v)
    parts = (result * gradient).sum().gradient(q, k, v)
    # the result with its row statistics, a row sum, a factor of each row, and three products
    assert kernels(result, *parts) == 6
    arrays = [x.numpy() for x in (q, k, v, gradient)]
    found.append([result.numpy(), parts[2].numpy()])
    for x, y in zip(found[0], expected(*arrays, change), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    by_q, by_k = by_scores(*arrays, change)
    np.testing.assert_allclose(parts[0].numpy(), by_q, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(parts[1].numpy(), by_k, rtol=1e-4, atol=1e-5)


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", [*KINDS, "grouped heads", "dropout"])
def test_gradients_of_every_kind_need_less_memory_than_scores(kind: str) -> None:
    q, k, v = inputs(shared=2 if kind == "grouped heads" else HEADS)
    gradient = tensor(1, HEADS, LENGTH, WIDTH, seed=4)
    q.requires_grad = k.requires_grad = v.requires_grad = True
    with Tensor.train(kind == "dropout"):
        if kind in KINDS:
            result = KINDS[kind][0](q, k, v)
        else:
            result = q.scaled_dot_product_attention(k, v, enable_gqa=True, dropout_p=0.1)
    parts = (result * gradient).sum().gradient(q, k, v)
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    Tensor.realize(result, *parts)
    # sums over the heads of a group are kernels of their own; a dropout mask needs none
    assert GlobalCounters.kernel_count == (8 if kind == "grouped heads" else 6)
    assert GlobalCounters.mem_peak - before < HEADS * LENGTH * LENGTH * 4


def by_scores(
    q: Array, k: Array, v: Array, g: Array, change: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """The gradients by queries and keys, where `change` is a mask."""
    q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
    weights = softmax(change(q @ k.swapaxes(-1, -2) / 4))
    by_weights = g @ v.swapaxes(-1, -2)
    rows = (weights * by_weights).sum(-1, keepdims=True)
    by_score = weights * (by_weights - rows) / 4
    return by_score @ k, by_score.swapaxes(-1, -2) @ q


@pytest.mark.parametrize(("keys", "shared"), [(131, 8), (200, 8), (150, 2)])
def test_numbers_of_keys_and_of_heads(keys: int, shared: int) -> None:
    q, k, v = inputs(keys=keys, shared=shared)
    result = q.scaled_dot_product_attention(k, v, enable_gqa=True)
    assert kernels(result) == 1
    k_all, v_all = (np.repeat(x.numpy(), HEADS // shared, axis=1) for x in (k, v))
    wanted = expected(q.numpy(), k_all, v_all, q.numpy(), lambda s: s)[0]
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_narrow_dtypes_are_rounded_once(dtype: Any) -> None:
    q, k, v = (x.cast(dtype).realize() for x in inputs())
    result = q.scaled_dot_product_attention(k, v)
    assert kernels(result) == 1
    arrays = [x.float().numpy() for x in (q, k, v)]
    wanted = expected(*arrays, arrays[0], lambda s: s)[0]
    # the weights and the result are rounded to the dtype
    epsilon = 2.0**-10 if dtype is dtypes.float16 else 2.0**-7
    np.testing.assert_allclose(result.float().numpy(), wanted, rtol=epsilon, atol=epsilon)


def test_scores_are_computed_once_if_heads_are_joined_before_they_are_rounded() -> None:
    q, k, v = inputs()
    GlobalCounters.reset()
    separate = q.scaled_dot_product_attention(k, v).realize()
    needed = GlobalCounters.global_ops
    GlobalCounters.reset()
    joined = q.scaled_dot_product_attention(k, v).transpose(1, 2).flatten(2)
    found = joined.half().contiguous().numpy()
    assert GlobalCounters.global_ops <= needed + separate.numel()
    wanted = expected(q.numpy(), k.numpy(), v.numpy(), v.numpy(), lambda s: s)[0]
    wanted = wanted.swapaxes(1, 2).reshape(1, LENGTH, HEADS * WIDTH)
    np.testing.assert_allclose(found, wanted, rtol=2.0**-10, atol=2.0**-10)


def test_dropout_drops_weights() -> None:
    q, k, v = inputs()
    everything = Tensor.eye(LENGTH).reshape(1, 1, LENGTH, LENGTH).expand(1, HEADS, -1, -1)
    found = []
    for values in (v, everything.contiguous().realize()):
        Tensor.manual_seed(5)
        with Tensor.train():
            found.append(q.scaled_dot_product_attention(k, values, dropout_p=0.4).numpy())
    result, weights = found
    assert 0.3 < (weights == 0).mean() < 0.5
    np.testing.assert_allclose(result, weights.astype(np.float64) @ v.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_softmax", [False, True])
def test_a_row_without_keys_is_zero_in_attention_and_nan_in_a_softmax(is_softmax: bool) -> None:
    seen = np.ones((LENGTH, LENGTH), dtype=bool)
    seen[3] = False
    seen[5, :140] = False
    q, k, v = inputs()
    mask = Tensor(seen).realize()
    if is_softmax:
        result = own(lambda scores: mask.where(scores, -math.inf))(q, k, v)
    else:
        result = q.scaled_dot_product_attention(k, v, attn_mask=mask)
    assert kernels(result) == 1
    found = result.numpy()
    np.testing.assert_array_equal(found[:, :, 3], math.nan if is_softmax else 0)
    others = np.delete(np.arange(LENGTH), 3)
    with np.errstate(invalid="ignore"):
        wanted = expected(q.numpy(), k.numpy(), v.numpy(), v.numpy(), lambda s: s + hidden(seen))[0]
    np.testing.assert_allclose(found[:, :, others], wanted[:, :, others], rtol=1e-5, atol=2e-6)


def test_a_mask_of_numbers_that_wrap_around_excludes_no_blocks() -> None:
    q, k, v = inputs()
    key = Tensor.arange(LENGTH).cast(dtypes.int8)
    scores = (key > Tensor.arange(LENGTH).reshape(-1, 1)).where(-math.inf, q @ k.transpose(-1, -2))
    seen = KEY.astype(np.int8) <= ROW
    wanted = softmax(q.numpy() @ k.numpy().swapaxes(-1, -2) + hidden(seen)) @ v.numpy()
    np.testing.assert_allclose((scores.softmax(-1) @ v).numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_causal", [True, False])
def test_blocks_of_keys_that_are_masked_whole_are_not_read(is_causal: bool) -> None:
    length = 512
    q, k = tensor(2, length, DEPTH), tensor(2, length, DEPTH, seed=1)
    values = np.ones((2, length, WIDTH), dtype=np.float32)
    values[:, 384:] = math.nan
    result = q.scaled_dot_product_attention(k, Tensor(values).realize(), is_causal=is_causal)
    found = np.isnan(result.numpy()).all(axis=(0, 2))
    # 0 * NaN is NaN, so a row is finite only if its kernel skips the block with NaN
    assert found[384:].all()
    assert found[:256].any() != is_causal


def peak(length: int, *, backward: bool) -> int:
    """The bytes that are in use at the same time, besides the inputs."""
    q, k, v = (tensor(1, 2, length, DEPTH, seed=i) for i in range(3))
    q.requires_grad = k.requires_grad = v.requires_grad = True
    result = q.scaled_dot_product_attention(k, v, is_causal=True)
    results = [result, *result.square().sum().gradient(q, k, v)] if backward else [result]
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    Tensor.realize(*results)
    return GlobalCounters.mem_peak - before


@pytest.mark.sample(4)
@pytest.mark.parametrize("backward", [True, False])
def test_memory_is_linear_in_the_length(backward: bool) -> None:
    assert peak(1024, backward=backward) <= 2 * peak(512, backward=backward)


def test_weights_that_are_asked_for_are_stored() -> None:
    q, k, v = inputs()
    weights = (q @ k.transpose(-1, -2) / 4).softmax(-1)
    result = weights @ v
    Tensor.realize(weights, result)
    wanted = expected(q.numpy(), k.numpy(), v.numpy(), v.numpy(), lambda s: s)[0]
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, rtol=1e-5)


def test_scores_are_not_computed_again_for_twice_the_work() -> None:
    words = tensor(2000, 32).requires_grad_()
    states = tensor(100, 32, seed=1).requires_grad_()
    classes = Tensor(np.arange(100) * 7).realize()
    loss = (states @ words.T).sparse_categorical_crossentropy(classes)
    parts = loss.gradient(states, words)
    GlobalCounters.reset()
    Tensor.realize(loss, *parts)
    # three products, of which each stored score is computed by one, and what is done to each score
    assert GlobalCounters.global_ops < (3 * 2 * 32 + 60) * 100 * 2000


ODD: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "square of the weights": lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-1) ** 2 @ v,
    "divided late": lambda q, k, v: late(q @ k.transpose(-1, -2), v),
    "twice": lambda q, k, v: twice((q @ k.transpose(-1, -2)).softmax(-1), v),
    "over queries": lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-2) @ v,
    "mean over heads": lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-1).mean(1) @ v[:, 0],
    "transposed": lambda q, k, v: (k @ q.transpose(-1, -2)).transpose(-1, -2).softmax(-1) @ v,
    "summed": lambda q, k, v: q.scaled_dot_product_attention(k, v).sum(-1),
    "masked later": lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-1) * BOOLS @ v,
    "normalised again": lambda q, k, v: again((q @ k.transpose(-1, -2)).softmax(-1) * BOOLS, v),
    "temperature by row": lambda q, k, v: (
        ((q @ k.transpose(-1, -2)) / (Tensor.arange(LENGTH).reshape(-1, 1) + 1)).softmax(-1) @ v
    ),
    "softmax of a softmax": lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-1).softmax(-1) @ v,
    "difference": lambda q, k, v: (
        ((q @ k.transpose(-1, -2)).softmax(-1) - (q @ k.transpose(-1, -2) * 2).softmax(-1)) @ v
    ),
    "over rows and keys": lambda q, k, v: (
        (q @ k.transpose(-1, -2)).flatten(-2).softmax(-1).reshape(1, HEADS, LENGTH, LENGTH) @ v
    ),
    "two": lambda q, k, v: (
        q.scaled_dot_product_attention(k, v) + k.scaled_dot_product_attention(q, v)
    ),
}


def late(scores: Tensor, v: Tensor) -> Tensor:
    exponentials = (scores - scores.max(-1, keepdim=True)).exp()
    return (exponentials @ v) / exponentials.sum(-1, keepdim=True)


def again(weights: Tensor, v: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True) @ v


def twice(weights: Tensor, v: Tensor) -> Tensor:
    return weights @ (weights @ v)


def is_product(node: UOp) -> bool:
    """Whether a node sums products of two values that change along the sum."""
    if node.op is not Ops.REDUCE or node.arg is not Ops.ADD or node.src[0].op is not Ops.MUL:
        return False
    return all(set(node.src[1:]) & set(x.toposort()) for x in node.src[0].src)


@pytest.mark.sample(15)
@pytest.mark.parametrize("kind", ODD)
def test_no_kernel_computes_a_product_for_each_element(kind: str) -> None:
    """Other uses of scores agree with float64, and none of them is left to nested loops."""
    unblocked: list[str] = []

    def observe(result: PassResult) -> None:
        if result.step.name != "optimize loops":
            return
        reduces = [u for u in result.before.toposort() if u.op is Ops.REDUCE]
        is_nested = any(is_product(x) for u in reduces for x in u.src[0].toposort())
        if is_nested and not any("blocks of" in text for text in result.after.arg.applied):
            unblocked.append(result.subject)

    found: list[list[Array]] = []
    for dtype in (dtypes.float32, dtypes.float64):
        q, k, v = (x.cast(dtype).realize() for x in inputs())
        q.requires_grad = k.requires_grad = v.requires_grad = True
        result = ODD[kind](q, k, v)
        parts = result.square().sum().gradient(q, k, v)
        with observe_passes(observe):
            Tensor.realize(result, *parts)
        found.append([x.numpy() for x in (result, *parts)])
    assert not unblocked
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5 * float(abs(y).max()))


def reference(q: Array, k: Array, v: Array, seen: Array | bool = True) -> Array:
    """The plain formula in float64."""
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / math.sqrt(DEPTH)
    return softmax(np.where(seen, scores, -math.inf)) @ v.astype(np.float64)


@pytest.mark.slow
def test_symbolic_lengths_are_one_kernel_that_reads_nothing_past_the_end() -> None:
    size, rows = 200, 100
    arrays = [array(1, HEADS, size, DEPTH, seed=i) for i in range(3)]
    length, count = Variable("length", 1, size), Variable("count", 1, size)
    start = Variable("start", 0, size - rows)
    positions = Tensor.arange(size)
    for keys in (1, 5, 128, 129, 200):
        past = [np.where(np.arange(size)[:, None] < keys, x, math.nan) for x in arrays]
        q, k, v = (Tensor(x.astype(np.float32)).realize() for x in (arrays[0], *past[1:]))
        ks, vs = (x[:, :, : length.bind(keys)] for x in (k, v))
        q_all, k_all, v_all = arrays[0], arrays[1][:, :, :keys], arrays[2][:, :, :keys]
        # queries of a known length, and of another symbolic length
        result = q.scaled_dot_product_attention(ks, vs)
        assert kernels(result) == 1
        wanted = reference(q_all, k_all, v_all)
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5, atol=4e-6)
        few = q[:, :, : count.bind(37)].scaled_dot_product_attention(ks, vs)
        out = Tensor(np.full((1, HEADS, size, DEPTH), 7, dtype=np.float32)).realize()
        out[:, :, : count.bind(37)].assign(few).realize()
        found = out.numpy()
        np.testing.assert_allclose(found[:, :, :37], wanted[:, :, :37], rtol=1e-5, atol=4e-6)
        assert (found[:, :, 37:] == 7).all()
        # rows that begin somewhere in a cache, each of which sees what is before it
        first = min(keys, size - rows)
        begin = start.bind(first)
        k, v = (Tensor(x).realize() for x in arrays[1:])
        row = positions[:rows].reshape(-1, 1) + begin
        result = q[:, :, :rows].scaled_dot_product_attention(
            k[:, :, : begin + rows],
            v[:, :, : begin + rows],
            attn_mask=positions[: begin + rows].reshape(1, -1) <= row,
        )
        assert kernels(result) == 1
        seen = np.arange(size) <= np.arange(rows)[:, None] + first
        wanted = reference(q_all[:, :, :rows], arrays[1], arrays[2], seen)
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5, atol=4e-6)


@pytest.mark.slow
def test_gradients_of_symbolic_lengths_store_no_scores() -> None:
    size, keys = 200, 150
    length = Variable("length", 1, size).bind(keys)
    arrays = [array(1, HEADS, size, DEPTH, seed=i) for i in range(4)]
    q, k, v, g = (Tensor(x).realize() for x in arrays)
    for x in (q, k, v):
        x.requires_grad = True
    parts = (x[:, :, :length] for x in (q, k, v))
    result = Tensor.scaled_dot_product_attention(*parts, is_causal=True)
    found = (result * g[:, :, :length]).sum().gradient(q, k, v)
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    Tensor.realize(result, *found)
    scores = 4 * HEADS * size * size
    assert GlobalCounters.mem_peak - before < scores
    inputs_ = [x[:, :, :keys] for x in arrays]
    seen = np.tril(np.ones((keys, keys), dtype=bool))
    by_q, by_k = by_scores(*inputs_, lambda s: s + hidden(seen))
    by_v = expected(*inputs_, lambda s: s + hidden(seen))[1]
    for x, y in zip(found, (by_q, by_k, by_v), strict=True):
        np.testing.assert_allclose(x.numpy()[:, :, :keys], y, rtol=1e-4, atol=1e-5)
        assert not x.numpy()[:, :, keys:].any()
