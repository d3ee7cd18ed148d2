"""Gradient clipping by the norm of all gradients, in place, on a recurrent network."""

from __future__ import annotations

from test.tutorials.common import initialize, initialize_torch, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

STEPS, BATCH, TIME, FEATURES, HIDDEN, MAX_NORM = 5, 4, 4, 3, 6, 0.5
X, Y = normal(STEPS, BATCH, TIME, FEATURES), normal(STEPS, BATCH, seed=1)


class Network:
    def __init__(self) -> None:
        self.cell, self.out = nn.GRUCell(FEATURES, HIDDEN), nn.Linear(HIDDEN, 1)

    def __call__(self, x: Tensor) -> Tensor:
        h = None
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return self.out(h).squeeze(1)


def clip_grad_norm_(parameters: list[Tensor], max_norm: float) -> Tensor:
    """Scale gradients in place so that their norm is at most `max_norm`; the norm before."""
    norm = Tensor.stack(*[p.grad.square().sum() for p in parameters]).sum().sqrt()
    scale = (max_norm / (norm + 1e-6)).clip(max_=1.0)
    for p in parameters:
        p.grad *= scale
    return norm


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(Network(), devices)
    parameters = get_parameters(model)
    optimizer = nn.optim.SGD(parameters, lr=0.3, momentum=0.5)

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        norm = clip_grad_norm_(parameters, MAX_NORM)
        if not jit:
            print("loss", loss.item(), "norm", norm.item(), parameters[0].grad.numpy().std())
        optimizer.step()
        clipped = Tensor.stack(*[p.grad.square().sum() for p in parameters]).sum().sqrt()
        return loss, norm, clipped

    step = TinyJit(step) if jit else step
    numbers = []
    with Tensor.train():
        for x, y in zip(X, Y, strict=True):
            numbers += [t.item() for t in step(shard(x, devices), shard(y, devices))]
    return numbers


def train_torch() -> list[float]:
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out = nn.GRUCell(FEATURES, HIDDEN), nn.Linear(HIDDEN, 1)

        def forward(self, x):
            h = None
            for t in range(x.shape[1]):
                h = self.cell(x[:, t], h)
            return self.out(h).squeeze(1)

    model = initialize_torch(Network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
    numbers = []
    for x, y in zip(torch.tensor(X), torch.tensor(Y), strict=True):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        clipped = torch.stack([p.grad.square().sum() for p in model.parameters()]).sum().sqrt()
        numbers += [loss.item(), norm.item(), clipped.item()]
    return numbers
