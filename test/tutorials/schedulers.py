"""Learning rate schedules: a linear warmup and a cosine; the rate is a tensor that is assigned."""

from __future__ import annotations

import math

from test.tutorials.common import initialize, initialize_torch, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.optim import Optimizer
from tinygrad.nn.state import get_parameters

STEPS, WARMUP, BATCH, FEATURES, RATE = 7, 2, 4, 5, 0.1
X, Y = normal(STEPS, BATCH, FEATURES), normal(STEPS, BATCH, 2, seed=1)


def factor(step: int) -> float:
    if step < WARMUP:
        return (step + 1) / (WARMUP + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))


class LambdaLR:
    """Multiplies the first rate of an optimizer by a function of the step."""

    def __init__(self, optimizer: Optimizer, function) -> None:
        self.optimizer, self.function, self.epoch = optimizer, function, -1
        self.base = optimizer.lr.item()
        self.step()

    def step(self) -> None:
        self.epoch += 1
        rate = self.base * self.function(self.epoch)
        self.optimizer.lr.assign(Tensor([rate], device=self.optimizer.lr.device))

    def get_last_lr(self) -> float:
        return self.optimizer.lr.item()


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(nn.Linear(FEATURES, 2), devices)
    optimizer = nn.optim.Adam(get_parameters(model), lr=RATE)
    scheduler = LambdaLR(optimizer, factor)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) - y).abs().mean()
        if not jit:
            print("loss", loss.item(), "rate", scheduler.get_last_lr())
        loss.backward()
        optimizer.step()
        return loss

    step = TinyJit(step) if jit else step
    numbers = []
    with Tensor.train():
        for number, (x, y) in enumerate(zip(X, Y, strict=True)):
            numbers.append(step(shard(x, devices), shard(y, devices)).item())
            # not read in every step: the next assignment waits for none before it
            if number % 2:
                numbers.append(scheduler.get_last_lr())
            scheduler.step()
    return numbers + model.weight.flatten().tolist()


def train_torch() -> list[float]:
    import torch
    from torch import nn

    model = initialize_torch(nn.Linear(FEATURES, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    numbers = []
    for number, (x, y) in enumerate(zip(torch.tensor(X), torch.tensor(Y), strict=True)):
        optimizer.zero_grad()
        loss = (model(x) - y).abs().mean()
        loss.backward()
        optimizer.step()
        numbers.append(loss.item())
        if number % 2:
            numbers.append(scheduler.get_last_lr()[0])
        scheduler.step()
    return numbers + model.weight.flatten().tolist()
