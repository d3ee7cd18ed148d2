"""Every kernel of a training step against its tensor form evaluated in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.devices import device_names
from test.evaluator.plan import run_kernel
from test.models.mnist_cnn import MnistCnn
from test.models.resnet import ResNet18
from test.models.transformer import Transformer
from tinygrad import Tensor
from tinygrad.execution.realize import ExecItem, ScheduleItem
from tinygrad.nn.optim import SGD
from tinygrad.nn.state import get_parameters

DEVICES = device_names(2)


def images(channels: int, size: int) -> Tensor:
    values = np.random.default_rng(0).standard_normal((2, channels, size, size))
    return Tensor(values.astype(np.float32))


def tokens() -> Tensor:
    return Tensor(np.random.default_rng(0).integers(0, 32, (4, 8)).astype(np.int32))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Tensor]]] = {
    "convolutions": (MnistCnn, lambda: images(1, 28)),
    "resnet": (lambda: ResNet18(width=8), lambda: images(3, 8)),
    "transformer": (lambda: Transformer(vocab=32, dim=16, layers=1, heads=4, seq=8), tokens),
}


def training_step(name: str, devices: tuple[str, ...]) -> list[ScheduleItem]:
    """The schedule items of one step, the batch sharded over the devices."""
    Tensor.manual_seed(0)
    make, data = MODELS[name]
    model, x = make(), data()
    if len(devices) > 1:
        x.shard_(devices, 0)
        for parameter in get_parameters(model):
            parameter.shard_(devices)
    optimizer = SGD(get_parameters(model), lr=0.1)
    Tensor.realize(x, *get_parameters(model), *get_parameters(optimizer))
    with Tensor.train():
        loss = (model(x).log_softmax() ** 2).mean().backward()
        items: list[ScheduleItem] = loss.schedule(*optimizer.schedule_step())
    return items


def assert_kernel_is_right(item: ExecItem) -> None:
    """Runs a kernel, and evaluates its tensor form in numpy on copies of the same memory."""
    arrays = [buffer.ensure_allocated().numpy().copy() for buffer in item.bufs]
    run_kernel(item.ast, arrays, item.values)
    item.run()
    for buffer, expected in zip(item.bufs, arrays, strict=True):
        scale = np.abs(expected, where=np.isfinite(expected), out=np.ones_like(expected)).max()
        found = buffer.numpy()
        np.testing.assert_allclose(found, expected, 1e-3, 1e-4 * scale, err_msg=str(item.ast))


@pytest.mark.slow
@pytest.mark.sample(6, values=False)
@pytest.mark.parametrize("devices", [DEVICES[:1], DEVICES])
@pytest.mark.parametrize("name", MODELS)
def test_every_kernel_of_a_training_step(name: str, devices: tuple[str, ...]) -> None:
    kernels = 0
    for item in training_step(name, devices):
        if isinstance(item, ExecItem):
            assert_kernel_is_right(item)
            kernels += 1
        else:
            item.run()
    assert kernels > 10
