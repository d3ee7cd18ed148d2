"""The shared models, small: a step on two devices equals the step on one, and they overfit; ResNet
equals torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.devices import device_names
from test.models.mnist_cnn import MnistCnn
from test.models.resnet import ResNet18
from test.models.transformer import Transformer
from tinygrad import Tensor, nn
from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict

DEVICES = device_names(2)
BATCH, CLASSES = 4, 10

random = np.random.default_rng(0)
Model = Callable[[Tensor], Tensor]
MODELS: dict[str, tuple[Callable[[], Model], np.ndarray]] = {
    "mnist_cnn": (MnistCnn, random.random((BATCH, 1, 28, 28), np.float32)),
    "resnet": (lambda: ResNet18(CLASSES, width=4), random.random((BATCH, 3, 32, 32), np.float32)),
    "transformer": (
        lambda: Transformer(vocab=CLASSES, dim=16, layers=2, heads=2, seq=8),
        random.integers(0, CLASSES, (BATCH, 8), np.int32),
    ),
}


def labels_for(name: str) -> np.ndarray:
    shape = (BATCH, 8) if name == "transformer" else (BATCH,)
    return np.arange(np.prod(shape), dtype=np.int32).reshape(shape) % CLASSES


def gradients(model: Model, x: Tensor, y: Tensor) -> tuple[float, dict[str, np.ndarray]]:
    """The loss, and the gradient of every trained parameter by name."""
    trained = {name: t for name, t in get_state_dict(model).items() if t.requires_grad is None}
    for tensor in trained.values():
        tensor.requires_grad = True
    with Tensor.train():
        loss = model(x).sparse_categorical_crossentropy(y).backward()
    Tensor.realize(loss, *[t.grad for t in trained.values()])
    return loss.item(), {name: t.grad.numpy() for name, t in trained.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_sharded_batch_gives_the_gradients_of_the_global_batch(name):
    make, value = MODELS[name]
    labels = labels_for(name)
    single, sharded = make(), make()
    load_state_dict(sharded, get_state_dict(single), verbose=False)
    for tensor in get_parameters(sharded):
        tensor.shard_(DEVICES)
    loss, grads = gradients(single, Tensor(value), Tensor(labels))
    sharded_loss, sharded_grads = gradients(
        sharded, Tensor(value).shard(DEVICES, axis=0), Tensor(labels).shard(DEVICES, axis=0)
    )
    assert sharded_loss == pytest.approx(loss, rel=1e-4)
    assert grads.keys() == sharded_grads.keys()
    for key, grad in grads.items():
        scale = np.abs(grad).max() + 1e-3
        np.testing.assert_allclose(sharded_grads[key] / scale, grad / scale, atol=2e-3, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_overfits_one_batch(name):
    make, value = MODELS[name]
    model, x, y = make(), Tensor(value), Tensor(labels_for(name))
    optimizer = nn.optim.Adam(get_parameters(model), lr=0.01)
    losses = []
    with Tensor.train():
        for _ in range(6):
            optimizer.zero_grad()
            loss = model(x).sparse_categorical_crossentropy(y).backward()
            Tensor.realize(loss, *optimizer.schedule_step())
            losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def resnet_in_torch(torch: Any, weights: dict[str, Any], x: Any) -> Any:
    f = torch.nn.functional

    def conv(name: str, norm: str, x: Any, stride: int = 1) -> Any:
        kernel = weights[f"{name}.weight"]
        x = f.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        mean, variance = torch.zeros(len(kernel)), torch.ones(len(kernel))
        scale, shift = weights[f"{norm}.weight"], weights[f"{norm}.bias"]
        return f.batch_norm(x, mean, variance, scale, shift, training=True)

    x = conv("conv1", "bn1", x).relu()
    for i in range(8):
        block, stride = f"blocks.{i}", 2 if i in (2, 4, 6) else 1
        inner = conv(f"{block}.conv1", f"{block}.bn1", x, stride).relu()
        inner = conv(f"{block}.conv2", f"{block}.bn2", inner)
        if stride == 2:
            x = conv(f"{block}.downsample.0", f"{block}.downsample.1", x, stride)
        x = (inner + x).relu()
    return f.linear(x.mean((2, 3)), weights["fc.weight"], weights["fc.bias"])


@pytest.mark.slow
def test_resnet_has_the_loss_and_gradients_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="compares with torch")
    Tensor.manual_seed(0)
    make, image = MODELS["resnet"]
    model, labels = make(), labels_for("resnet")
    theirs = {k: torch.tensor(v.numpy()) for k, v in get_state_dict(model).items()}
    loss, found = gradients(model, Tensor(image), Tensor(labels))
    for name in found:
        theirs[name].requires_grad_()
    scores = resnet_in_torch(torch, theirs, torch.tensor(image))
    expected = torch.nn.functional.cross_entropy(scores, torch.tensor(labels).long())
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-4)
    for name, gradient in found.items():
        wanted = theirs[name].grad.numpy()
        scale = np.abs(wanted).max() + 1e-3
        np.testing.assert_allclose(gradient / scale, wanted / scale, atol=2e-3, err_msg=name)
