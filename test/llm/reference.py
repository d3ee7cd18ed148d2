"""Language models in numpy and float32, from their papers and the tensor names of GGUF.

In: a GGUF file. Out: the logits of a sequence, all positions at once, without a cache. Nothing here
is shared with the code under test: the package `gguf` reads the file and dequantises its weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

# RoPE rotates adjacent pairs, not halves
TURNS_NEIGHBOURS = {"llama"}
GEMMAS = {"gemma", "gemma2", "gemma3"}
RENORMALIZES_EXPERTS = {"llama", "qwen3moe"}


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


class Reference:
    def __init__(self, path: str | Path) -> None:
        gguf = pytest.importorskip("gguf")
        reader = gguf.GGUFReader(path)
        self.metadata = {name: field.contents() for name, field in reader.fields.items()}
        self.name = self.metadata["general.architecture"]
        self.weights = {
            t.name: gguf.quants.dequantize(t.data, t.tensor_type)
            .astype(np.float32)
            .reshape([int(n) for n in reversed(t.shape)])
            for t in reader.tensors
        }
        self.heads = self.value("attention.head_count")
        self.kv_heads = self.value("attention.head_count_kv", self.heads)
        self.head_dim = self.value(
            "attention.key_length", self.value("embedding_length") // self.heads
        )

    def value(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"{self.name}.{key}", default)

    def logits(self, tokens: list[int]) -> Any:
        """(length, vocab)."""
        return self.logits_of([tokens])[0]

    def logits_of(self, sequences: list[list[int]]) -> list[Any]:
        """The logits of each sequence, computed together: concatenated, without cross attention."""
        lengths = [len(tokens) for tokens in sequences]
        self.positions = np.concatenate([np.arange(length) for length in lengths])
        self.owners = np.repeat(np.arange(len(lengths)), lengths)
        table = self.weights["token_embd.weight"]
        x = table[np.concatenate(sequences)]
        if self.name in GEMMAS:
            x = x * np.float32(np.sqrt(table.shape[1]))
        for layer in range(self.value("block_count")):
            x = self.layer(f"blk.{layer}.", layer, x)
        x = self.norm("output_norm", x)
        found = x @ self.weights.get("output.weight", table).T
        return np.split(self.capped(found, "final_logit_softcapping"), np.cumsum(lengths)[:-1])

    def layer(self, name: str, layer: int, x: Any) -> Any:
        attended = self.attention(name, layer, self.norm(f"{name}attn_norm", x))
        x = x + self.norm(f"{name}post_attention_norm", attended)
        y = self.norm(f"{name}ffn_norm", x)
        mixture = f"{name}ffn_gate_inp.weight" in self.weights
        y = self.experts(name, y) if mixture else self.feed_forward(name, y)
        return x + self.norm(f"{name}post_ffw_norm", y)

    def norm(self, name: str, x: Any) -> Any:
        if f"{name}.weight" not in self.weights:
            return x
        epsilon = self.value("attention.layer_norm_rms_epsilon")
        mean = np.square(x).mean(-1, keepdims=True)
        return x / np.sqrt(mean + epsilon) * self.weights[f"{name}.weight"]

    def linear(self, name: str, x: Any) -> Any:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)

    def capped(self, x: Any, key: str) -> Any:
        cap = self.value(key)
        return np.tanh(x / cap) * cap if cap else x

    # ---- attention ----

    def attention(self, name: str, layer: int, x: Any) -> Any:
        if f"{name}attn_qkv.weight" in self.weights:
            sizes = np.cumsum([self.heads * self.head_dim, self.kv_heads * self.head_dim])
            q, k, v = np.split(self.linear(f"{name}attn_qkv", x), sizes, axis=-1)
        else:
            q, k, v = (self.linear(f"{name}attn_{letter}", x) for letter in "qkv")
        q, k = self.by_head(f"{name}attn_q_norm", q), self.by_head(f"{name}attn_k_norm", k)
        v = v.reshape(len(x), -1, self.head_dim)
        window = self.value("attention.sliding_window")
        is_local = bool(window) and not (self.name == "gemma3" and layer % 6 == 5)
        q, k = self.rotated(q, is_local), self.rotated(k, is_local)
        k, v = (np.repeat(t, self.heads // self.kv_heads, axis=1) for t in (k, v))
        q, k, v = (t.transpose(1, 0, 2) for t in (q, k, v))
        scores = q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(self.head_dim))
        distance = self.positions[:, None] - self.positions
        seen = (distance >= 0) & (self.owners[:, None] == self.owners)
        if is_local:
            seen &= distance < window
        weights = softmax(np.where(seen, self.capped(scores, "attn_logit_softcapping"), -np.inf))
        y = (weights @ v).transpose(1, 0, 2)
        return self.linear(f"{name}attn_output", y.reshape(len(x), -1))

    def by_head(self, norm: str, x: Any) -> Any:
        """(length, n) to (length, heads, head dim), normalised over all heads or per head."""
        weight = self.weights.get(f"{norm}.weight")
        if weight is not None and weight.size != self.head_dim:
            x, norm = self.norm(norm, x), ""
        return self.norm(norm, x.reshape(len(x), -1, self.head_dim))

    def rotated(self, x: Any, is_local: bool) -> Any:
        dim = self.value("rope.dimension_count", self.head_dim)
        base = 10000.0 if self.name == "gemma3" and is_local else self.value("rope.freq_base")
        frequencies = base ** (-np.arange(0, dim, 2) / dim)
        if self.name != "gemma3" or not is_local:
            if self.value("rope.scaling.type") == "linear":
                frequencies = frequencies / self.value("rope.scaling.factor")
            for factors in ("rope_freqs", "rope_factors_long"):
                # tests use the whole context, so the long factors apply
                frequencies = frequencies / self.weights.get(f"{factors}.weight", 1)
        angles = self.positions[:, None, None] * frequencies
        magnitude = self.value("rope.scaling.attn_factor", 1.0)
        turned = (np.exp(1j * angles) * magnitude).astype(np.complex64)
        half = dim // 2
        neighbours = self.name in TURNS_NEIGHBOURS
        first = slice(0, dim, 2) if neighbours else slice(0, half)
        second = slice(1, dim, 2) if neighbours else slice(half, dim)
        pairs = (x[..., first] + 1j * x[..., second]) * turned
        y = x.copy()
        y[..., first], y[..., second] = pairs.real, pairs.imag
        return y

    # ---- feed-forward ----

    def activated(self, gate: Any) -> Any:
        return gelu(gate) if self.name in GEMMAS else silu(gate)

    def feed_forward(self, name: str, x: Any) -> Any:
        up = self.linear(f"{name}ffn_up", x)
        if f"{name}ffn_gate.weight" in self.weights:
            gate = self.linear(f"{name}ffn_gate", x)
        else:
            gate, up = np.split(up, 2, axis=-1)
        return self.linear(f"{name}ffn_down", self.activated(gate) * up)

    def experts(self, name: str, x: Any) -> Any:
        shares = softmax(self.linear(f"{name}ffn_gate_inp", x))
        y = np.zeros_like(x)
        for token, share in enumerate(shares):
            chosen = np.argsort(-share, kind="stable")[: self.value("expert_used_count")]
            total = share[chosen].sum() if self.name in RENORMALIZES_EXPERTS else 1.0
            for expert in chosen:
                gate, up, down = (
                    self.weights[f"{name}ffn_{part}_exps.weight"][expert]
                    for part in ("gate", "up", "down")
                )
                hidden = self.activated(gate @ x[token]) * (up @ x[token])
                y[token] += down @ hidden * (share[expert] / total)
        return y
