"""Sharpness-aware minimization: weights are moved uphill in place, their gradient is taken there,
they are moved back, and the optimizer takes its step.
"""

from __future__ import annotations

from test.tutorials.common import initialize, initialize_torch, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

STEPS, BATCH, FEATURES, RADIUS = 5, 4, 4, 0.05
X, Y = normal(STEPS, BATCH, FEATURES), normal(STEPS, BATCH, 2, seed=1)


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(nn.Linear(FEATURES, 2), devices)
    parameters = get_parameters(model)
    optimizer = nn.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        loss = (model(x).tanh() - y).square().mean()
        if not jit:
            print("loss", loss.item())
        return loss

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        with Tensor.no_grad():
            size = Tensor.stack(*[p.grad.square().sum() for p in parameters]).sum().sqrt()
            steps = [RADIUS * p.grad / (size + 1e-12) for p in parameters]
            for p, uphill in zip(parameters, steps, strict=True):
                p += uphill
        optimizer.zero_grad()
        loss_of(x, y).backward()
        with Tensor.no_grad():
            for p, uphill in zip(parameters, steps, strict=True):
                p -= uphill
        optimizer.step()
        return loss

    step = TinyJit(step) if jit else step
    with Tensor.train():
        losses = [
            step(shard(x, devices), shard(y, devices)).item() for x, y in zip(X, Y, strict=True)
        ]
    return losses + model.weight.flatten().tolist()


def train_torch() -> list[float]:
    import torch
    from torch import nn

    model = initialize_torch(nn.Linear(FEATURES, 2))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    losses = []
    for x, y in zip(torch.tensor(X), torch.tensor(Y), strict=True):
        optimizer.zero_grad()
        loss = (model(x).tanh() - y).square().mean()
        loss.backward()
        with torch.no_grad():
            size = torch.stack([p.grad.square().sum() for p in parameters]).sum().sqrt()
            steps = [RADIUS * p.grad / (size + 1e-12) for p in parameters]
            for p, uphill in zip(parameters, steps, strict=True):
                p += uphill
        optimizer.zero_grad()
        (model(x).tanh() - y).square().mean().backward()
        with torch.no_grad():
            for p, uphill in zip(parameters, steps, strict=True):
                p -= uphill
        optimizer.step()
        losses.append(loss.item())
    return losses + model.weight.flatten().tolist()
