"""GPT-2, by its published description: a decoder with learned positions and pre-normalization.

Weights have the names of the published checkpoint, in which matrices are (inputs, outputs).
"""

from __future__ import annotations

from tinygrad import Tensor, nn


class Projection:
    """A linear layer whose weight is (inputs, outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight, self.bias = Tensor.normal(inputs, outputs, std=0.02), Tensor.zeros(outputs)

    def __call__(self, x: Tensor) -> Tensor:
        return x.linear(self.weight, self.bias)


class Attention:
    def __init__(self, dim: int, heads: int) -> None:
        self.c_attn, self.c_proj, self.heads = Projection(dim, 3 * dim), Projection(dim, dim), heads

    def __call__(self, x: Tensor) -> Tensor:
        batch, seq, dim = x.shape
        split = self.c_attn(x).reshape(batch, seq, 3, self.heads, dim // self.heads)
        q, k, v = (split[:, :, i].transpose(1, 2) for i in range(3))
        mixed = q.scaled_dot_product_attention(k, v, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).reshape(batch, seq, dim))


class FeedForward:
    def __init__(self, dim: int) -> None:
        self.c_fc, self.c_proj = Projection(dim, 4 * dim), Projection(4 * dim, dim)

    def __call__(self, x: Tensor) -> Tensor:
        return self.c_proj(self.c_fc(x).gelu())


class Block:
    def __init__(self, dim: int, heads: int) -> None:
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn, self.mlp = Attention(dim, heads), FeedForward(dim)

    def __call__(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Decoder:
    def __init__(self, vocab: int, positions: int, dim: int, layers: int, heads: int) -> None:
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(positions, dim)
        self.h = [Block(dim, heads) for _ in range(layers)]
        self.ln_f = nn.LayerNorm(dim)

    def __call__(self, tokens: Tensor) -> Tensor:
        place = Tensor.arange(tokens.shape[1], device=tokens.device)
        return self.ln_f((self.wte(tokens) + self.wpe(place)).sequential(self.h))


class GPT2:
    """Tokens (batch, seq) to the scores of the next ones (batch, seq, vocab)."""

    def __init__(
        self, vocab: int = 40, positions: int = 12, dim: int = 16, layers: int = 2, heads: int = 4
    ) -> None:
        self.transformer = Decoder(vocab, positions, dim, layers, heads)

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.transformer(tokens) @ self.transformer.wte.weight.T
