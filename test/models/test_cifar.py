"""CIFAR's training, on made images, learns on two devices as on one; U-Net against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.devices import device_names
from test.models.cifar import train
from test.models.unet import Unet
from tinygrad import Tensor
from tinygrad.nn.state import get_state_dict


@pytest.mark.slow
def test_training_on_images_learns_on_two_devices_as_on_one() -> None:
    losses, accuracy = train()
    assert accuracy > 0.9 and np.mean(losses[-5:]) < np.mean(losses[:5]) / 1.5
    sharded, _ = train(device_names(2), steps=6)
    alone, _ = train(steps=6)
    np.testing.assert_allclose(sharded, alone, rtol=1e-4)


def unet_in_torch(torch: Any, weights: dict[str, Any], x: Any) -> Any:
    f = torch.nn.functional

    def double(name: str, x: Any) -> Any:
        for part in ("conv1", "conv2"):
            key = f"{name}.{part}"
            x = f.conv2d(x, weights[f"{key}.weight"], weights[f"{key}.bias"], padding=1).relu()
        return x

    first = double("down.0", x)
    second = double("down.1", f.max_pool2d(first, 2))
    x = double("down.2", f.max_pool2d(second, 2))
    for i, skip in ((1, second), (0, first)):
        up = f.conv_transpose2d(x, weights[f"up.{i}.weight"], weights[f"up.{i}.bias"], stride=2)
        x = double(f"merge.{i}", torch.cat([skip, up], 1))
    return f.conv2d(x, weights["head.weight"], weights["head.bias"])


@pytest.mark.slow
@pytest.mark.parametrize("devices", [None, device_names(2)])
def test_unet_has_the_scores_and_gradients_of_torch(devices: tuple[str, ...] | None) -> None:
    torch = pytest.importorskip("torch", reason="compares with torch")
    Tensor.manual_seed(0)
    model = Unet()
    ours = get_state_dict(model)
    theirs = {k: torch.tensor(v.numpy(), requires_grad=True) for k, v in ours.items()}
    image = np.random.default_rng(0).normal(size=(2, 1, 8, 8)).astype(np.float32)
    labels = np.arange(128).reshape(2, 8, 8) % 2
    x, y = Tensor(image), Tensor(labels.astype(np.int32))
    for weight in ours.values():
        weight.requires_grad = True
        if devices is not None:
            weight.shard_(devices)
    if devices is not None:
        x, y = x.shard(devices, axis=0), y.shard(devices, axis=0)
    scores = model(x)
    scores.permute(0, 2, 3, 1).sparse_categorical_crossentropy(y).backward()
    Tensor.realize(scores, *(weight.grad for weight in ours.values()))
    expected = unet_in_torch(torch, theirs, torch.tensor(image))
    torch.nn.functional.cross_entropy(expected, torch.tensor(labels)).backward()
    np.testing.assert_allclose(scores.numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    for name, weight in ours.items():
        wanted = theirs[name].grad.numpy()
        np.testing.assert_allclose(weight.grad.numpy(), wanted, rtol=1e-3, atol=1e-6, err_msg=name)
