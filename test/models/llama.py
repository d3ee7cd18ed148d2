"""Llama (https://arxiv.org/abs/2302.13971), and Mixtral's experts (https://arxiv.org/abs/2401.04088).

Weights have the names of the published checkpoints.
"""

from __future__ import annotations

from typing import Any

from tinygrad import Tensor, nn


def rotate(x: Tensor, theta: float) -> Tensor:
    """Rotary positions of (batch, heads, seq, dim): pairs (i, i + dim / 2) turn by the position."""
    seq, dim = x.shape[-2:]
    frequencies = theta ** (Tensor.arange(0, dim, 2, device=x.device) / dim * -1)
    angles = Tensor.arange(seq, device=x.device).unsqueeze(1) * frequencies
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    first, second = x.chunk(2, -1)
    return x * cos + (-second).cat(first, dim=-1) * sin


class Attention:
    """Causal attention with rotary positions, and several query heads for each key head."""

    def __init__(self, dim: int, heads: int, kv_heads: int, theta: float) -> None:
        self.heads, self.kv_heads, self.theta, size = heads, kv_heads, theta, dim // heads
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, kv_heads * size, bias=False)
        self.v_proj = nn.Linear(dim, kv_heads * size, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def __call__(self, x: Tensor) -> Tensor:
        batch, seq, dim = x.shape
        q = self.q_proj(x).reshape(batch, seq, self.heads, -1).transpose(1, 2)
        k, v = (
            project(x).reshape(batch, seq, self.kv_heads, -1).transpose(1, 2)
            for project in (self.k_proj, self.v_proj)
        )
        q, k = rotate(q, self.theta), rotate(k, self.theta)
        mixed = q.scaled_dot_product_attention(k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, seq, dim))


class SwiGLU:
    """`down(silu(gate(x)) * up(x))`."""

    def __init__(self, dim: int, hidden: int) -> None:
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def __call__(self, x: Tensor) -> Tensor:
        return self.down_proj(self.gate_proj(x).silu() * self.up_proj(x))


class Experts:
    """The stacked weights of all experts."""

    def __init__(self, count: int, dim: int, hidden: int) -> None:
        self.gate_up_proj = Tensor.glorot_uniform(count, 2 * hidden, dim)
        self.down_proj = Tensor.glorot_uniform(count, dim, hidden)

    def __call__(self, x: Tensor, share: Tensor) -> Tensor:
        """(tokens, dim) and the share of each expert, (tokens, count), to (tokens, dim)."""
        gate, up = Tensor.einsum("td,ehd->teh", x, self.gate_up_proj).chunk(2, -1)
        return Tensor.einsum("teh,edh,te->td", gate.silu() * up, self.down_proj, share)


class MixtureOfExperts:
    """Each token goes to the experts with the `active` largest probabilities."""

    def __init__(self, dim: int, hidden: int, count: int, active: int) -> None:
        self.gate, self.active = nn.Linear(dim, count, bias=False), active
        self.experts = Experts(count, dim, hidden)

    def __call__(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        probability, chosen = self.gate(tokens).softmax().topk(self.active)
        probability = probability / probability.sum(-1, keepdim=True)
        share = probability.unsqueeze(-1) * chosen.one_hot(self.gate.weight.shape[0])
        return self.experts(tokens, share.sum(1)).reshape(x.shape)


class Layer:
    def __init__(
        self, dim: int, hidden: int, heads: int, kv_heads: int, theta: float, experts: int
    ) -> None:
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(dim) for _ in range(2))
        self.self_attn = Attention(dim, heads, kv_heads, theta)
        self.mlp = MixtureOfExperts(dim, hidden, experts, 2) if experts else SwiGLU(dim, hidden)

    def __call__(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder:
    def __init__(self, vocab: int, dim: int, layers: int, **kwargs: Any) -> None:
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.layers = [Layer(dim, **kwargs) for _ in range(layers)]
        self.norm = nn.RMSNorm(dim)

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.norm(self.embed_tokens(tokens).sequential(self.layers))


class Llama:
    """Tokens (batch, seq) to the scores of the next ones (batch, seq, vocab)."""

    def __init__(
        self,
        vocab: int = 40,
        dim: int = 16,
        hidden: int = 32,
        layers: int = 2,
        heads: int = 4,
        kv_heads: int = 2,
        theta: float = 1e4,
        experts: int = 0,
    ) -> None:
        rest = {"kv_heads": kv_heads, "theta": theta, "experts": experts}
        self.model = Decoder(vocab, dim, layers, hidden=hidden, heads=heads, **rest)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.lm_head(self.model(tokens))
