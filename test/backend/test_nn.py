"""Layers against torch's, with the same weights: outputs, gradients and statistics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, nn
from tinygrad.nn.state import get_state_dict

torch = pytest.importorskip("torch")

DEVICES = ("CPU", "CPU:1")


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def copy_to_torch(layer: Any, peer: Any) -> None:
    """Gives a torch layer the weights of ours; the names are the same."""
    state = get_state_dict(layer)
    peer.load_state_dict({name: torch.tensor(t.numpy()) for name, t in state.items()})


def assert_same_forward_and_backward(
    layer: Callable[[Tensor], Tensor], peer: Any, value: np.ndarray, tolerance: float = 1e-4
) -> None:
    """Outputs, and gradients of a weighted sum of them by the input and every parameter."""
    copy_to_torch(layer, peer)
    x = Tensor(value, requires_grad=True)
    theirs = torch.tensor(value, requires_grad=True)
    parameters = {name: t for name, t in get_state_dict(layer).items() if t.requires_grad is None}
    for parameter in parameters.values():
        parameter.requires_grad = True
    out, expected = layer(x), peer(theirs)
    weights = array(*expected.shape)
    (out * Tensor(weights)).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    ours = {"x": x, **parameters}
    Tensor.realize(out, *[t.grad for t in ours.values()])
    np.testing.assert_allclose(out.numpy(), expected.detach().numpy(), tolerance, tolerance)
    grads = {"x": theirs.grad} | {name: p.grad for name, p in peer.named_parameters()}
    assert ours.keys() == grads.keys()
    for name, grad in grads.items():
        np.testing.assert_allclose(
            ours[name].grad.numpy(), grad.numpy(), tolerance, 10 * tolerance, err_msg=name
        )


@pytest.mark.parametrize("bias", [True, False])
def test_linear(bias):
    layer, peer = nn.Linear(5, 3, bias=bias), torch.nn.Linear(5, 3, bias=bias)
    assert_same_forward_and_backward(layer, peer, array(4, 5))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1},
        {"padding": (1, 2), "dilation": (2, 1), "bias": False},
        {"groups": 2},
        {"padding": "same", "dilation": 2},
    ],
)
def test_conv2d(options):
    layer, peer = nn.Conv2d(4, 6, (3, 2), **options), torch.nn.Conv2d(4, 6, (3, 2), **options)
    assert_same_forward_and_backward(layer, peer, array(2, 4, 7, 8))


def test_conv1d():
    layer, peer = nn.Conv1d(4, 6, 3, padding=1), torch.nn.Conv1d(4, 6, 3, padding=1)
    assert_same_forward_and_backward(layer, peer, array(2, 4, 9))


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "bias": False}]
)
def test_conv_transpose2d(options):
    layer = nn.ConvTranspose2d(4, 6, 3, **options)
    assert_same_forward_and_backward(
        layer, torch.nn.ConvTranspose2d(4, 6, 3, **options), array(2, 4, 5, 6)
    )


def test_conv_transpose1d():
    layer, peer = nn.ConvTranspose1d(4, 6, 3, stride=2), torch.nn.ConvTranspose1d(4, 6, 3, stride=2)
    assert_same_forward_and_backward(layer, peer, array(2, 4, 5))


@pytest.mark.parametrize(
    "options", [{"padding": "valid"}, {"padding": "same", "stride": 2}, {"groups": 3}]
)
def test_a_convolution_that_cannot_be_says_so(options):
    with pytest.raises(ValueError, match=r"padding|groups"):
        nn.Conv2d(4, 6, 3, **options)


@pytest.mark.parametrize("shape", [(6, 3, 4, 5), (6, 3, 4), (6, 3, 2, 3, 2)])
def test_batchnorm_in_training_and_after(shape):
    layer = nn.BatchNorm(3)
    peer = [torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d][len(shape) - 3](3)
    value = array(*shape) * 2 + 1
    with Tensor.train():
        assert_same_forward_and_backward(layer, peer, value)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        np.testing.assert_allclose(
            getattr(layer, name).numpy(), getattr(peer, name).numpy(), 1e-5, 1e-5
        )
    peer.eval()
    expected = peer(torch.tensor(value)).detach().numpy()
    np.testing.assert_allclose(layer(Tensor(value)).numpy(), expected, 1e-4, 1e-4)


def test_batchnorm_without_affine_and_statistics():
    value = array(5, 3, 2, 2)
    layer = nn.BatchNorm(3, affine=False, track_running_stats=False)
    peer = torch.nn.BatchNorm2d(3, affine=False, track_running_stats=False)
    expected = peer(torch.tensor(value)).numpy()
    np.testing.assert_allclose(layer(Tensor(value)).numpy(), expected, 1e-4, 1e-4)


def test_batchnorm_of_a_split_batch_takes_the_statistics_of_the_whole():
    value = array(6, 3, 2, 2)
    whole, split = nn.BatchNorm(3), nn.BatchNorm(3)
    for tensor in get_state_dict(split).values():
        tensor.shard_(DEVICES)
    with Tensor.train():
        expected = whole(Tensor(value)).numpy()
        found = split(Tensor(value).shard(DEVICES, axis=0))
    np.testing.assert_allclose(found.numpy(), expected, 1e-5, 1e-5)
    np.testing.assert_allclose(split.running_var.numpy(), whole.running_var.numpy(), 1e-5, 1e-5)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(("shape", "value"), [((4,), (3, 5, 4)), ((5, 4), (3, 5, 4))])
def test_layernorm(shape, value, affine):
    layer = nn.LayerNorm(shape, elementwise_affine=affine)
    peer = torch.nn.LayerNorm(shape, elementwise_affine=affine)
    assert_same_forward_and_backward(layer, peer, array(*value))


def test_layernorm_of_another_shape_shows_both():
    with pytest.raises(ValueError, match=r"\(4,\).*\(3, 5\)"):
        nn.LayerNorm(4)(Tensor.zeros(3, 5))


def test_layernorm2d_normalizes_channels():
    value = array(2, 4, 3, 5)
    expected = torch.nn.LayerNorm(4)(torch.tensor(value).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    found = nn.LayerNorm2d(4)(Tensor(value))
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), 1e-4, 1e-4)


def test_groupnorm():
    layer, peer = nn.GroupNorm(2, 6), torch.nn.GroupNorm(2, 6)
    assert_same_forward_and_backward(layer, peer, array(3, 6, 2, 4))


def test_groupnorm_of_unequal_groups_is_an_error():
    with pytest.raises(ValueError, match="num_groups=4 must divide num_channels=6"):
        nn.GroupNorm(4, 6)


def test_instancenorm():
    layer, peer = nn.InstanceNorm(4), torch.nn.InstanceNorm2d(4, affine=True)
    assert_same_forward_and_backward(layer, peer, array(3, 4, 2, 5))


def test_rmsnorm():
    layer, peer = nn.RMSNorm(6), torch.nn.RMSNorm(6, eps=1e-6)
    assert_same_forward_and_backward(layer, peer, array(3, 2, 6))


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


def test_lstm_cell():
    layer, peer = nn.LSTMCell(4, 3), torch.nn.LSTMCell(4, 3)
    copy_to_torch(layer, peer)
    x, state, expected = array(2, 4), None, None
    for _ in range(3):
        state = layer(Tensor(x), state)
        expected = peer(torch.tensor(x), expected)
        for found, theirs in zip(state, expected, strict=True):
            np.testing.assert_allclose(found.numpy(), theirs.detach().numpy(), 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("layer", "bound"),
    [
        (nn.Linear(400, 30), 1 / 20),
        (nn.Conv2d(16, 40, 5), 1 / 20),
        (nn.Conv2d(64, 64, 5, groups=4), 1 / 20),
        (nn.ConvTranspose2d(16, 40, 5), 1 / 20),
    ],
)
def test_weights_start_uniform_within_the_bound(layer, bound):
    values = layer.weight.numpy()
    assert 0.95 * bound < np.abs(values).max() <= bound
    assert np.std(values) == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert np.abs(layer.bias.numpy()).max() <= bound


def test_no_two_layers_start_alike():
    assert (nn.Linear(4, 4).weight.numpy() != nn.Linear(4, 4).weight.numpy()).any()
