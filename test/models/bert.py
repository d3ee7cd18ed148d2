"""BERT (https://arxiv.org/abs/1810.04805) and ViT (https://arxiv.org/abs/2010.11929): encoders.

Weights have the names of the published checkpoints.
"""

from __future__ import annotations

import math
from typing import Any

from tinygrad import Tensor, nn

EPSILON = 1e-12


def exact_gelu(x: Tensor) -> Tensor:
    return x * ((x / math.sqrt(2)).erf() + 1) / 2


def attend(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Attention without a mask of (batch, seq, dim)."""
    batch, seq, dim = q.shape
    q, k, v = (x.reshape(batch, -1, heads, dim // heads).transpose(1, 2) for x in (q, k, v))
    return q.scaled_dot_product_attention(k, v).transpose(1, 2).reshape(batch, seq, dim)


class Named:
    """A part with the attributes that it is called with."""

    def __init__(self, /, **parts: Any) -> None:
        vars(self).update(parts)


# ---- BERT ----


class Embeddings:
    def __init__(self, vocab: int, positions: int, dim: int) -> None:
        self.word_embeddings = nn.Embedding(vocab, dim)
        self.position_embeddings = nn.Embedding(positions, dim)
        self.token_type_embeddings = nn.Embedding(2, dim)
        self.LayerNorm = nn.LayerNorm(dim, EPSILON)

    def __call__(self, tokens: Tensor, segments: Tensor) -> Tensor:
        place = Tensor.arange(tokens.shape[1], device=tokens.device)
        words = self.word_embeddings(tokens) + self.token_type_embeddings(segments)
        return self.LayerNorm(words + self.position_embeddings(place))


class Output:
    """A linear layer, then the normalized sum with the residual."""

    def __init__(self, inputs: int, dim: int) -> None:
        self.dense, self.LayerNorm = nn.Linear(inputs, dim), nn.LayerNorm(dim, EPSILON)

    def __call__(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + residual)


class BertLayer:
    def __init__(self, dim: int, hidden: int, heads: int) -> None:
        projections = {name: nn.Linear(dim, dim) for name in ("query", "key", "value")}
        self.attention = Named(self=Named(**projections), output=Output(dim, dim))
        self.intermediate = Named(dense=nn.Linear(dim, hidden))
        self.output, self.heads = Output(hidden, dim), heads

    def __call__(self, x: Tensor) -> Tensor:
        own = vars(self.attention)["self"]
        x = self.attention.output(attend(own.query(x), own.key(x), own.value(x), self.heads), x)
        return self.output(exact_gelu(self.intermediate.dense(x)), x)


class Bert:
    """Tokens and segments (batch, seq) to the pooled first position (batch, dim)."""

    def __init__(
        self,
        vocab: int = 40,
        positions: int = 12,
        dim: int = 16,
        hidden: int = 32,
        layers: int = 2,
        heads: int = 4,
    ) -> None:
        self.embeddings = Embeddings(vocab, positions, dim)
        self.encoder = Named(layer=[BertLayer(dim, hidden, heads) for _ in range(layers)])
        self.pooler = Named(dense=nn.Linear(dim, dim))

    def __call__(self, tokens: Tensor, segments: Tensor) -> Tensor:
        x = self.embeddings(tokens, segments).sequential(self.encoder.layer)
        return self.pooler.dense(x[:, 0]).tanh()


# ---- ViT ----


class VitLayer:
    def __init__(self, dim: int, hidden: int, heads: int) -> None:
        names = ("q_proj", "k_proj", "v_proj", "o_proj")
        self.attention = Named(**{name: nn.Linear(dim, dim) for name in names})
        self.layernorm_before, self.layernorm_after = (nn.LayerNorm(dim, EPSILON) for _ in range(2))
        self.mlp = Named(fc1=nn.Linear(dim, hidden), fc2=nn.Linear(hidden, dim))
        self.heads = heads

    def __call__(self, x: Tensor) -> Tensor:
        own, y = self.attention, self.layernorm_before(x)
        x = x + own.o_proj(attend(own.q_proj(y), own.k_proj(y), own.v_proj(y), self.heads))
        return x + self.mlp.fc2(exact_gelu(self.mlp.fc1(self.layernorm_after(x))))


class Vit:
    """Images (batch, 3, size, size) to scores (batch, classes)."""

    def __init__(
        self,
        size: int = 8,
        patch: int = 4,
        dim: int = 16,
        hidden: int = 32,
        layers: int = 2,
        heads: int = 4,
        classes: int = 5,
    ) -> None:
        count = (size // patch) ** 2
        self.vit = Named(
            embeddings=Named(
                cls_token=Tensor.zeros(1, 1, dim),
                position_embeddings=Tensor.zeros(1, count + 1, dim),
                patch_embeddings=Named(projection=nn.Conv2d(3, dim, patch, stride=patch)),
            ),
            layers=[VitLayer(dim, hidden, heads) for _ in range(layers)],
            layernorm=nn.LayerNorm(dim, EPSILON),
        )
        self.classifier = nn.Linear(dim, classes)

    def __call__(self, image: Tensor) -> Tensor:
        first = self.vit.embeddings
        patches = first.patch_embeddings.projection(image).flatten(2).transpose(1, 2)
        start = first.cls_token.expand(image.shape[0], -1, -1)
        x = (start.cat(patches, dim=1) + first.position_embeddings).sequential(self.vit.layers)
        return self.classifier(self.vit.layernorm(x)[:, 0])
