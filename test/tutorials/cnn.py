"""A convolutional network with batch normalization, evaluated on running statistics."""

from __future__ import annotations

from test.tutorials.common import initialize, initialize_torch, integers, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

STEPS, BATCH = 4, 4
X, Y = normal(BATCH, 1, 8, 8), integers(3, BATCH)
X_TEST, Y_TEST = normal(BATCH, 1, 8, 8, seed=1), integers(3, BATCH, seed=1)


class CNN:
    def __init__(self) -> None:
        self.conv1, self.norm1 = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.norm2 = nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6)
        self.linear = nn.Linear(6, 3)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm1(self.conv1(x)).relu().max_pool2d(2)
        x = self.norm2(self.conv2(x)).relu().avg_pool2d(2)
        return self.linear(x.flatten(1))


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(CNN(), devices)
    optimizer = nn.optim.SGD(get_parameters(model), lr=0.05, momentum=0.9)

    @Tensor.train()
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y)
        if not jit:
            print(loss.numpy())
        loss.backward()
        optimizer.step()
        return loss

    @Tensor.train(mode=False)
    @Tensor.no_grad()
    def evaluate(x: Tensor, y: Tensor) -> Tensor:
        return model(x).sparse_categorical_crossentropy(y)

    if jit:
        step, evaluate = TinyJit(step), TinyJit(evaluate)
    x, y = shard(X, devices), shard(Y, devices)
    x_test, y_test = shard(X_TEST, devices), shard(Y_TEST, devices)
    losses, tests = [], []
    for _ in range(STEPS):
        losses.append(step(x, y).item())
        tests.append(evaluate(x_test, y_test).item())
    statistics = [model.norm1.running_mean, model.norm2.running_var, model.norm2.running_mean]
    return losses + tests + [v for s in statistics for v in s.tolist()]


def train_torch() -> list[float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class CNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
            self.conv2, self.norm2 = nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6)
            self.linear = nn.Linear(6, 3)

        def forward(self, x):
            x = F.max_pool2d(self.norm1(self.conv1(x)).relu(), 2)
            x = F.avg_pool2d(self.norm2(self.conv2(x)).relu(), 2)
            return self.linear(x.flatten(1))

    model = initialize_torch(CNN())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses, tests = [], []
    for _ in range(STEPS):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.tensor(X)), torch.tensor(Y).long())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            test = F.cross_entropy(model(torch.tensor(X_TEST)), torch.tensor(Y_TEST).long())
        tests.append(test.item())
    statistics = [model.norm1.running_mean, model.norm2.running_var, model.norm2.running_mean]
    return losses + tests + [v for s in statistics for v in s.tolist()]
