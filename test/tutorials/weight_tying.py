"""Weight tying: a language model whose output layer is its embedding, one tensor in two places."""

from __future__ import annotations

from test.tutorials.common import initialize, initialize_torch, integers, shard
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters, get_state_dict

STEPS, BATCH, LENGTH, WORDS, DIM = 5, 2, 4, 9, 6
X = integers(WORDS, STEPS, BATCH, LENGTH + 1)


class Model:
    def __init__(self) -> None:
        self.embedding, self.body = nn.Embedding(WORDS, DIM), nn.Linear(DIM, DIM)
        self.head = nn.Linear(DIM, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def __call__(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.embedding(x)).gelu())


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = Model()
    initialize({"embedding": model.embedding, "body": model.body}, devices)
    # word 0 is padding
    with Tensor.no_grad():
        model.embedding.weight[0] = 0
    optimizer = nn.optim.AdamW(get_parameters(model), lr=0.05)
    assert len(optimizer.params) == len(get_state_dict(model)) - 1

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).flatten(0, 1).cross_entropy(y.flatten())
        if not jit:
            print("loss", loss.item())
        loss.backward()
        optimizer.step()
        return loss

    step = TinyJit(step) if jit else step
    losses = []
    with Tensor.train():
        for x in X:
            losses.append(step(shard(x[:, :-1], devices), shard(x[:, 1:], devices)).item())
    assert model.head.weight is model.embedding.weight
    return losses + model.head.weight[0].tolist()


def train_torch() -> list[float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.body = nn.Embedding(WORDS, DIM), nn.Linear(DIM, DIM)
            self.head = nn.Linear(DIM, WORDS, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x):
            return self.head(F.gelu(self.body(self.embedding(x)), approximate="tanh"))

    model = initialize_torch(Model())
    with torch.no_grad():
        model.embedding.weight[0] = 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.01)
    losses = []
    for x in torch.tensor(X).long():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses + model.head.weight[0].tolist()
