"""A Wasserstein GAN with gradient penalty: the gradient of a gradient, and several steps of the
critic for each of the generator.
"""

from __future__ import annotations

from test.tutorials.common import initialize, initialize_torch, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

STEPS, CRITIC_STEPS, BATCH, LATENT, FEATURES, PENALTY = 4, 2, 4, 3, 5, 10.0
REAL = normal(STEPS, CRITIC_STEPS, BATCH, FEATURES)
NOISE = normal(STEPS, CRITIC_STEPS, BATCH, LATENT, seed=1)
MIX = abs(normal(STEPS, CRITIC_STEPS, BATCH, 1, seed=2)) % 1


class Network:
    def __init__(self, inputs: int, outputs: int) -> None:
        self.l1, self.l2, self.l3 = nn.Linear(inputs, 6), nn.Linear(6, 6), nn.Linear(6, outputs)

    def __call__(self, x: Tensor) -> Tensor:
        return self.l3(self.l2(self.l1(x).tanh()).silu())


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    generator = initialize(Network(LATENT, FEATURES), devices)
    critic = initialize(Network(FEATURES, 1), devices)
    optimizer_g = nn.optim.Adam(get_parameters(generator), lr=0.01, b1=0.0, b2=0.9)
    optimizer_c = nn.optim.Adam(get_parameters(critic), lr=0.01, b1=0.0, b2=0.9)

    def penalty_of(real: Tensor, fake: Tensor, mix: Tensor) -> Tensor:
        between = mix * real + (1 - mix) * fake
        (slope,) = critic(between).sum().gradient(between)
        return ((slope.square().sum(1) + 1e-12).sqrt() - 1).square().mean()

    def critic_step(real: Tensor, noise: Tensor, mix: Tensor) -> tuple[Tensor, Tensor]:
        optimizer_c.zero_grad()
        fake = generator(noise).detach()
        penalty = penalty_of(real, fake, mix)
        if not jit:
            print("penalty", penalty.item())
        loss = critic(fake).mean() - critic(real).mean() + PENALTY * penalty
        loss.backward()
        optimizer_c.step()
        return loss, penalty

    def generator_step(noise: Tensor) -> Tensor:
        optimizer_g.zero_grad()
        loss = -critic(generator(noise)).mean()
        loss.backward()
        optimizer_g.step()
        return loss

    if jit:
        critic_step, generator_step = TinyJit(critic_step), TinyJit(generator_step)
    numbers = []
    with Tensor.train():
        for step in range(STEPS):
            for i in range(CRITIC_STEPS):
                batch = (shard(x[step, i], devices) for x in (REAL, NOISE, MIX))
                loss, penalty = critic_step(*batch)
                numbers += [loss.item(), penalty.item()]
            numbers.append(generator_step(shard(NOISE[step, 0], devices)).item())
    return numbers


def train_torch() -> list[float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Network(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.l1, self.l2, self.l3 = nn.Linear(inputs, 6), nn.Linear(6, 6), nn.Linear(6, outputs)

        def forward(self, x):
            return self.l3(F.silu(self.l2(self.l1(x).tanh())))

    generator = initialize_torch(Network(LATENT, FEATURES))
    critic = initialize_torch(Network(FEATURES, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.0, 0.9))
    optimizer_c = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.0, 0.9))
    numbers = []
    for step in range(STEPS):
        for i in range(CRITIC_STEPS):
            real, noise, mix = (torch.tensor(x[step, i]) for x in (REAL, NOISE, MIX))
            optimizer_c.zero_grad()
            fake = generator(noise).detach()
            between = (mix * real + (1 - mix) * fake).requires_grad_()
            (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
            penalty = ((slope.square().sum(1) + 1e-12).sqrt() - 1).square().mean()
            loss = critic(fake).mean() - critic(real).mean() + PENALTY * penalty
            loss.backward()
            optimizer_c.step()
            numbers += [loss.item(), penalty.item()]
        optimizer_g.zero_grad()
        loss = -critic(generator(torch.tensor(NOISE[step, 0]))).mean()
        loss.backward()
        optimizer_g.step()
        numbers.append(loss.item())
    return numbers
