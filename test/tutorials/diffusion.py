"""Denoising diffusion: a network learns the noise that was added; the average of its weights over
time (EMA), swapped in for evaluation, draws samples.
"""

from __future__ import annotations

import numpy as np

from test.tutorials.common import initialize, initialize_torch, integers, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

STEPS, BATCH, FEATURES, TIMES, DECAY = 5, 4, 4, 6, 0.8
DATA, NOISE = normal(STEPS, BATCH, FEATURES), normal(STEPS, BATCH, FEATURES, seed=1)
TIME = integers(TIMES, STEPS, BATCH, seed=2)
START, FRESH = normal(2, FEATURES, seed=3), normal(TIMES, 2, FEATURES, seed=4)
BETAS = np.linspace(1e-3, 0.3, TIMES, dtype=np.float32)
KEPT = np.cumprod(1 - BETAS).astype(np.float32)


class Denoiser:
    def __init__(self) -> None:
        self.times = nn.Embedding(TIMES, 4)
        self.l1, self.l2 = nn.Linear(FEATURES + 4, 8), nn.Linear(8, FEATURES)

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        return self.l2(self.l1(x.cat(self.times(time), dim=1)).silu())


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model, average = initialize(Denoiser(), devices), initialize(Denoiser(), devices)
    optimizer = nn.optim.Adam(get_parameters(model), lr=0.02)
    for shadow in get_parameters(average):
        shadow.requires_grad = False
    kept = Tensor(KEPT).to(devices)

    def step(x: Tensor, time: Tensor, noise: Tensor) -> Tensor:
        amount = kept[time].unsqueeze(1)
        noisy = amount.sqrt() * x + (1 - amount).sqrt() * noise
        loss = (model(noisy, time) - noise).square().mean()
        if not jit:
            print("loss", loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with Tensor.no_grad():
            for shadow, weight in zip(get_parameters(average), get_parameters(model), strict=True):
                shadow.assign(DECAY * shadow + (1 - DECAY) * weight)
        return loss

    @Tensor.no_grad()
    def sample(network: Denoiser) -> Tensor:
        x = shard(START, devices)
        for t in reversed(range(TIMES)):
            time = Tensor.full((2,), t)
            noise = network(x, time)
            x = (x - BETAS[t].item() / (1 - KEPT[t].item()) ** 0.5 * noise) / (
                1 - BETAS[t].item()
            ) ** 0.5
            if t > 0:
                x += BETAS[t].item() ** 0.5 * shard(FRESH[t], devices)
        return x

    step = TinyJit(step) if jit else step
    losses = []
    with Tensor.train():
        for batch in zip(DATA, TIME, NOISE, strict=True):
            losses.append(step(*(shard(x, devices) for x in batch)).item())
    sample_of = TinyJit(lambda: sample(model).realize()) if jit else lambda: sample(model)
    numbers = sample_of().flatten().tolist()
    # the average takes the place of the weights, and gives it back
    own = [parameter.detach().clone() for parameter in get_parameters(model)]
    for parameter, shadow in zip(get_parameters(model), get_parameters(average), strict=True):
        parameter.assign(shadow)
    numbers += sample_of().flatten().tolist()
    for parameter, before in zip(get_parameters(model), own, strict=True):
        parameter.assign(before)
    numbers += sample_of().flatten().tolist()
    return losses + numbers


def train_torch() -> list[float]:
    import copy

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.times = nn.Embedding(TIMES, 4)
            self.l1, self.l2 = nn.Linear(FEATURES + 4, 8), nn.Linear(8, FEATURES)

        def forward(self, x, time):
            return self.l2(F.silu(self.l1(torch.cat([x, self.times(time)], 1))))

    model = initialize_torch(Denoiser())
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    kept, betas, losses = torch.tensor(KEPT), torch.tensor(BETAS), []
    for x, time, noise in zip(*map(torch.tensor, (DATA, TIME, NOISE)), strict=True):
        amount = kept[time].unsqueeze(1)
        noisy = amount.sqrt() * x + (1 - amount).sqrt() * noise
        loss = (model(noisy, time) - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        for shadow, parameter in zip(average.parameters(), model.parameters(), strict=True):
            shadow.mul_(DECAY).add_((1 - DECAY) * parameter.detach())

    @torch.no_grad()
    def sample(network):
        x = torch.tensor(START)
        for t in reversed(range(TIMES)):
            noise = network(x, torch.full((2,), t))
            x = (x - betas[t] / (1 - kept[t]).sqrt() * noise) / (1 - betas[t]).sqrt()
            if t > 0:
                x += betas[t].sqrt() * torch.tensor(FRESH[t])
        return x.flatten().tolist()

    return losses + sample(model) + sample(average) + sample(model)
