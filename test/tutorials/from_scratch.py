"""Linear regression from scratch: parameters and gradients are changed in place, without an
optimizer; some weights are kept within bounds, some are frozen by setting their gradient to zero.
"""

from __future__ import annotations

from test.tutorials.common import initial, normal, shard
from tinygrad import Tensor, TinyJit

STEPS, BATCH, FEATURES, RATE = 6, 4, 4, 0.1
X, Y = normal(STEPS, BATCH, FEATURES), normal(STEPS, BATCH, 2, seed=1)


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    w = Tensor(initial("w", (FEATURES, 2)), requires_grad=True).to_(devices)
    b = Tensor.zeros(2, requires_grad=True).to_(devices)
    for p in (w, b):
        p.grad = p.zeros_like()

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = (x @ w + b - y).square().mean()
        if not jit:
            print("loss", loss.item())
        loss.backward()
        w.grad[0] = 0
        w.grad[:, 1] *= 0.5
        with Tensor.no_grad():
            for p in (w, b):
                p -= RATE * p.grad
                p.grad *= 0
            w[1] = w[1].clamp(-0.3, 0.3)
            w.detach()[2:] *= 0.9
        return loss

    step = TinyJit(step) if jit else step
    losses = [step(shard(x, devices), shard(y, devices)).item() for x, y in zip(X, Y, strict=True)]
    return losses + w.flatten().tolist() + b.tolist()


def train_torch() -> list[float]:
    import torch

    w = torch.tensor(initial("w", (FEATURES, 2)), requires_grad=True)
    b = torch.zeros(2, requires_grad=True)
    losses = []
    for x, y in zip(torch.tensor(X), torch.tensor(Y), strict=True):
        loss = (x @ w + b - y).square().mean()
        loss.backward()
        w.grad[0] = 0
        w.grad[:, 1] *= 0.5
        with torch.no_grad():
            for p in (w, b):
                p -= RATE * p.grad
                p.grad.zero_()
            w[1] = w[1].clamp(-0.3, 0.3)
            w.data[2:] *= 0.9
        losses.append(loss.item())
    return losses + w.flatten().tolist() + b.tolist()
