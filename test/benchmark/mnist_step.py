"""A training step of the MNIST network on a batch of 512, on one device and on two."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from test.benchmark.measure import Benchmark, median_ms, synchronize
from test.models.mnist_cnn import MnistCnn
from tinygrad import Device, Tensor, TinyJit, nn

BATCH = 512


def training_step(device_count: int = 1, batch: int = BATCH) -> Callable[[], Tensor]:
    """A step under the JIT on one random batch; it returns the loss."""
    model = MnistCnn()
    images = Tensor.rand(batch, 1, 28, 28).realize()
    labels = Tensor.randint(batch, high=10).realize()
    if device_count > 1:
        devices = tuple(f"{Device.DEFAULT}:{number}" for number in range(device_count))
        for tensor in nn.state.get_parameters(model):
            tensor.shard_(devices)
        images.shard_(devices, axis=0).realize()
        labels.shard_(devices, axis=0).realize()
    optimizer = nn.optim.Adam(nn.state.get_parameters(model))

    @TinyJit
    @Tensor.train()
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = model(images).sparse_categorical_crossentropy(labels).backward()
        return loss.realize(*optimizer.schedule_step())

    return step


def ours(device_count: int) -> float:
    step = training_step(device_count)
    return median_ms(lambda: synchronize(step()), repeats=5)


def torch_training_step(batch: int = BATCH) -> Callable[[], object]:
    """The same step in torch."""
    import torch

    layers = torch.nn
    model = layers.Sequential(
        *(layers.Conv2d(1, 32, 5), layers.ReLU(), layers.Conv2d(32, 32, 5), layers.ReLU()),
        *(layers.BatchNorm2d(32), layers.MaxPool2d(2)),
        *(layers.Conv2d(32, 64, 3), layers.ReLU(), layers.Conv2d(64, 64, 3), layers.ReLU()),
        *(layers.BatchNorm2d(64), layers.MaxPool2d(2), layers.Flatten(), layers.Linear(576, 10)),
    )
    optimizer = torch.optim.Adam(model.parameters())
    images, labels = torch.rand(batch, 1, 28, 28), torch.randint(10, (batch,))

    def step() -> object:
        optimizer.zero_grad()
        loss = layers.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def theirs() -> float:
    return median_ms(torch_training_step(), repeats=5)


BENCHMARKS = [
    Benchmark("mnist step, 1 device", partial(ours, 1), theirs),
    Benchmark("mnist step, 2 devices", partial(ours, 2), theirs),
]
