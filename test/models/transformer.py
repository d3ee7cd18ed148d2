"""A small decoder-only transformer with learned positions and pre-normalization."""

from __future__ import annotations

from tinygrad import Tensor, nn


class Attention:
    """Causal self-attention: (batch, seq, dim) to the same shape."""

    def __init__(self, dim: int, heads: int) -> None:
        self.heads = heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def __call__(self, x: Tensor) -> Tensor:
        batch, seq, dim = x.shape
        query, key, value = (
            project(x).reshape(batch, seq, self.heads, dim // self.heads).transpose(1, 2)
            for project in (self.wq, self.wk, self.wv)
        )
        mixed = query.scaled_dot_product_attention(key, value, is_causal=True)
        return self.wo(mixed.transpose(1, 2).reshape(batch, seq, dim))


class Layer:
    """Attention, then two linear layers around a GELU, each with a residual connection."""

    def __init__(self, dim: int, heads: int) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def __call__(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.up(self.norm2(x)).gelu())


class Transformer:
    """Tokens (batch, seq) to the scores of the next ones (batch, seq, vocab)."""

    def __init__(
        self, vocab: int = 512, dim: int = 256, layers: int = 12, heads: int = 4, seq: int = 64
    ) -> None:
        self.tokens = nn.Embedding(vocab, dim)
        self.positions = nn.Embedding(seq, dim)
        self.layers = [Layer(dim, heads) for _ in range(layers)]
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, vocab, bias=False)

    def __call__(self, tokens: Tensor) -> Tensor:
        positions = Tensor.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        return self.out(self.norm(x.sequential(self.layers)))
