"""Mixed precision: float32 weights, products in float16, a loss scale that halves when a gradient
overflows (that step is left out) and doubles after some good steps.
"""

from __future__ import annotations

from test.tutorials.common import initialize, initialize_torch, normal, shard
from tinygrad import Tensor, TinyJit, dtypes, nn
from tinygrad.nn.state import get_parameters

STEPS, BATCH, FEATURES, HIDDEN, GROW_AFTER = 8, 4, 5, 8, 3
X, Y = normal(STEPS, BATCH, FEATURES), normal(STEPS, BATCH, seed=1)
# overflows in the first steps
SCALE = 2.0**17
# the unit of the last place of float16
RTOL = 2.0**-10


class Network:
    def __init__(self) -> None:
        self.l1, self.l2 = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, 1)

    def __call__(self, x: Tensor) -> Tensor:
        for layer, last in ((self.l1, False), (self.l2, True)):
            x = x.half().linear(layer.weight.half().T, layer.bias.half())
            x = x if last else x.relu()
        return x.squeeze(1)


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(Network(), devices)
    parameters = get_parameters(model)
    optimizer = nn.optim.SGD(parameters, lr=0.1)
    scale = Tensor([SCALE]).to(devices).contiguous().realize()
    good_steps = Tensor([0.0]).to(devices).contiguous().realize()

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        loss = (model(x).float() - y).square().mean()
        if not jit:
            print("loss", loss.item(), "scale", scale.item())
        (loss * scale.squeeze()).backward()
        for p in parameters:
            p.grad /= scale.reshape(*[1] * p.ndim)
        finite = Tensor.stack(*[p.grad.isfinite().all() for p in parameters]).all()
        # without a branch: the gradient of a step that is left out is 0
        for p in parameters:
            p.grad = finite.where(p.grad, 0.0)
        optimizer.step()
        good_steps.assign(finite.where(good_steps + 1, 0.0))
        grow = good_steps >= GROW_AFTER
        scale.assign(finite.where(grow.where(scale * 2, scale), scale / 2))
        good_steps.assign(grow.where(0.0, good_steps))
        return loss, finite.cast(dtypes.float)

    step = TinyJit(step) if jit else step
    numbers = []
    with Tensor.train():
        for x, y in zip(X, Y, strict=True):
            loss, finite = step(shard(x, devices), shard(y, devices))
            numbers += [loss.item(), finite.item(), scale.item()]
    return numbers


def train_torch() -> list[float]:
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.l2 = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, 1)

        def forward(self, x):
            for layer, last in ((self.l1, False), (self.l2, True)):
                x = nn.functional.linear(x.half(), layer.weight.half(), layer.bias.half())
                x = x if last else x.relu()
            return x.squeeze(1)

    model = initialize_torch(Network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scale, good_steps, numbers = SCALE, 0, []
    for x, y in zip(torch.tensor(X), torch.tensor(Y), strict=True):
        optimizer.zero_grad()
        loss = (model(x).float() - y).square().mean()
        (loss * scale).backward()
        for p in model.parameters():
            p.grad /= scale
        finite = all(p.grad.isfinite().all() for p in model.parameters())
        if finite:
            optimizer.step()
            good_steps += 1
            if good_steps >= GROW_AFTER:
                scale, good_steps = scale * 2, 0
        else:
            scale, good_steps = scale / 2, 0
        numbers += [loss.item(), float(finite), scale]
    return numbers
