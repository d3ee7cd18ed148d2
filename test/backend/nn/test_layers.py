"""Layers against their formulas in numpy: outputs, gradients, statistics and initialization.

A formula takes the input and the layer's tensors by name. Gradients are compared along a random
direction, with the difference quotient of the formula in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.ops.conv_oracle import Windows, conv, conv_transpose
from test.devices import device_names
from tinygrad import Tensor, nn
from tinygrad.errors import ArgumentError
from tinygrad.nn.state import get_state_dict

DEVICES = device_names(2)
Array = np.ndarray[Any, Any]
Formula = Callable[[Array, dict[str, Array]], Array]


def array(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def scattered(layer: Any) -> Any:
    """The layer with random weights, also for those initialized with zeros and ones."""
    for tensor in get_state_dict(layer).values():
        if tensor.requires_grad is None:
            tensor.assign(Tensor(array(*tensor.shape) * 0.5 + 0.5)).realize()
    return layer


def slope(formula: Formula, x: Array, weights: dict[str, Array], along: dict[str, Array]) -> Array:
    """The derivative of a formula's result along a direction of its input and weights."""
    step = 1e-6

    def moved(by: float) -> Array:
        new = {name: value + by * along.get(name, 0) for name, value in weights.items()}
        return formula(x + by * along.get("x", 0), new)

    return (moved(step) - moved(-step)) / (2 * step)


def assert_same_forward_and_backward(
    layer: Any,
    formula: Formula,
    value: Array,
    call: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Compares outputs, and gradients of a weighted sum by the input and every parameter."""
    state = {name: t for name, t in get_state_dict(layer).items() if t.requires_grad is None}
    weights = {name: t.numpy().astype(np.float64) for name, t in state.items()}
    for parameter in state.values():
        parameter.requires_grad = True
    x, exact = Tensor(value, requires_grad=True), value.astype(np.float64)
    out, expected = (call or layer)(x), formula(exact, weights)
    above = array(*expected.shape)
    (out * Tensor(above)).sum().backward()
    ours = {"x": x, **state}
    Tensor.realize(out, *[t.grad for t in ours.values()])
    np.testing.assert_allclose(out.numpy(), expected, 1e-4, 1e-4)
    for name, tensor in ours.items():
        direction = {name: array(*tensor.shape, 7)[..., 0].astype(np.float64)}
        wanted = (slope(formula, exact, weights, direction) * above).sum()
        found = (tensor.grad.numpy() * direction[name]).sum()
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-3), name


def linear(x: Array, weights: dict[str, Array], suffix: str = "") -> Array:
    return x @ weights[f"weight{suffix}"].T + weights.get(f"bias{suffix}", 0)


def channels(values: Any, x: Array) -> Any:
    """A value for each channel, to broadcast with x."""
    return np.reshape(values, (1, -1) + (1,) * (x.ndim - 2)) if np.ndim(values) else values


def normalized(x: Array, axes: tuple[int, ...], eps: float = 1e-5) -> Array:
    centered = x - x.mean(axes, keepdims=True)
    return centered / np.sqrt((centered**2).mean(axes, keepdims=True) + eps)


def affine(x: Array, weights: dict[str, Array]) -> Array:
    return x * channels(weights.get("weight", 1), x) + channels(weights.get("bias", 0), x)


@pytest.mark.parametrize("bias", [True, False])
def test_linear(bias: bool) -> None:
    assert_same_forward_and_backward(nn.Linear(5, 3, bias=bias), linear, array(4, 5))


@pytest.mark.parametrize(
    ("options", "padding"),
    [
        ({}, 0),
        ({"stride": 2, "padding": 1}, 1),
        ({"padding": (1, 2), "dilation": (2, 1), "bias": False}, (1, 2)),
        ({"groups": 2}, 0),
        ({"padding": "same", "dilation": 2}, (1, 1, 2, 2)),
        ({"padding": "same"}, (0, 1, 1, 1)),
    ],
    ids=str,
)
def test_conv2d(options: dict[str, Any], padding: Any) -> None:
    stride, dilation = options.get("stride", 1), options.get("dilation", 1)
    windows = Windows((7, 8), (3, 2), stride, dilation, padding)

    def formula(x: Array, w: dict[str, Array]) -> Array:
        out = conv(x, w["weight"], windows, options.get("groups", 1))
        return out + channels(w.get("bias", 0), out)

    assert_same_forward_and_backward(nn.Conv2d(4, 6, (3, 2), **options), formula, array(2, 4, 7, 8))


def test_conv1d() -> None:
    def formula(x: Array, w: dict[str, Array]) -> Array:
        return conv(x, w["weight"], Windows((9,), (3,), 1, 1, 1)) + channels(w["bias"], x)

    assert_same_forward_and_backward(nn.Conv1d(4, 6, 3, padding=1), formula, array(2, 4, 9))


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, (7, 8)),
        ({"stride": 2, "padding": 1, "output_padding": 1}, (10, 12)),
        ({"groups": 2, "bias": False}, (7, 8)),
    ],
    ids=str,
)
def test_conv_transpose2d(options: dict[str, Any], sizes: tuple[int, int]) -> None:
    windows = Windows(sizes, (3, 3), options.get("stride", 1), 1, options.get("padding", 0))

    def formula(x: Array, w: dict[str, Array]) -> Array:
        out = conv_transpose(x, w["weight"], windows, options.get("groups", 1))
        return out + channels(w.get("bias", 0), out)

    layer = nn.ConvTranspose2d(4, 6, 3, **options)
    assert_same_forward_and_backward(layer, formula, array(2, 4, 5, 6))


def test_conv_transpose1d() -> None:
    def formula(x: Array, w: dict[str, Array]) -> Array:
        return conv_transpose(x, w["weight"], Windows((11,), (3,), 2)) + channels(w["bias"], x)

    assert_same_forward_and_backward(nn.ConvTranspose1d(4, 6, 3, stride=2), formula, array(2, 4, 5))


@pytest.mark.parametrize(
    "options", [{"padding": "valid"}, {"padding": "same", "stride": 2}, {"groups": 3}]
)
def test_an_impossible_convolution_is_an_error(options):
    with pytest.raises(ValueError, match=r"padding|groups"):
        nn.Conv2d(4, 6, 3, **options)


@pytest.mark.parametrize("shape", [(6, 3, 4, 5), (6, 3, 4), (6, 3, 2, 3, 2), (6, 3)])
def test_batchnorm_in_training_and_inference(shape: tuple[int, ...]) -> None:
    axes = tuple(axis for axis in range(len(shape)) if axis != 1)

    def formula(x: Array, w: dict[str, Array]) -> Array:
        return affine(normalized(x, axes), w)

    layer, value = scattered(nn.BatchNorm(3)), array(*shape) * 2 + 1
    with Tensor.train():
        assert_same_forward_and_backward(layer, formula, value)
    mean, variance = 0.1 * value.mean(axes), 0.9 + 0.1 * value.var(axes, ddof=1)
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, 1e-5, 1e-5)
    np.testing.assert_allclose(layer.running_var.numpy(), variance, 1e-5, 1e-5)
    assert layer.num_batches_tracked.item() == 1
    scaled = (value - channels(mean, value)) / np.sqrt(channels(variance, value) + 1e-5)
    weights = {"weight": layer.weight.numpy(), "bias": layer.bias.numpy()}
    np.testing.assert_allclose(layer(Tensor(value)).numpy(), affine(scaled, weights), 1e-4, 1e-4)
    # statistics are constant outside training
    assert layer.num_batches_tracked.item() == 1
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, 1e-5, 1e-5)


def test_batchnorm_over_several_batches() -> None:
    layer, mean, variance = nn.BatchNorm(3, momentum=0.3), np.zeros(3), np.ones(3)
    for i in range(4):
        value = array(5, 3, 2 + i)
        with Tensor.train():
            layer(Tensor(value)).realize()
        mean = 0.7 * mean + 0.3 * value.mean((0, 2))
        variance = 0.7 * variance + 0.3 * value.var((0, 2), ddof=1)
    assert layer.num_batches_tracked.item() == 4
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, 1e-5, 1e-5)
    np.testing.assert_allclose(layer.running_var.numpy(), variance, 1e-5, 1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_batchnorm_without_affine_and_statistics(training: bool) -> None:
    value = array(5, 3, 2, 2)
    layer = nn.BatchNorm(3, affine=False, track_running_stats=False)
    with Tensor.train(training):
        found = layer(Tensor(value)).numpy()
    np.testing.assert_allclose(found, normalized(value, (0, 2, 3)), 1e-4, 1e-4)


@pytest.mark.slow
def test_second_gradient_of_batchnorm() -> None:
    layer = nn.BatchNorm(3)
    value, by, along = np.random.default_rng(0).standard_normal((3, 6, 3, 2))

    def gradient(x: Tensor) -> Tensor:
        with Tensor.train():
            return (layer(x).sin().sum().gradient(x)[0] * Tensor(by)).sum()

    def at(step: float) -> float:
        return gradient(Tensor(value + step * along, requires_grad=True)).item()

    x = Tensor(value, requires_grad=True)
    (second,) = gradient(x).gradient(x)
    wanted = (at(1e-5) - at(-1e-5)) / 2e-5
    assert (second.numpy() * along).sum() == pytest.approx(wanted, rel=1e-6)


def test_batchnorm_of_a_sharded_batch_takes_statistics_of_the_global_batch():
    value = array(6, 3, 2, 2)
    whole, split = nn.BatchNorm(3), nn.BatchNorm(3)
    for tensor in get_state_dict(split).values():
        tensor.shard_(DEVICES)
    with Tensor.train():
        expected = whole(Tensor(value)).numpy()
        found = split(Tensor(value).shard(DEVICES, axis=0))
    np.testing.assert_allclose(found.numpy(), expected, 1e-5, 1e-5)
    np.testing.assert_allclose(split.running_var.numpy(), whole.running_var.numpy(), 1e-5, 1e-5)


@pytest.mark.parametrize("elementwise", [True, False])
@pytest.mark.parametrize("shape", [(4,), (5, 4)], ids=str)
def test_layernorm(shape: tuple[int, ...], elementwise: bool) -> None:
    def formula(x: Array, w: dict[str, Array]) -> Array:
        axes = tuple(range(-len(shape), 0))
        return normalized(x, axes) * w.get("weight", 1) + w.get("bias", 0)

    layer = scattered(nn.LayerNorm(shape, elementwise_affine=elementwise))
    assert_same_forward_and_backward(layer, formula, array(3, 5, 4))


def test_layernorm2d_normalizes_channels() -> None:
    assert_same_forward_and_backward(
        scattered(nn.LayerNorm2d(4)),
        lambda x, w: affine(normalized(x, (1,)), w),
        array(2, 4, 3, 5),
    )


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_groupnorm(groups: int) -> None:
    def formula(x: Array, w: dict[str, Array]) -> Array:
        return affine(normalized(x.reshape(3, groups, -1), (2,)).reshape(x.shape), w)

    assert_same_forward_and_backward(scattered(nn.GroupNorm(groups, 6)), formula, array(3, 6, 2, 4))


def test_groupnorm_of_unequal_groups_is_an_error():
    with pytest.raises(ValueError, match="num_groups=4 must divide num_channels=6"):
        nn.GroupNorm(4, 6)


INPUT_ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "Linear": (lambda: nn.Linear(2, 3)(Tensor.ones(4, 5)), r"Linear .*\(\.\.\., 2\), not \(4, 5\)"),
    "LayerNorm": (lambda: nn.LayerNorm(4)(Tensor.ones(3, 5)), r"LayerNorm .*4\), not \(3, 5\)"),
    "LayerNorm2d": (lambda: nn.LayerNorm2d(3)(Tensor.ones(3, 2, 2)), "LayerNorm2d .*height, width"),
    "RMSNorm": (lambda: nn.RMSNorm(4)(Tensor.ones(3, 1)), r"RMSNorm .*4\), not \(3, 1\)"),
    "BatchNorm": (lambda: nn.BatchNorm(3)(Tensor.ones(3)), r"BatchNorm .*\(batch, 3, \.\.\.\)"),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4)(Tensor.ones(2, 3)), r"GroupNorm .*, not \(2, 3\)"),
    "no groups": (lambda: nn.GroupNorm(0, 4), "num_groups=0 must divide num_channels=4"),
    "InstanceNorm": (lambda: nn.InstanceNorm(4)(Tensor.ones(4)), r"InstanceNorm .*\(4,\)"),
    "Embedding": (lambda: nn.Embedding(4, 3)(Tensor.ones(2)), "Embedding .*float.*cast"),
    "no kernel": (lambda: nn.Conv2d(2, 3, 0), "kernel_size=0"),
    "no group": (lambda: nn.Conv2d(2, 3, 1, groups=0), "groups=0"),
    "LSTMCell": (lambda: nn.LSTMCell(2, 3)(Tensor.ones(2)), r"LSTMCell .*\(batch, 2\), not \(2,\)"),
    "one state": (lambda: nn.LSTMCell(2, 3)(Tensor.ones(4, 2), (Tensor.ones(4, 3),)), "hc="),
    "GRUCell": (lambda: nn.GRUCell(2, 3)(Tensor.ones(4, 2), Tensor.ones(5, 3)), "hx .*batch"),
}


@pytest.mark.parametrize("name", INPUT_ERRORS)
def test_the_error_of_an_input_of_another_shape_names_the_layer(name: str) -> None:
    call, message = INPUT_ERRORS[name]
    with pytest.raises(ArgumentError, match=message):
        call()


def test_the_error_of_an_input_that_is_no_tensor_names_the_layer() -> None:
    layers = [
        *(nn.Linear(2, 3), nn.Embedding(4, 3), nn.Conv2d(2, 3, 1), nn.ConvTranspose2d(2, 3, 1)),
        *(nn.LSTMCell(2, 3), nn.GRUCell(2, 3), nn.BatchNorm(2), nn.GroupNorm(1, 2)),
        *(nn.InstanceNorm(2), nn.LayerNorm(2), nn.LayerNorm2d(2), nn.RMSNorm(2)),
    ]
    for layer in layers:
        with pytest.raises(
            TypeError, match=f"{type(layer).__name__} takes a tensor.*5 of type int"
        ):
            layer(5)


def test_instancenorm() -> None:
    assert_same_forward_and_backward(
        scattered(nn.InstanceNorm(4)),
        lambda x, w: affine(normalized(x, (2, 3)), w),
        array(3, 4, 2, 5),
    )


@pytest.mark.parametrize("elementwise", [True, False])
def test_rmsnorm(elementwise: bool) -> None:
    def formula(x: Array, w: dict[str, Array]) -> Array:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w.get("weight", 1)

    layer = scattered(nn.RMSNorm(6, elementwise_affine=elementwise))
    assert_same_forward_and_backward(layer, formula, array(3, 2, 6))


@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (2, 0)])
def test_embedding_gives_rows(shape):
    layer = nn.Embedding(7, 5)
    rows = layer.weight.numpy()
    index = np.random.default_rng(1).integers(0, 7, shape)
    found = layer(Tensor(index))
    assert found.shape == (*shape, 5)
    np.testing.assert_array_equal(found.numpy(), rows[index])


def test_embedding_gradient_adds_up_repeated_rows():
    layer = nn.Embedding(4, 2)
    layer.weight.requires_grad = True
    layer(Tensor([1, 3, 1])).sum().backward()
    assert layer.weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("bias", [True, False])
def test_lstm_cell(bias: bool) -> None:
    def formula(x: Array, w: dict[str, Array]) -> Array:
        hidden = cell = np.zeros((2, 3))
        for _ in range(3):
            blocks = linear(x, w, "_ih") + linear(hidden, w, "_hh")
            admit, forget, candidate, emit = np.split(blocks, 4, 1)
            cell = sigmoid(forget) * cell + sigmoid(admit) * np.tanh(candidate)
            hidden = sigmoid(emit) * np.tanh(cell)
        return np.concatenate([hidden, cell])

    def steps(x: Tensor) -> Tensor:
        state = layer(x)
        for _ in range(2):
            state = layer(x, state)
        return state[0].cat(state[1])

    layer = scattered(nn.LSTMCell(4, 3, bias=bias))
    assert_same_forward_and_backward(layer, formula, array(2, 4), call=steps)


@pytest.mark.sample(2)
@pytest.mark.parametrize("bias", [True, False])
def test_gru_cell(bias: bool) -> None:
    def formula(x: Array, w: dict[str, Array]) -> Array:
        hidden = np.zeros((2, 3))
        for _ in range(3):
            ours, theirs = (
                np.split(linear(value, w, suffix), 3, 1)
                for value, suffix in ((x, "_ih"), (hidden, "_hh"))
            )
            reset, keep = sigmoid(ours[0] + theirs[0]), sigmoid(ours[1] + theirs[1])
            hidden = (1 - keep) * np.tanh(ours[2] + reset * theirs[2]) + keep * hidden
        return hidden

    def steps(x: Tensor) -> Tensor:
        return layer(x, layer(x, layer(x)))

    layer = scattered(nn.GRUCell(4, 3, bias=bias))
    assert_same_forward_and_backward(layer, formula, array(2, 4), call=steps)


@pytest.mark.parametrize(("ours", "theirs"), [("LSTMCell", "LSTMCell"), ("GRUCell", "GRUCell")])
def test_cells_have_the_weight_layout_of_torch(ours: str, theirs: str) -> None:
    torch = pytest.importorskip("torch")
    layer, peer = getattr(nn, ours)(4, 3), getattr(torch.nn, theirs)(4, 3)
    peer.load_state_dict({n: torch.tensor(t.numpy()) for n, t in get_state_dict(layer).items()})
    found, expected = layer(Tensor(array(2, 4))), peer(torch.tensor(array(2, 4)))
    found, expected = (x[0] if isinstance(x, tuple) else x for x in (found, expected))
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("layer", "bound"),
    [
        (nn.Linear(400, 30), 1 / 20),
        (nn.Conv2d(16, 40, 5), 1 / 20),
        (nn.Conv2d(16, 40, 5, groups=4), 1 / 20),
        (nn.ConvTranspose2d(16, 40, 5), 1 / 20),
    ],
)
def test_weights_start_uniform_within_the_bound(layer, bound):
    values = layer.weight.numpy()
    assert 0.95 * bound < np.abs(values).max() <= bound
    assert np.std(values) == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert np.abs(layer.bias.numpy()).max() <= bound


@pytest.mark.parametrize("make", [nn.LSTMCell, nn.GRUCell])
def test_cells_start_uniform_with_biases_of_zero(make: Any) -> None:
    layer = make(50, 400)
    for weight in (layer.weight_ih.numpy(), layer.weight_hh.numpy()):
        assert 0.95 / 20 < np.abs(weight).max() <= 1 / 20
    assert not layer.bias_ih.numpy().any()
    assert not layer.bias_hh.numpy().any()


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm(3), nn.GroupNorm(1, 3), nn.InstanceNorm(3), nn.LayerNorm(3), nn.LayerNorm2d(3)],
    ids=lambda layer: type(layer).__name__,
)
def test_norms_start_as_the_identity(layer: Any) -> None:
    assert layer.weight.tolist() == [1, 1, 1]
    assert layer.bias.tolist() == [0, 0, 0]


def test_an_embedding_starts_glorot_uniform() -> None:
    values = np.abs(nn.Embedding(500, 100).weight.numpy())
    assert 0.98 * 0.1 < values.max() <= 0.1


def test_no_two_layers_start_equal():
    assert (nn.Linear(4, 4).weight.numpy() != nn.Linear(4, 4).weight.numpy()).any()
