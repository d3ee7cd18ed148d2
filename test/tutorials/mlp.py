"""A perceptron with two hidden layers, trained by SGD with momentum on labels of random points."""

from __future__ import annotations

import numpy as np

from test.tutorials.common import initialize, initialize_torch, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

EPOCHS, BATCHES, BATCH = 2, 3, 8
X = normal(BATCHES, BATCH, 6)
Y = (X.sum(-1) > 0).astype(np.int32) + (X[..., 0] > 0)


class MLP:
    def __init__(self) -> None:
        self.l1, self.l2, self.l3 = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 3)

    def __call__(self, x: Tensor) -> Tensor:
        return self.l3(self.l2(self.l1(x).relu()).tanh())


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(MLP(), devices)
    optimizer = nn.optim.SGD(get_parameters(model), lr=0.1, momentum=0.9, weight_decay=1e-3)

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        logits = model(x)
        loss = logits.cross_entropy(y)
        accuracy = (logits.argmax(1) == y).mean()
        if not jit:
            history.append(loss)
            print(f"loss {loss.item():.4f}, accuracy {accuracy.item():.2f}")
        loss.backward()
        optimizer.step()
        return loss, accuracy

    step = TinyJit(step) if jit else step
    numbers, history = [], []
    with Tensor.train():
        for _ in range(EPOCHS):
            running_loss = 0.0
            for x, y in zip(X, Y, strict=True):
                x, y = shard(x, devices), shard(y, devices)
                x -= x.mean(0)
                x /= x.std(0)
                loss, accuracy = step(x, y)
                running_loss += loss.detach() * accuracy
                numbers.append(loss.item())
            numbers.append((running_loss / BATCHES).item())
    if history:
        mean = Tensor.stack(*history).mean().item()
        assert abs(mean - sum(loss.item() for loss in history) / len(history)) < 1e-5
    return numbers


def train_torch() -> list[float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.l2, self.l3 = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 3)

        def forward(self, x):
            return self.l3(self.l2(self.l1(x).relu()).tanh())

    model = initialize_torch(MLP())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    numbers = []
    for _ in range(EPOCHS):
        running_loss = 0.0
        for x, y in zip(torch.tensor(X), torch.tensor(Y).long(), strict=True):
            x -= x.mean(0)
            x /= x.std(0)
            optimizer.zero_grad()
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            accuracy = (logits.argmax(1) == y).float().mean()
            loss.backward()
            optimizer.step()
            numbers.append(loss.item())
            running_loss += loss.item() * accuracy.item()
        numbers.append(running_loss / BATCHES)
    return numbers
