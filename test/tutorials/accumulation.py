"""Gradient accumulation: several small batches for each step of the optimizer."""

from __future__ import annotations

from test.tutorials.common import initialize, initialize_torch, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

STEPS, MICROBATCHES, BATCH, FEATURES = 4, 3, 4, 5
X, Y = normal(STEPS, MICROBATCHES, BATCH, FEATURES), normal(STEPS, MICROBATCHES, BATCH, seed=1)


class Network:
    def __init__(self) -> None:
        self.l1, self.l2 = nn.Linear(FEATURES, 6), nn.Linear(6, 1)

    def __call__(self, x: Tensor) -> Tensor:
        return self.l2(self.l1(x).tanh()).squeeze(1)


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(Network(), devices)
    parameters = get_parameters(model)
    optimizer = nn.optim.Adam(parameters, lr=0.05)
    for p in parameters:
        p.grad = p.zeros_like().contiguous()

    def forward_backward(x: Tensor, y: Tensor) -> Tensor:
        loss = (model(x) - y).square().mean() / MICROBATCHES
        if not jit:
            print("loss", loss.item())
        loss.backward()
        return loss

    def optimizer_step() -> None:
        optimizer.step()
        for p in parameters:
            p.grad.assign(p.grad.zeros_like())

    if jit:
        forward_backward, optimizer_step = TinyJit(forward_backward), TinyJit(optimizer_step)
    losses = []
    with Tensor.train():
        for step in range(STEPS):
            total = 0.0
            for x, y in zip(X[step], Y[step], strict=True):
                total += forward_backward(shard(x, devices), shard(y, devices)).item()
            losses.append(total)
            losses.append(sum(p.grad.square().sum().item() for p in parameters) ** 0.5)
            optimizer_step()
    return losses


def train_torch() -> list[float]:
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.l2 = nn.Linear(FEATURES, 6), nn.Linear(6, 1)

        def forward(self, x):
            return self.l2(self.l1(x).tanh()).squeeze(1)

    model = initialize_torch(Network())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for step in range(STEPS):
        total = 0.0
        for x, y in zip(torch.tensor(X[step]), torch.tensor(Y[step]), strict=True):
            loss = (model(x) - y).square().mean() / MICROBATCHES
            loss.backward()
            total += loss.item()
        losses.append(total)
        losses.append(sum(p.grad.square().sum().item() for p in model.parameters()) ** 0.5)
        optimizer.step()
        optimizer.zero_grad()
    return losses
