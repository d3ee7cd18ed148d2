"""Data parallelism: batches are sharded; weights are replicated, or sharded too (ZeRO, FSDP).

Bytes are in KiB that each of four devices sends, in float32: `x` (64, 128) is 32, `w1` (128, 512)
is 256. An all-gather or a reduce-scatter of S sends 3/4 S, an all-reduce 3/2 S.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.devices import nth
from test.models.transformer import Transformer
from test.sharding.common import (
    DEVICES,
    REPLICATED,
    Array,
    array,
    moved,
    on,
    parts,
    placed,
    resharded,
    sent,
    traffic,
)
from test.together import GlobalCounters
from tinygrad import Tensor, nn
from tinygrad.nn.optim import SGD, Adam
from tinygrad.nn.state import get_parameters

X, W1 = (64, 128), (128, 512)
ROWS = on(0)


def test_data_parallel_reduces_the_gradient_of_the_weight() -> None:
    forward, training, out = traffic(Tensor.matmul, [array(*X), array(*W1)], [ROWS, REPLICATED])
    assert out.device is ROWS
    assert forward == {}
    assert training == {"all_reduce": 384}


@pytest.mark.parametrize("make", [SGD, Adam])
def test_zero_scatters_gradients_and_gathers_weights(make: Callable[..., Any]) -> None:
    def trained(layout: Any) -> tuple[Array, dict[str, float]]:
        """The weight after two steps, and the communication of the second."""
        master, x = placed(array(*W1) * 0.1, layout), placed(array(*X), layout).detach()
        optimizer = make([master], lr=0.01)
        with Tensor.train():
            for _ in range(2):
                optimizer.zero_grad()
                (x @ resharded(master, REPLICATED)).tanh().square().mean().backward()
                kinds = sent(moved(*optimizer.schedule_step()))
        assert layout is None or all(part.shape == (32, 512) for part in parts(master))
        return master.numpy(), kinds

    found, kinds = trained(ROWS)
    np.testing.assert_allclose(found, trained(None)[0], rtol=1e-4, atol=1e-5)
    assert kinds == {"all_gather": 192, "reduce_scatter": 192}


def test_a_gradient_requested_as_sharded_is_reduce_scattered() -> None:
    # the weight is replicated; its optimizer state is sharded
    x, w = placed(array(*X), ROWS), placed(array(*W1), REPLICATED)
    (gradient,) = (x @ w).square().sum().gradient(w)
    shard = gradient.to(ROWS)
    stepped = (w.to(ROWS) - 0.1 * shard).to(REPLICATED)
    assert sent(moved(stepped)) == {"reduce_scatter": 192, "all_gather": 192}
    expected = array(*W1) - 0.2 * array(*X).T @ (array(*X) @ array(*W1))
    np.testing.assert_allclose(stepped.numpy(), expected, rtol=1e-4, atol=1e-2)


def test_fsdp_gathers_the_weight_and_scatters_its_gradient() -> None:
    forward, training, out = traffic(Tensor.matmul, [array(*X), array(*W1)], [ROWS, ROWS])
    assert out.device is ROWS
    assert forward == {"all_gather": 192}
    assert training == {"all_gather": 192, "reduce_scatter": 192}


def test_fsdp_with_few_rows_moves_the_rows() -> None:
    # rows of 4 KiB are resharded to match the weight, and partial sums of 16 KiB are reduced: less
    # than gathering the weight
    forward, training, _ = traffic(Tensor.matmul, [array(8, 128), array(*W1)], [ROWS, ROWS])
    assert forward == {"all_to_all": 0.75, "all_reduce": 24}
    assert sum(training.values()) < 192


# ---- batch normalization ----

IMAGES = (8, 16, 8, 8)
CHANNEL = 16 * 4 / 1024


def normalized(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    layer = nn.BatchNorm(16, track_running_stats=False)
    layer.weight, layer.bias = weight, bias
    with Tensor.train():
        return layer(x)


def test_synced_batch_norm_reduces_statistics_only() -> None:
    arrays = [array(*IMAGES), array(16, seed=1), array(16, seed=2)]
    forward, training, out = traffic(normalized, arrays, [ROWS, REPLICATED, REPLICATED])
    assert out.device is ROWS
    # mean and variance of 16 channels; partial sums this small go to the three others directly
    assert forward == {"all_reduce": 2 * 3 * CHANNEL}
    # and the gradients of these two, of the weight and of the bias
    assert training == {"all_reduce": 6 * 3 * CHANNEL}


def test_batch_norm_of_each_device_moves_nothing() -> None:
    def alone(x: Tensor) -> Tensor:
        layer = nn.BatchNorm(64, affine=False, track_running_stats=False)
        with Tensor.train():
            # (device, batch there, channels, ...) as (batch there, device * channels, ...)
            apart = x.reshape(4, 2, 16, 8, 8).transpose(0, 1).reshape(2, 64, 8, 8)
            return layer(apart).reshape(2, 4, 16, 8, 8).transpose(0, 1).reshape(IMAGES)

    forward, training, out = traffic(alone, [array(*IMAGES)], [ROWS])
    assert forward == training == {}
    # each device normalized its own two images
    layer = nn.BatchNorm(16, affine=False, track_running_stats=False)
    with Tensor.train():
        expected = [layer(Tensor(part)).numpy() for part in np.split(array(*IMAGES), 4)]
    np.testing.assert_allclose(out.numpy(), np.concatenate(expected), rtol=1e-4, atol=1e-5)


# ---- gradients summed before the all-reduce ----


def test_accumulated_gradients_are_reduced_once() -> None:
    def accumulated(layout: Any) -> Tensor:
        w = placed(array(*W1), layout and REPLICATED)
        for seed in range(4):
            x = placed(array(*X, seed=seed), layout)
            (x @ w).square().sum().backward()
        assert w.grad is not None
        return w.grad

    gradient = accumulated(ROWS)
    assert sent(moved(gradient)) == {"all_reduce": 384}
    expected = accumulated(None).numpy()
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("uses", [2, 6])
def test_a_weight_used_several_times_is_reduced_once(uses: int) -> None:
    def unrolled(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(uses - 1):
            x = (x @ w).relu()
        return x @ w

    arrays = [array(*X), array(128, 128, seed=1) * 0.1]
    forward, training, _ = traffic(unrolled, arrays, [ROWS, REPLICATED])
    assert forward == {}
    assert training == {"all_reduce": 96}


@pytest.mark.slow
def test_gradients_of_sharded_weights_are_reduce_scattered_once() -> None:
    def accumulated(x: Tensor, y: Tensor, master: Tensor) -> Tensor:
        w = resharded(master, REPLICATED)
        return (x @ w).square() + ((y @ w).relu() @ w.T) @ w

    arrays = [array(*X), array(*X, seed=1), array(*W1) * 0.1]
    _, training, _ = traffic(accumulated, arrays, [ROWS] * 3)
    assert training == {"all_gather": 192, "reduce_scatter": 192}


# ---- how many gathered weights are alive ----

DEPTH, WIDTH = 6, 256
GATHERED = WIDTH * WIDTH * 4
"""Bytes of one weight."""


def deep(x: Tensor, *weights: Tensor) -> Tensor:
    for w in weights:
        x = (x @ w).tanh()
    return x


def deep_arrays() -> list[Array]:
    weights = [array(WIDTH, WIDTH, seed=i) * 0.05 for i in range(DEPTH)]
    return [array(256, WIDTH, seed=9), *weights]


@pytest.mark.parametrize("axis", [0, 1])
def test_one_gathered_weight_is_alive_at_a_time(axis: int) -> None:
    layouts = [ROWS] + [on(axis)] * DEPTH
    x, *weights = [placed(a, b) for a, b in zip(deep_arrays(), layouts, strict=True)]

    def peak(*results: Tensor) -> int:
        """Peak bytes on a device while realizing, without the inputs and the results."""
        GlobalCounters.reset()
        before = GlobalCounters.mem_used_per_device[nth(1)]
        Tensor.realize(*results)
        added = int(sum(y.nbytes() for y in results)) // len(DEVICES)
        return GlobalCounters.mem_peak_per_device[nth(1)] - before - added

    gc.collect()
    activation = 64 * WIDTH * 4
    packed = 0 if axis == 0 else GATHERED // 4
    # a weight, and the input and output of a layer
    assert peak(deep(x, *weights)) <= GATHERED + packed + 2 * activation
    gradients = deep(x, *weights).sum().gradient(*weights)
    # the partial sums of one weight's gradient, sent and received, and two values per layer
    assert peak(*gradients) <= 3 * GATHERED + packed + 2 * DEPTH * activation


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
def test_a_deep_model_gathers_weights_forward_and_backward(axis: int) -> None:
    forward, training, _ = traffic(deep, deep_arrays(), [ROWS] + [on(axis)] * DEPTH)
    each = 0.75 * GATHERED / 1024
    assert forward == {"all_gather": DEPTH * each}
    # the last one is still alive when the backward pass begins
    expected = {"all_gather": (2 * DEPTH - 1) * each, "reduce_scatter": DEPTH * each}
    assert training == expected


def test_a_realized_replicated_value_is_gathered_once() -> None:
    def kept(x: Tensor, *weights: Tensor) -> Tensor:
        return deep(x, *(resharded(w, REPLICATED).contiguous() for w in weights))

    _, training, _ = traffic(kept, deep_arrays(), [ROWS] * (DEPTH + 1))
    each = 0.75 * GATHERED / 1024
    assert training == {"all_gather": DEPTH * each, "reduce_scatter": DEPTH * each}


def test_weights_that_a_step_updates_are_gathered_before() -> None:
    def trained(layouts: list[Any]) -> list[Array]:
        x, *weights = [placed(a, b) for a, b in zip(deep_arrays(), layouts, strict=True)]
        optimizer = SGD(weights, lr=0.1)
        with Tensor.train():
            for _ in range(2):
                optimizer.zero_grad()
                deep(x.detach(), *weights).square().mean().backward()
                Tensor.realize(*optimizer.schedule_step())
        return [w.numpy() for w in weights]

    found, expected = trained([ROWS] * (DEPTH + 1)), trained([None] * (DEPTH + 1))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_transformer_under_fsdp_only_gathers_and_reduce_scatters() -> None:
    def step(split: bool) -> tuple[float, list[Array], dict[str, float], float]:
        """The loss, the new weights, the communication, and KiB of the weights."""
        Tensor.manual_seed(1)
        model = Transformer(vocab=64, dim=32, layers=1, seq=16)
        weights = get_parameters(model)
        tokens = Tensor(np.random.default_rng(0).integers(0, 64, (64, 16)).astype(np.int32))
        for w in weights:
            w.requires_grad_()
        if split:
            tokens.shard_(DEVICES, 0)
            for w in weights:
                w.shard_(DEVICES, 0)
        optimizer = SGD(weights, lr=0.1)
        Tensor.realize(tokens, *weights)
        with Tensor.train():
            loss = model(tokens).sparse_categorical_crossentropy(tokens).backward()
            kinds = sent(moved(loss, *optimizer.schedule_step()))
        nbytes = sum(w.nbytes() for w in weights) / 1024
        return loss.item(), [w.numpy() for w in weights], kinds, nbytes

    loss, weights, kinds, nbytes = step(split=True)
    expected, others, _, _ = step(split=False)
    assert loss == pytest.approx(expected, rel=1e-5)
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    # the loss, the number of labels that are not ignored, and the gradient of the positions, which
    # all rows share: (16, 32)
    assert kinds.pop("all_reduce") == 3 * 4 * (1 + 1 + 16 * 32) / 1024
    # weights are gathered for each pass, and their gradients reduce-scattered
    assert set(kinds) == {"all_gather", "reduce_scatter"}
    assert kinds["all_gather"] <= 2 * 0.75 * nbytes
    assert kinds["reduce_scatter"] <= 0.75 * nbytes
