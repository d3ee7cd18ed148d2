"""Checkpoints: training goes on from the weights and optimizer state of an earlier step, which are
loaded from a file into the model that was trained since, and into a new one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from test.tutorials.common import initialize, initialize_torch, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import (
    get_parameters,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_save,
)

STEPS, SAVED_AFTER, BATCH, FEATURES = 6, 3, 4, 5
X, Y = normal(STEPS, BATCH, FEATURES), normal(STEPS, BATCH, 2, seed=1)


class Training:
    """A model, its optimizer and a step, which is captured."""

    def __init__(self, devices: tuple[str, ...], jit: bool) -> None:
        self.model = initialize(nn.Linear(FEATURES, 2), devices)
        self.optimizer = nn.optim.Adam(get_parameters(self.model), lr=0.1)
        self.step = TinyJit(self.run) if jit else self.run
        self.devices, self.jit = devices, jit

    @Tensor.train()
    def run(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = (self.model(x).tanh() - y).square().mean()
        if not self.jit:
            print("loss", loss.item())
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self, first: int, last: int) -> list[float]:
        batches = zip(X[first:last], Y[first:last], strict=True)
        return [self.step(*(shard(a, self.devices) for a in pair)).item() for pair in batches]

    def state(self) -> dict[str, Tensor]:
        return get_state_dict({"model": self.model, "optimizer": self.optimizer})


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    training, new = Training(devices, jit), Training(devices, jit)
    losses = training.fit(0, SAVED_AFTER)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "checkpoint.safetensors")
        safe_save(training.state(), file)
        losses += training.fit(SAVED_AFTER, STEPS)
        for again in (training, new):
            saved = {"model": again.model, "optimizer": again.optimizer}
            load_state_dict(saved, safe_load(file), verbose=False)
            losses += again.fit(SAVED_AFTER, STEPS)
    return losses + training.model.bias.tolist()


def train_torch() -> list[float]:
    import torch
    from torch import nn

    model = initialize_torch(nn.Linear(FEATURES, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    for x, y in zip(torch.tensor(X), torch.tensor(Y), strict=True):
        optimizer.zero_grad()
        loss = (model(x).tanh() - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses + 2 * losses[SAVED_AFTER:] + model.bias.tolist()
