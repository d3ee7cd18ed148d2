"""T5 (https://arxiv.org/abs/1910.10683): an encoder and a decoder with relative positions.

Weights have the names of the published checkpoints.
"""

from __future__ import annotations

import math

from test.models.bert import Named
from tinygrad import Tensor, nn

BUCKETS, MAX_DISTANCE = 32, 128


def bucket(distance: Tensor, both_ways: bool) -> Tensor:
    """Distances (key position - query position) as numbers of buckets, wider the farther."""
    count, start = BUCKETS, distance * 0
    if both_ways:
        count //= 2
        start = (distance > 0).where(count, 0)
        distance = distance.abs()
    else:
        distance = (-distance).maximum(0)
    exact = count // 2
    ratio = (distance.maximum(1) / exact).log() / math.log(MAX_DISTANCE / exact)
    far = (exact + (ratio * (count - exact)).int()).minimum(count - 1)
    return start + (distance < exact).where(distance, far)


class Attention:
    def __init__(self, dim: int, heads: int, has_bias: bool, both_ways: bool) -> None:
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.heads, self.both_ways = heads, both_ways
        if has_bias:
            self.relative_attention_bias = nn.Embedding(BUCKETS, heads)

    def bias(self, seq: int, device: object) -> Tensor:
        """The bias of each distance, (1, heads, seq, seq)."""
        place = Tensor.arange(seq, device=device)
        numbers = bucket(place.unsqueeze(0) - place.unsqueeze(1), self.both_ways)
        return self.relative_attention_bias(numbers).permute(2, 0, 1).unsqueeze(0)

    def __call__(self, x: Tensor, source: Tensor, bias: Tensor | None) -> Tensor:
        batch, seq, dim = x.shape
        q, k, v = (
            y.reshape(batch, -1, self.heads, dim // self.heads).transpose(1, 2)
            for y in (self.q(x), self.k(source), self.v(source))
        )
        scores = q @ k.transpose(2, 3)
        mixed = (scores if bias is None else scores + bias).softmax() @ v
        return self.o(mixed.transpose(1, 2).reshape(batch, seq, dim))


class Block:
    def __init__(self, dim: int, hidden: int, heads: int, first: bool, decodes: bool) -> None:
        own = Attention(dim, heads, first, not decodes)
        self.layer = [Named(SelfAttention=own, layer_norm=nn.RMSNorm(dim))]
        if decodes:
            other = Attention(dim, heads, False, False)
            self.layer.append(Named(EncDecAttention=other, layer_norm=nn.RMSNorm(dim)))
        dense = Named(wi=nn.Linear(dim, hidden, bias=False), wo=nn.Linear(hidden, dim, bias=False))
        self.layer.append(Named(DenseReluDense=dense, layer_norm=nn.RMSNorm(dim)))

    def __call__(self, x: Tensor, bias: Tensor, memory: Tensor | None) -> Tensor:
        first, last = self.layer[0], self.layer[-1]
        y = first.layer_norm(x)
        x = x + first.SelfAttention(y, y, bias)
        if memory is not None:
            cross = self.layer[1]
            x = x + cross.EncDecAttention(cross.layer_norm(x), memory, None)
        dense = last.DenseReluDense
        return x + dense.wo(dense.wi(last.layer_norm(x)).relu())


class Stack:
    def __init__(self, dim: int, hidden: int, layers: int, heads: int, decodes: bool) -> None:
        self.block = [Block(dim, hidden, heads, i == 0, decodes) for i in range(layers)]
        self.final_layer_norm, self.decodes = nn.RMSNorm(dim), decodes

    def __call__(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        seq = x.shape[1]
        bias = self.block[0].layer[0].SelfAttention.bias(seq, x.device)
        if self.decodes:
            seen = Tensor.ones(seq, seq, device=x.device).tril().bool()
            bias = seen.where(bias, -float("inf"))
        for block in self.block:
            x = block(x, bias, memory)
        return self.final_layer_norm(x)


class T5:
    """Source and target tokens (batch, seq) to scores (batch, target seq, vocab)."""

    def __init__(
        self, vocab: int = 40, dim: int = 16, hidden: int = 32, layers: int = 2, heads: int = 4
    ) -> None:
        self.shared, self.scale = nn.Embedding(vocab, dim), dim**-0.5
        self.encoder = Stack(dim, hidden, layers, heads, False)
        self.decoder = Stack(dim, hidden, layers, heads, True)

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        x = self.decoder(self.shared(target), self.encoder(self.shared(source)))
        return (x * self.scale) @ self.shared.weight.T
