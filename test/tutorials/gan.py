"""A generative adversarial network: two networks, two optimizers, alternating steps."""

from __future__ import annotations

from test.tutorials.common import initialize, initialize_torch, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

STEPS, BATCH, LATENT, FEATURES = 5, 4, 3, 5
REAL, NOISE = normal(STEPS, BATCH, FEATURES), normal(STEPS, BATCH, LATENT, seed=1)


class Generator:
    def __init__(self) -> None:
        # a bias before a normalization has no effect
        self.g1, self.norm = nn.Linear(LATENT, 8, bias=False), nn.BatchNorm(8)
        self.g2 = nn.Linear(8, FEATURES)

    def __call__(self, z: Tensor) -> Tensor:
        return self.g2(self.norm(self.g1(z)).relu()).tanh()


class Discriminator:
    def __init__(self) -> None:
        self.d1, self.d2 = nn.Linear(FEATURES, 8), nn.Linear(8, 1)

    def __call__(self, x: Tensor) -> Tensor:
        return self.d2(self.d1(x).leaky_relu(0.2))


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    generator = initialize(Generator(), devices)
    discriminator = initialize(Discriminator(), devices)
    optimizer_g = nn.optim.Adam(get_parameters(generator), lr=0.02, b1=0.5)
    optimizer_d = nn.optim.Adam(get_parameters(discriminator), lr=0.02, b1=0.5)

    def step(real: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        # the discriminator: real is 1, fake is 0
        fake = generator(noise)
        optimizer_d.zero_grad()
        on_real = discriminator(real)
        on_fake = discriminator(fake.detach())
        loss_d = on_real.binary_crossentropy_logits(on_real.ones_like())
        loss_d = loss_d + on_fake.binary_crossentropy_logits(on_fake.zeros_like())
        if not jit:
            print("discriminator", loss_d.item(), "fake", fake.numpy().mean())
        loss_d.backward()
        optimizer_d.step()
        # the generator: fake is to be taken for real, by the new discriminator
        optimizer_g.zero_grad()
        on_fake = discriminator(fake)
        loss_g = on_fake.binary_crossentropy_logits(on_fake.ones_like())
        if not jit:
            print("generator", loss_g.item())
        loss_g.backward()
        optimizer_g.step()
        return loss_d, loss_g

    step = TinyJit(step) if jit else step
    losses = []
    with Tensor.train():
        for real, noise in zip(REAL, NOISE, strict=True):
            for loss in step(shard(real, devices), shard(noise, devices)):
                losses.append(loss.item())
    return losses + generator.norm.running_mean.tolist()


def train_torch() -> list[float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.g1, self.norm = nn.Linear(LATENT, 8, bias=False), nn.BatchNorm1d(8)
            self.g2 = nn.Linear(8, FEATURES)

        def forward(self, z):
            return self.g2(self.norm(self.g1(z)).relu()).tanh()

    class Discriminator(nn.Module):
        def __init__(self):
            super().__init__()
            self.d1, self.d2 = nn.Linear(FEATURES, 8), nn.Linear(8, 1)

        def forward(self, x):
            return self.d2(F.leaky_relu(self.d1(x), 0.2))

    generator, discriminator = initialize_torch(Generator()), initialize_torch(Discriminator())
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=0.02, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=0.02, betas=(0.5, 0.999))
    bce, losses = F.binary_cross_entropy_with_logits, []
    for real, noise in zip(torch.tensor(REAL), torch.tensor(NOISE), strict=True):
        fake = generator(noise)
        optimizer_d.zero_grad()
        on_real, on_fake = discriminator(real), discriminator(fake.detach())
        loss_d = bce(on_real, torch.ones_like(on_real)) + bce(on_fake, torch.zeros_like(on_fake))
        loss_d.backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        on_fake = discriminator(fake)
        loss_g = bce(on_fake, torch.ones_like(on_fake))
        loss_g.backward()
        optimizer_g.step()
        losses += [loss_d.item(), loss_g.item()]
    return losses + generator.norm.running_mean.tolist()
