"""Causal grouped-query attention of one layer, over KV caches or whole sequences.

Input: hidden states (rows, length, dim), and the position and KV cache of each row. Output: hidden
states of the same shape. Invariant: query heads that share a key head are one unit of the layout,
so attention itself needs no communication.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.apps.language.model.config import ModelConfig
from tinygrad.apps.language.model.norm import Norm
from tinygrad.apps.language.model.rotary import RotaryEmbedding
from tinygrad.apps.language.model.weights import COLUMNS, ROWS, Projection, ShardedAxis, WeightFile
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp


@dataclass(frozen=True)
class StepTokens:
    """The tokens of a step: `length` in each row, from the row's own start position.

    `memories` are the KV caches of the rows. Without any, the rows are whole sequences.
    """

    length: int
    starts: Sequence[int | UOp]
    memories: Sequence[Tensor] = ()


class Attention:
    """Projections, rotary embedding, KV cache update and attention of one layer."""

    def __init__(
        self, file: WeightFile, config: ModelConfig, layer: int, rotary: RotaryEmbedding
    ) -> None:
        self.config, self.layer, self.rotary = config, layer, rotary
        self.window = config.window if config.is_local(layer) else None
        self.kv_heads = file.layout.padded(config.kv_heads)
        self.heads_divide = self.kv_heads == config.kv_heads
        self.shared_by = config.heads // config.kv_heads
        name = f"blk.{layer}."
        self.rows = ShardedAxis(ROWS, config.kv_heads if self.heads_divide else None)
        parts: list[tuple[str, tuple[int, int] | None]]
        if f"{name}attn_qkv.weight" in file:
            # one fused matrix for query, key and value
            counts = (0, config.heads, config.kv_heads, config.kv_heads)
            ends = [count * config.head_dim for count in itertools.accumulate(counts)]
            parts = [(f"{name}attn_qkv", rows) for rows in itertools.pairwise(ends)]
        else:
            parts = [(f"{name}attn_{letter}", None) for letter in "qkv"]
        self.query, self.key, self.value = (
            file.projection(p, self.rows, rows) for p, rows in parts
        )
        self.query_norm = self._norm(file, f"{name}attn_q_norm.weight", config.heads)
        self.key_norm = self._norm(file, f"{name}attn_k_norm.weight", config.kv_heads)
        self.output = self._output(file, f"{name}attn_output")

    def _norm(self, file: WeightFile, name: str, heads: int) -> Norm | None:
        """The norm of each head, or across all heads, if the file has one."""
        if name not in file:
            return None
        dim, epsilon = self.config.head_dim, self.config.epsilon
        if file.shape(name) == (dim,):
            return Norm(file.vector(name), epsilon, dim)
        return Norm(file.vector(name, self.rows), epsilon, heads * dim)

    def _output(self, file: WeightFile, name: str) -> Projection:
        """Sharded along columns like the heads; along rows if heads do not divide or cut blocks."""
        unit = self.shared_by * self.config.head_dim
        if self.heads_divide and unit % file.elements_per_block(f"{name}.weight") == 0:
            self.is_gathered = False
            return file.projection(name, ShardedAxis(COLUMNS, self.config.kv_heads))
        self.is_gathered = True
        return file.projection(name, ShardedAxis(ROWS))

    def __call__(self, x: Tensor, angles: tuple[Tensor, Tensor], step: StepTokens) -> Tensor:
        query = self._heads(self.query(x), self.query_norm, self.shared_by)
        key = self._heads(self.key(x), self.key_norm, 1)
        value = self._heads(self.value(x), None, 1)
        query = self.rotary.rotate(query * self.config.score_scale, angles)
        key = self.rotary.rotate(key, angles)
        # from (rows, length, groups, heads, dim) to (rows, groups, heads, length, dim)
        query, key, value = (t.permute(0, 2, 3, 1, 4) for t in (query, key, value))
        if step.memories:
            self._write_cache(Tensor.stack(key.squeeze(2), value.squeeze(2), dim=1), query, step)
            rows = [
                self._attend(query[row : row + 1], *self._cached(step, row), step.starts[row])
                for row in range(len(step.memories))
            ]
            attended = rows[0].cat(*rows[1:])
        else:
            attended = self._attend(query, key, value, 0)
        if self.is_gathered:
            attended = attended.to(x.device)
        columns = self.config.heads * self.config.head_dim
        return self.output(attended.permute(0, 3, 1, 2, 4).flatten(2)[..., :columns]).to(x.device)

    def _heads(self, x: Tensor, norm: Norm | None, heads: int) -> Tensor:
        """(rows, length, n) as heads (rows, length, groups, heads, head_dim), normalised.

        Groups that devices do not divide are padded with zeros.
        """
        if norm is not None and norm.count > self.config.head_dim:
            x, norm = norm(x), None
        split = x.device
        x = x.unflatten(-1, (self.config.kv_heads, heads, self.config.head_dim))
        if not self.heads_divide:
            missing = self.kv_heads - self.config.kv_heads
            x = x.pad((None, None, (0, missing), None, None)).to(split)
        return x if norm is None else norm(x)

    def _write_cache(self, pairs: Tensor, query: Tensor, step: StepTokens) -> None:
        """Write keys and values (rows, 2, groups, length, head_dim) to the KV caches.

        Queries are realized with them, as they have the same inputs.
        """
        parts = [
            memory[self._layer_number, :, :, start : start + step.length].assign(
                pairs[row].cast(memory.dtype)
            )
            for row, (memory, start) in enumerate(zip(step.memories, step.starts, strict=True))
        ]
        query.realize(*parts)

    def _cached(self, step: StepTokens, row: int) -> tuple[Tensor, Tensor]:
        """The keys and values of a row up to the end of this step, as float32."""
        stop, memory = step.starts[row] + step.length, step.memories[row]
        keys, values = (memory[self._layer_number, part, :, :stop].float() for part in (0, 1))
        return keys.unsqueeze(0).unsqueeze(2), values.unsqueeze(0).unsqueeze(2)

    @property
    def _layer_number(self) -> UOp:
        """The layer number as a kernel argument, so that all layers share their kernels."""
        return UOp.variable("layer", 0, self.config.layers - 1).bind(self.layer)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, start: int | UOp) -> Tensor:
        """Attention of queries (rows, groups, heads, length, head_dim) at positions from `start`.

        Keys and values are (rows, groups, 1, positions, head_dim).
        """
        scores = query @ key.transpose(-1, -2)
        if self.config.score_cap is not None:
            scores = (scores / self.config.score_cap).tanh() * self.config.score_cap
        mask = self._mask(query.shape[-2], key.shape[-2], start)
        if mask is not None:
            scores = mask.where(scores, -math.inf)
        return scores.softmax(-1) @ value

    def _mask(self, length: int, positions: int | UOp, start: int | UOp) -> Tensor | None:
        """The positions that each query attends to, bool (length, positions); None for all."""
        query_at = Tensor.arange(length).reshape(length, 1) + start
        key_at = Tensor.arange(positions)
        causal = None if length == 1 else key_at <= query_at
        if self.window is None:
            return causal
        near = key_at > query_at - self.window
        return near if causal is None else causal & near
