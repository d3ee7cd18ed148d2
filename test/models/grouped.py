"""A large decoder as in Llama, on the NULL device, in bfloat16."""

from __future__ import annotations

from tinygrad import Tensor, dtypes


class GroupedLayer:
    """A decoder layer as in Llama: grouped-query attention, and a gated feed-forward network."""

    def __init__(self, dim: int, heads: int, groups: int, hidden: int) -> None:
        self.heads, self.groups, self.width = heads, groups, dim // heads
        inner = groups * self.width
        shapes = {"query": (dim, dim), "key": (inner, dim), "value": (inner, dim)}
        shapes |= {"out": (dim, dim), "gate": (hidden, dim), "up": (hidden, dim)}
        shapes |= {"down": (dim, hidden), "norm1": (dim,), "norm2": (dim,)}
        for name, shape in shapes.items():
            setattr(self, name, Tensor.empty(*shape, dtype=dtypes.bfloat16, device="NULL"))

    def __call__(self, x: Tensor) -> Tensor:
        y = x.layernorm() * self.norm1
        query, key, value = (
            y.linear(weight.T).reshape(*x.shape[:2], heads, self.width).transpose(1, 2)
            for weight, heads in [
                (self.query, self.heads),
                (self.key, self.groups),
                (self.value, self.groups),
            ]
        )
        mixed = query.scaled_dot_product_attention(key, value, is_causal=True, enable_gqa=True)
        x = x + mixed.transpose(1, 2).reshape(*x.shape).linear(self.out.T)
        y = x.layernorm() * self.norm2
        return x + (y.linear(self.gate.T).silu() * y.linear(self.up.T)).linear(self.down.T)


class GroupedTransformer:
    """Tokens (batch, seq) to scores (batch, seq, vocab)."""

    def __init__(self, vocab: int, dim: int, layers: int, *sizes: int) -> None:
        self.tokens, self.out = (
            Tensor.empty(vocab, dim, dtype=dtypes.bfloat16, device="NULL") for _ in range(2)
        )
        self.layers = [GroupedLayer(dim, *sizes) for _ in range(layers)]

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.tokens[tokens].sequential(self.layers).layernorm().linear(self.out.T)
