"""Contrastive learning of pairs (CLIP): two encoders, a learned temperature, a symmetric loss."""

from __future__ import annotations

import numpy as np

from test.tutorials.common import initialize, initialize_torch, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

STEPS, BATCH, IMAGE, WORDS, SHARED = 5, 4, 6, 5, 4
IMAGES, TEXTS = normal(STEPS, BATCH, IMAGE), normal(STEPS, BATCH, WORDS, seed=1)


class Encoders:
    def __init__(self) -> None:
        self.image, self.text = nn.Linear(IMAGE, SHARED, bias=False), nn.Linear(WORDS, SHARED)
        self.log_scale = Tensor(np.log(1 / 0.07))

    def __call__(self, image: Tensor, text: Tensor) -> Tensor:
        image, text = self.image(image), self.text(text)
        image = image / image.square().sum(1, keepdim=True).sqrt()
        text = text / text.square().sum(1, keepdim=True).sqrt()
        return self.log_scale.exp() * (image @ text.T)


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(Encoders(), devices)
    optimizer = nn.optim.AdamW(get_parameters(model), lr=0.05)

    def step(image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        logits = model(image, text)
        labels = Tensor.arange(BATCH)
        loss = (logits.cross_entropy(labels) + logits.T.cross_entropy(labels)) / 2
        found = (logits.argmax(1) == labels).mean()
        if not jit:
            print("loss", loss.item(), "found", found.item(), logits.numpy().shape)
        loss.backward()
        optimizer.step()
        return loss, found

    step = TinyJit(step) if jit else step
    numbers = []
    with Tensor.train():
        for image, text in zip(IMAGES, TEXTS, strict=True):
            loss, found = step(shard(image, devices), shard(text, devices))
            numbers += [loss.item(), found.item(), model.log_scale.item()]
    return numbers


def train_torch() -> list[float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Encoders(nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.text = nn.Linear(IMAGE, SHARED, bias=False), nn.Linear(WORDS, SHARED)
            self.log_scale = nn.Parameter(torch.tensor(np.log(1 / 0.07)))

        def forward(self, image, text):
            image, text = F.normalize(self.image(image)), F.normalize(self.text(text))
            return self.log_scale.exp() * (image @ text.T)

    model = initialize_torch(Encoders())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.01)
    numbers = []
    for image, text in zip(torch.tensor(IMAGES), torch.tensor(TEXTS), strict=True):
        optimizer.zero_grad()
        logits = model(image, text)
        labels = torch.arange(BATCH)
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
        found = (logits.argmax(1) == labels).float().mean()
        loss.backward()
        optimizer.step()
        numbers += [loss.item(), found.item(), model.log_scale.item()]
    return numbers
