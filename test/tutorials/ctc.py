"""Connectionist temporal classification: the sum over all alignments, by dynamic programming."""

from __future__ import annotations

from test.tutorials.common import initialize, initialize_torch, integers, normal, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

STEPS, BATCH, TIME, FEATURES, LETTERS, LABELS = 4, 2, 6, 4, 5, 3
X = normal(BATCH, TIME, FEATURES)
# letters are numbered from 1; 0 is the blank
Y = integers(LETTERS - 1, BATCH, LABELS) + 1
NEVER = -1e30


def ctc_loss(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """The mean over the batch of -log P(labels) / length.

    `log_probabilities` is (batch, time, letters), `labels` (batch, labels).
    """
    batch, length, _ = log_probabilities.shape
    # a blank before and after each label
    states = labels.unsqueeze(2).pad((1, 0)).flatten(1).pad((0, 1))
    count = states.shape[1]
    emitted = log_probabilities.gather(2, states.unsqueeze(1).expand(batch, length, count))
    # a blank may be skipped between different labels
    two_before = states.pad((2, 0))[:, :count]
    may_skip = (states != 0) & (states != two_before)
    first = Tensor.arange(count) < 2
    alpha = first.where(emitted[:, 0], NEVER)
    for t in range(1, length):
        stay, advance = alpha, alpha.pad((1, 0), value=NEVER)[:, :count]
        skip = may_skip.where(alpha.pad((2, 0), value=NEVER)[:, :count], NEVER)
        alpha = Tensor.stack(stay, advance, skip).logsumexp(0) + emitted[:, t]
    return -(alpha[:, -2:].logsumexp(1) / labels.shape[1]).mean()


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(nn.Linear(FEATURES, LETTERS), devices)
    optimizer = nn.optim.Adam(get_parameters(model), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = ctc_loss(model(x).log_softmax(-1), y)
        if not jit:
            print("loss", loss.item())
        loss.backward()
        optimizer.step()
        return loss

    step = TinyJit(step) if jit else step
    losses = []
    with Tensor.train():
        for _ in range(STEPS):
            losses.append(step(shard(X, devices), shard(Y, devices)).item())
    return losses + model(shard(X, devices)).argmax(-1).flatten().tolist()


def train_torch() -> list[float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    model = initialize_torch(nn.Linear(FEATURES, LETTERS))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    x, y, losses = torch.tensor(X), torch.tensor(Y).long(), []
    times, lengths = torch.full((BATCH,), TIME), torch.full((BATCH,), LABELS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        log_probabilities = model(x).log_softmax(-1).transpose(0, 1)
        loss = F.ctc_loss(log_probabilities, y, times, lengths)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses + model(x).argmax(-1).flatten().tolist()
