"""Meta-learning (MAML): the loss after inner steps of gradient descent is differentiated through
them.
"""

from __future__ import annotations

from test.tutorials.common import initial, normal, shard
from tinygrad import Tensor, TinyJit, nn

STEPS, BATCH, FEATURES, INNER_STEPS, RATE = 5, 8, 4, 2, 0.1
X, Y = normal(STEPS, BATCH, FEATURES), normal(STEPS, BATCH, 2, seed=1)


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    w = Tensor(initial("w", (FEATURES, 2))).to_(devices)
    optimizer = nn.optim.SGD([w], lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        adapted = w
        for _ in range(INNER_STEPS):
            loss = ((x[: BATCH // 2] @ adapted).tanh() - y[: BATCH // 2]).square().mean()
            if not jit:
                print("inner loss", loss.item())
            (slope,) = loss.gradient(adapted)
            adapted = adapted - RATE * slope
        loss = ((x[BATCH // 2 :] @ adapted).tanh() - y[BATCH // 2 :]).square().mean()
        if not jit:
            print("loss", loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = TinyJit(step) if jit else step
    with Tensor.train():
        losses = [
            step(shard(x, devices), shard(y, devices)).item() for x, y in zip(X, Y, strict=True)
        ]
    return losses + w.flatten().tolist()


def train_torch() -> list[float]:
    import torch

    w = torch.tensor(initial("w", (FEATURES, 2)), requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    losses = []
    for x, y in zip(torch.tensor(X), torch.tensor(Y), strict=True):
        adapted = w
        for _ in range(INNER_STEPS):
            loss = ((x[: BATCH // 2] @ adapted).tanh() - y[: BATCH // 2]).square().mean()
            (slope,) = torch.autograd.grad(loss, adapted, create_graph=True)
            adapted = adapted - RATE * slope
        loss = ((x[BATCH // 2 :] @ adapted).tanh() - y[BATCH // 2 :]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses + w.flatten().tolist()
