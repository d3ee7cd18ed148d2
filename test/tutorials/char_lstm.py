"""A character model with an LSTM, trained on consecutive pieces of a text: the hidden state is
carried over to the next piece, detached.
"""

from __future__ import annotations

import numpy as np

from test.tutorials.common import initialize, initialize_torch, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

TEXT = "the cat sat on the mat, and the dog sat on the log; then they ate what the rat had not."
LETTERS = sorted(set(TEXT))
BATCH, LENGTH, HIDDEN = 2, 5, 8
STEPS = 6
# (batch, time): each row reads its half of the text
NUMBERS = np.array([LETTERS.index(c) for c in TEXT[: len(TEXT) // 2 * 2]], np.int32)
ROWS = NUMBERS.reshape(BATCH, -1)


def pieces():
    for start in range(0, STEPS * LENGTH, LENGTH):
        yield ROWS[:, start : start + LENGTH], ROWS[:, start + 1 : start + LENGTH + 1]


class CharLSTM:
    def __init__(self) -> None:
        self.embedding = nn.Embedding(len(LETTERS), 6)
        self.cell = nn.LSTMCell(6, HIDDEN)
        self.out = nn.Linear(HIDDEN, len(LETTERS))

    def __call__(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        embedded = self.embedding(x)
        outputs = Tensor.zeros(*x.shape, HIDDEN, device=x.device).contiguous()
        for t in range(x.shape[1]):
            h, c = self.cell(embedded[:, t], (h, c))
            outputs[:, t] = h
        return self.out(outputs), h, c


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(CharLSTM(), devices)
    optimizer = nn.optim.Adam(get_parameters(model), lr=0.03)

    def step(x: Tensor, y: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        optimizer.zero_grad()
        logits, h, c = model(x, h, c)
        loss = logits.flatten(0, 1).cross_entropy(y.flatten())
        if not jit:
            print("loss", loss.item(), "state", h.numpy().mean())
        loss.backward()
        optimizer.step()
        return loss, h.detach(), c.detach()

    step = TinyJit(step) if jit else step
    losses = []
    h = c = shard(np.zeros((BATCH, HIDDEN), np.float32), devices)
    c = c.clone()
    with Tensor.train():
        for x, y in pieces():
            loss, h, c = step(shard(x, devices), shard(y, devices), h, c)
            losses.append(loss.item())
    return losses


def train_torch() -> list[float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class CharLSTM(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(len(LETTERS), 6)
            self.cell = nn.LSTMCell(6, HIDDEN)
            self.out = nn.Linear(HIDDEN, len(LETTERS))

        def forward(self, x, h, c):
            embedded, outputs = self.embedding(x), torch.zeros(*x.shape, HIDDEN)
            for t in range(x.shape[1]):
                h, c = self.cell(embedded[:, t], (h, c))
                outputs[:, t] = h
            return self.out(outputs), h, c

    model = initialize_torch(CharLSTM())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    h = c = torch.zeros(BATCH, HIDDEN)
    for x, y in pieces():
        optimizer.zero_grad()
        logits, h, c = model(torch.tensor(x), h, c)
        loss = F.cross_entropy(logits.flatten(0, 1), torch.tensor(y).long().flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        h, c = h.detach(), c.detach()
    return losses
