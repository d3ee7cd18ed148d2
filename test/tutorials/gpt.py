"""A small GPT: trained on a text, and then asked to continue two prompts with a key-value cache."""

from __future__ import annotations

import math

import numpy as np

from test.tutorials.common import initialize, initialize_torch, shard
from tinygrad import Tensor, TinyJit, UOp, Variable, nn
from tinygrad.nn.state import get_parameters

TEXT = "to be, or not to be, that is the question: whether 'tis nobler in the mind to suffer"
LETTERS = sorted(set(TEXT))
NUMBERS = np.array([LETTERS.index(c) for c in TEXT], np.int32)
STEPS, BATCH, BLOCK, GENERATED = 4, 4, 6, 3
DIM, HEADS = 8, 2
PROMPTS = np.stack([NUMBERS[:3], NUMBERS[10:13]])


def batches():
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        starts = random.integers(0, len(NUMBERS) - BLOCK - 1, BATCH)
        rows = np.stack([NUMBERS[start : start + BLOCK + 1] for start in starts])
        yield rows[:, :-1], rows[:, 1:]


class Attention:
    def __init__(self) -> None:
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.cache = None

    def __call__(self, x: Tensor, start: UOp | int | None) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.reshape(batch, length, HEADS, -1).transpose(1, 2) for t in (q, k, v))
        if start is None:
            y = q.scaled_dot_product_attention(k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(batch, length, DIM))
        if self.cache is None:
            shape = (2, batch, HEADS, BLOCK, DIM // HEADS)
            cache = Tensor.zeros(*shape)
            self.cache = cache.contiguous().to(x.device).realize()
            if not isinstance(x.device, str):
                self.cache.shard_(x.device.devices, axis=1).realize()
        self.cache[0, :, :, start : start + length] = k
        self.cache[1, :, :, start : start + length] = v
        keys, values = self.cache[0, :, :, : start + length], self.cache[1, :, :, : start + length]
        weights = q @ keys.transpose(2, 3) / math.sqrt(DIM // HEADS)
        if length > 1:
            weights += Tensor.full((length, length), float("-inf")).triu(1)
        y = weights.softmax(-1) @ values
        return self.out(y.transpose(1, 2).reshape(batch, length, DIM))


class Block:
    def __init__(self) -> None:
        self.ln1, self.attention = nn.LayerNorm(DIM), Attention()
        self.ln2 = nn.LayerNorm(DIM)
        self.up, self.down = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def __call__(self, x: Tensor, start: UOp | int | None) -> Tensor:
        x = x + self.attention(self.ln1(x), start)
        return x + self.down(self.up(self.ln2(x)).gelu())


class GPT:
    def __init__(self) -> None:
        self.tokens = nn.Embedding(len(LETTERS), DIM)
        self.positions = nn.Embedding(BLOCK, DIM)
        self.blocks = [Block(), Block()]
        self.ln = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, len(LETTERS), bias=False)

    def __call__(self, x: Tensor, start: UOp | int | None = None) -> Tensor:
        first = 0 if start is None else start
        places = Tensor.arange(BLOCK).reshape(1, BLOCK)[:, first : first + x.shape[1]]
        x = self.tokens(x) + self.positions(places)
        for block in self.blocks:
            x = block(x, start)
        return self.head(self.ln(x))


def generate(model: GPT, prompts: Tensor, jit: bool) -> tuple[list[list[int]], list[float]]:
    """The tokens after the prompts, each the likeliest, and the largest logit of each step."""

    @Tensor.no_grad()
    def decode(token: Tensor, start: UOp | int) -> tuple[Tensor, Tensor]:
        logits = model(token, start)[:, -1]
        return logits.argmax(-1, keepdim=True), logits.max()

    captured = TinyJit(decode) if jit else decode
    token, largest = decode(prompts, 0)
    tokens, logits = [token.tolist()], [largest.item()]
    position = Variable("position", 1, BLOCK - 1)
    for at in range(prompts.shape[1], prompts.shape[1] + GENERATED - 1):
        # an argument of a captured function is not its own result
        token, largest = captured(token.clone(), position.bind(at) if jit else at)
        tokens.append(token.tolist())
        logits.append(largest.item())
    return tokens, logits


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(GPT(), devices)
    optimizer = nn.optim.AdamW(get_parameters(model), lr=0.01, weight_decay=0.1)

    @Tensor.train()
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).flatten(0, 1).cross_entropy(y.flatten())
        if not jit:
            print("loss", loss.item())
        loss.backward()
        optimizer.step()
        return loss

    step = TinyJit(step) if jit else step
    losses = [step(shard(x, devices), shard(y, devices)).item() for x, y in batches()]
    tokens, logits = generate(model, shard(PROMPTS, devices), jit)
    return losses + logits + np.ravel(tokens).tolist()


def train_torch() -> list[float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = self.qkv(x).chunk(3, dim=-1)
            q, k, v = (t.reshape(batch, length, HEADS, -1).transpose(1, 2) for t in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(batch, length, DIM))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.attention = nn.LayerNorm(DIM), Attention()
            self.ln2 = nn.LayerNorm(DIM)
            self.up, self.down = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

        def forward(self, x):
            x = x + self.attention(self.ln1(x))
            return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(len(LETTERS), DIM)
            self.positions = nn.Embedding(BLOCK, DIM)
            self.blocks = nn.ModuleList([Block(), Block()])
            self.ln = nn.LayerNorm(DIM)
            self.head = nn.Linear(DIM, len(LETTERS), bias=False)

        def forward(self, x):
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x))

    model = initialize_torch(GPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    losses, logits, tokens = [], [], []
    for x, y in batches():
        optimizer.zero_grad()
        loss = F.cross_entropy(
            model(torch.tensor(x)).flatten(0, 1), torch.tensor(y).long().flatten()
        )
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # without a cache: every token sees the whole prompt again
    text = torch.tensor(PROMPTS).long()
    with torch.no_grad():
        for _ in range(GENERATED):
            last = model(text)[:, -1]
            text = torch.cat([text, last.argmax(-1, keepdim=True)], 1)
            logits.append(last.max().item())
            tokens.append(text[:, -1:].tolist())
    return losses + logits + np.ravel(tokens).tolist()
