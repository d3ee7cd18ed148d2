"""LoRA: frozen weights with trained corrections of low rank, merged into the weights at the end."""

from __future__ import annotations

import numpy as np

from test.tutorials.common import initialize, initialize_torch, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters, get_state_dict

STEPS, BATCH, FEATURES, HIDDEN, RANK, ALPHA = 5, 4, 6, 8, 2, 4.0
X, Y = normal(STEPS, BATCH, FEATURES), normal(STEPS, BATCH, 2, seed=1)


class LoRALinear:
    def __init__(self, base: nn.Linear) -> None:
        outputs, inputs = base.weight.shape
        self.base = base
        self.a, self.b = Tensor.zeros(RANK, inputs), Tensor.zeros(outputs, RANK)

    def __call__(self, x: Tensor) -> Tensor:
        return self.base(x) + ALPHA / RANK * (x @ self.a.T @ self.b.T)

    def merge(self) -> nn.Linear:
        with Tensor.no_grad():
            self.base.weight += ALPHA / RANK * (self.b @ self.a)
        return self.base


class Network:
    def __init__(self) -> None:
        self.l1 = LoRALinear(nn.Linear(FEATURES, HIDDEN))
        self.l2 = LoRALinear(nn.Linear(HIDDEN, 2))

    def __call__(self, x: Tensor) -> Tensor:
        return self.l2(self.l1(x).relu())


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(Network(), devices)
    for name, parameter in get_state_dict(model).items():
        parameter.requires_grad = name.endswith((".a", ".b"))
    before = model.l1.base.weight.numpy()
    optimizer = nn.optim.AdamW(get_parameters(model), lr=0.05)
    assert len(optimizer.params) == 4

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        if not jit:
            print("loss", loss.item())
        loss.backward()
        optimizer.step()
        return loss

    step = TinyJit(step) if jit else step
    losses = []
    with Tensor.train():
        for x, y in zip(X, Y, strict=True):
            losses.append(step(shard(x, devices), shard(y, devices)).item())
    assert (model.l1.base.weight.numpy() == before).all()
    apart = model(shard(X[0], devices)).numpy()
    model.l1, model.l2 = model.l1.merge(), model.l2.merge()
    merged = model(shard(X[0], devices)).numpy()
    np.testing.assert_allclose(merged, apart, rtol=1e-4, atol=1e-5)
    return losses + merged.flatten().tolist()


def train_torch() -> list[float]:
    import torch
    from torch import nn

    class LoRALinear(nn.Module):
        def __init__(self, base):
            super().__init__()
            outputs, inputs = base.weight.shape
            self.base = base
            self.a = nn.Parameter(torch.zeros(RANK, inputs))
            self.b = nn.Parameter(torch.zeros(outputs, RANK))

        def forward(self, x):
            return self.base(x) + ALPHA / RANK * (x @ self.a.T @ self.b.T)

        def merge(self):
            with torch.no_grad():
                self.base.weight += ALPHA / RANK * (self.b @ self.a)
            return self.base

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1 = LoRALinear(nn.Linear(FEATURES, HIDDEN))
            self.l2 = LoRALinear(nn.Linear(HIDDEN, 2))

        def forward(self, x):
            return self.l2(self.l1(x).relu())

    model = initialize_torch(Network())
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith((".a", ".b")))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.05, weight_decay=0.01)
    losses = []
    for x, y in zip(torch.tensor(X), torch.tensor(Y), strict=True):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.l1, model.l2 = model.l1.merge(), model.l2.merge()
    return losses + model(torch.tensor(X[0])).flatten().tolist()
