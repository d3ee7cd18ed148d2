"""Whisper (https://arxiv.org/abs/2212.04356): spectrograms to text.

Weights have the names of the published checkpoints.
"""

from __future__ import annotations

from test.models.bert import Named, exact_gelu
from tinygrad import Tensor, nn


class Attention:
    def __init__(self, dim: int, heads: int) -> None:
        self.q_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim) for _ in range(3))
        self.k_proj, self.heads = nn.Linear(dim, dim, bias=False), heads

    def __call__(self, x: Tensor, source: Tensor, is_causal: bool = False) -> Tensor:
        batch, seq, dim = x.shape
        q, k, v = (
            y.reshape(batch, -1, self.heads, dim // self.heads).transpose(1, 2)
            for y in (self.q_proj(x), self.k_proj(source), self.v_proj(source))
        )
        mixed = q.scaled_dot_product_attention(k, v, is_causal=is_causal)
        return self.out_proj(mixed.transpose(1, 2).reshape(batch, seq, dim))


class Layer:
    def __init__(self, dim: int, hidden: int, heads: int, decodes: bool) -> None:
        self.self_attn, self.self_attn_layer_norm = Attention(dim, heads), nn.LayerNorm(dim)
        if decodes:
            self.encoder_attn = Attention(dim, heads)
            self.encoder_attn_layer_norm = nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.final_layer_norm = nn.LayerNorm(dim)

    def __call__(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        y = self.self_attn_layer_norm(x)
        x = x + self.self_attn(y, y, is_causal=memory is not None)
        if memory is not None:
            x = x + self.encoder_attn(self.encoder_attn_layer_norm(x), memory)
        return x + self.fc2(exact_gelu(self.fc1(self.final_layer_norm(x))))


class Encoder:
    def __init__(self, mels: int, positions: int, dim: int, layers: int, **kwargs: int) -> None:
        self.conv1 = nn.Conv1d(mels, dim, 3, padding=1)
        self.conv2 = nn.Conv1d(dim, dim, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(positions, dim)
        self.layers = [Layer(dim, decodes=False, **kwargs) for _ in range(layers)]
        self.layer_norm = nn.LayerNorm(dim)

    def __call__(self, spectrogram: Tensor) -> Tensor:
        x = exact_gelu(self.conv2(exact_gelu(self.conv1(spectrogram)))).transpose(1, 2)
        return self.layer_norm((x + self.embed_positions.weight).sequential(self.layers))


class Decoder:
    def __init__(self, vocab: int, positions: int, dim: int, layers: int, **kwargs: int) -> None:
        self.embed_tokens, self.embed_positions = (
            nn.Embedding(count, dim) for count in (vocab, positions)
        )
        self.layers = [Layer(dim, decodes=True, **kwargs) for _ in range(layers)]
        self.layer_norm = nn.LayerNorm(dim)

    def __call__(self, tokens: Tensor, memory: Tensor) -> Tensor:
        x = self.embed_tokens(tokens) + self.embed_positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, memory)
        return self.layer_norm(x) @ self.embed_tokens.weight.T


class Whisper:
    """Spectrograms (batch, mels, frames) and tokens (batch, seq) to scores (batch, seq, vocab)."""

    def __init__(
        self,
        vocab: int = 40,
        mels: int = 8,
        frames: int = 12,
        positions: int = 12,
        dim: int = 16,
        hidden: int = 32,
        layers: int = 2,
        heads: int = 4,
    ) -> None:
        rest = {"dim": dim, "hidden": hidden, "layers": layers, "heads": heads}
        self.model = Named(
            encoder=Encoder(mels, frames // 2, **rest), decoder=Decoder(vocab, positions, **rest)
        )

    def __call__(self, spectrogram: Tensor, tokens: Tensor) -> Tensor:
        return self.model.decoder(tokens, self.model.encoder(spectrogram))
