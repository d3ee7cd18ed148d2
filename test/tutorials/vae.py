"""A variational autoencoder: the reparameterization trick, binary cross entropy and divergence."""

from __future__ import annotations

import numpy as np

from test.tutorials.common import initialize, initialize_torch, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

STEPS, BATCH, PIXELS, LATENT = 5, 4, 12, 3
X = (normal(BATCH, PIXELS) > 0).astype(np.float32)
# the noise is given, since the random numbers of two libraries differ
NOISE = normal(STEPS, BATCH, LATENT, seed=1)


class VAE:
    def __init__(self) -> None:
        self.encoder, self.latent = nn.Linear(PIXELS, 10), nn.Linear(10, 2 * LATENT)
        self.hidden, self.decoder = nn.Linear(LATENT, 10), nn.Linear(10, PIXELS)

    def __call__(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_var = self.latent(self.encoder(x).relu()).chunk(2, dim=1)
        z = mean + noise * (0.5 * log_var).exp()
        return self.decoder(self.hidden(z).relu()), mean, log_var


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(VAE(), devices)
    optimizer = nn.optim.Adam(get_parameters(model), lr=0.02)

    def step(x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        logits, mean, log_var = model(x, noise)
        reconstruction = logits.binary_crossentropy_logits(x, reduction="sum")
        divergence = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum()
        loss = (reconstruction + divergence) / BATCH
        if not jit:
            print(f"{reconstruction.item():.3f} + {divergence.item():.3f}", mean.numpy()[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, divergence

    step = TinyJit(step) if jit else step
    numbers = []
    with Tensor.train():
        for noise in NOISE:
            loss, divergence = step(shard(X, devices), shard(noise, devices))
            numbers += [loss.item(), divergence.item()]
    samples = model.decoder(model.hidden(Tensor(normal(2, LATENT)).to(devices)).relu()).sigmoid()
    return numbers + samples.flatten().tolist()


def train_torch() -> list[float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.latent = nn.Linear(PIXELS, 10), nn.Linear(10, 2 * LATENT)
            self.hidden, self.decoder = nn.Linear(LATENT, 10), nn.Linear(10, PIXELS)

        def forward(self, x, noise):
            mean, log_var = self.latent(self.encoder(x).relu()).chunk(2, dim=1)
            z = mean + noise * (0.5 * log_var).exp()
            return self.decoder(self.hidden(z).relu()), mean, log_var

    model = initialize_torch(VAE())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    x, numbers = torch.tensor(X), []
    for noise in torch.tensor(NOISE):
        logits, mean, log_var = model(x, noise)
        reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        divergence = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum()
        loss = (reconstruction + divergence) / BATCH
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        numbers += [loss.item(), divergence.item()]
    with torch.no_grad():
        samples = model.decoder(model.hidden(torch.tensor(normal(2, LATENT))).relu()).sigmoid()
    return numbers + samples.flatten().tolist()
