"""Training on images like CIFAR-10's: crops, flips, cutout, label smoothing, a one-cycle schedule
of the learning rate, and an average of the weights, with one captured step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinygrad import Context, Tensor, TinyJit, dtypes, nn
from tinygrad.helpers import getenv, trange
from tinygrad.nn.optim import SGD, Optimizer
from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict

SIZE, CLASSES, PAD = 8, 4, 1
STEPS, BATCH, RATE, DECAY = getenv("STEPS", 40), getenv("BS", 32), 0.2, 0.9


class Net:
    """Three convolutions with normalization: (batch, 3, size, size) to (batch, classes)."""

    def __init__(self, width: int = 8) -> None:
        self.layers: list[Callable[[Tensor], Tensor]] = [
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm(width), Tensor.relu,
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False), Tensor.max_pool2d,
            nn.BatchNorm(2 * width), Tensor.relu,
            lambda x: x.max((2, 3)), nn.Linear(2 * width, CLASSES),
        ]  # fmt: skip

    def __call__(self, x: Tensor) -> Tensor:
        return x.sequential(self.layers)


class OneCycleLR:
    """The rate rises linearly to `peak` in the first quarter of the steps, and falls to 0."""

    def __init__(self, optimizer: Optimizer, peak: float, steps: int) -> None:
        self.optimizer, self.peak, self.steps, self.count = optimizer, peak, steps, 0
        self.step()

    def step(self) -> None:
        warmup = self.steps // 4
        rising = (self.count + 1) / warmup
        falling = (self.steps - self.count) / (self.steps - warmup)
        rate = self.peak * max(0.0, min(rising, falling))
        self.optimizer.lr.assign(Tensor([rate], device=self.optimizer.lr.device))
        self.count += 1


def images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images whose colour and quadrant is their class, in bytes, and the classes."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count).astype(np.int32)
    data = random.integers(0, 96, (count, 3, SIZE, SIZE)).astype(np.uint8)
    for i, label in enumerate(labels):
        data[i, label % 3, (label // 2) * 4 :][:4] += 120
    return data, labels


def augment(x: Tensor) -> Tensor:
    """Crops at random places, flips half of the images, and cuts out a square of each."""
    count = x.shape[0]
    y, z = (Tensor.randint(count, high=2 * PAD + 1, device=x.device) for _ in range(2))
    place = Tensor.arange(SIZE, device=x.device)
    padded = x.pad((PAD,) * 4, mode="reflect")
    rows = (y.unsqueeze(1) + place).reshape(count, 1, SIZE, 1).expand(-1, 3, -1, SIZE + 2 * PAD)
    columns = (z.unsqueeze(1) + place).reshape(count, 1, 1, SIZE).expand(-1, 3, SIZE, -1)
    x = padded.gather(2, rows).gather(3, columns)
    x = (Tensor.rand(count, 1, 1, 1, device=x.device) < 0.5).where(x.flip(-1), x)
    low = Tensor.randint(count, 2, high=SIZE - 1, device=x.device).unsqueeze(-1)
    inside = (place >= low) & (place < low + 2)
    hole = inside[:, 0].unsqueeze(2) & inside[:, 1].unsqueeze(1)
    return hole.unsqueeze(1).where(0, x)


def train(devices: tuple[str, ...] | None = None, steps: int = STEPS) -> tuple[list[float], float]:
    """The losses of all steps, and the accuracy of the average of the weights."""
    Tensor.manual_seed(1)
    model, average = Net(), Net()
    load_state_dict(average, get_state_dict(model), verbose=False)
    x_train, y_train = (Tensor(array) for array in images(256, 0))
    if devices is not None:
        for tensor in (*get_parameters(model), *get_parameters(average), x_train, y_train):
            tensor.shard_(devices)
    scaled = ((x_train.float() - 80) / 60).realize()
    optimizer = SGD(get_parameters(model), lr=RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = OneCycleLR(optimizer, RATE, steps)

    @TinyJit
    @Tensor.train()
    def step(chosen: Tensor) -> Tensor:
        optimizer.zero_grad()
        x, y = augment(scaled[chosen]), y_train[chosen]
        if devices is not None:
            x, y = x.shard(devices, axis=0), y.shard(devices, axis=0)
        loss = model(x).sparse_categorical_crossentropy(y, label_smoothing=0.1).backward()
        updates = optimizer.schedule_step()
        for mean, weight in zip(get_parameters(average), get_parameters(model), strict=True):
            updates.append(mean.assign(mean * DECAY + weight.cast(mean.dtype) * (1 - DECAY)))
        return loss.realize(*updates)

    losses = []
    for _ in trange(steps, disable=True):
        chosen = Tensor.randperm(256)[:BATCH].cast(dtypes.int32).to(x_train.device).realize()
        losses.append(float(step(chosen)))
        schedule.step()
    x_test, y_test = (Tensor(array).to(x_train.device) for array in images(128, 1))
    with Tensor.train(False), Context(DEBUG=0):
        scores = average((x_test.float() - 80) / 60)
    return losses, float((scores.argmax(1) == y_test).mean())


if __name__ == "__main__":
    print(train())
