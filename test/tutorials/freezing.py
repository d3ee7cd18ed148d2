"""Transfer learning: the body of a network is frozen while its new head is trained; then all of it
is trained with a smaller rate.
"""

from __future__ import annotations

from test.tutorials.common import initialize, initialize_torch, integers, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

STEPS, BATCH, FEATURES, CLASSES = 4, 4, 5, 3
X, Y = normal(STEPS, BATCH, FEATURES), integers(CLASSES, STEPS, BATCH)


class Network:
    def __init__(self) -> None:
        self.body = [nn.Linear(FEATURES, 8), nn.Linear(8, 6)]
        self.head = nn.Linear(6, CLASSES)

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.body:
            x = layer(x).relu()
        return self.head(x)


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(Network(), devices)

    def fit(optimizer) -> list[float]:
        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(x).cross_entropy(y)
            if not jit:
                print("loss", loss.item())
            loss.backward()
            optimizer.step()
            return loss

        step = TinyJit(step) if jit else step
        with Tensor.train():
            return [step(shard(x, devices), shard(y, devices)).item() for x, y in zip(X, Y)]

    before = model.body[0].weight.numpy()
    for p in get_parameters(model.body):
        p.requires_grad = False
    losses = fit(nn.optim.SGD(get_parameters(model.head), lr=0.3))
    assert (model.body[0].weight.numpy() == before).all()
    assert all(p.grad is None for p in get_parameters(model.body))
    for p in get_parameters(model.body):
        p.requires_grad = True
    groups = nn.optim.OptimizerGroup(
        nn.optim.SGD(get_parameters(model.body), lr=0.05, momentum=0.9),
        nn.optim.SGD(get_parameters(model.head), lr=0.1, momentum=0.9),
    )
    losses += fit(groups)
    assert (model.body[0].weight.numpy() != before).any()
    return losses + model.body[1].bias.tolist()


def train_torch() -> list[float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.ModuleList([nn.Linear(FEATURES, 8), nn.Linear(8, 6)])
            self.head = nn.Linear(6, CLASSES)

        def forward(self, x):
            for layer in self.body:
                x = layer(x).relu()
            return self.head(x)

    model = initialize_torch(Network())

    def fit(optimizer):
        losses = []
        for x, y in zip(torch.tensor(X), torch.tensor(Y).long(), strict=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    model.body.requires_grad_(False)
    losses = fit(torch.optim.SGD(model.head.parameters(), lr=0.3))
    model.body.requires_grad_(True)
    groups = [
        {"params": model.body.parameters(), "lr": 0.05},
        {"params": model.head.parameters(), "lr": 0.1},
    ]
    losses += fit(torch.optim.SGD(groups, momentum=0.9))
    return losses + model.body[1].bias.tolist()
