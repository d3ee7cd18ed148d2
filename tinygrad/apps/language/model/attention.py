"""Attention of the tokens of a step to those before them, in one layer.

In: vectors (rows, length, dim), where the rows are, and the cache of each row. Out: vectors of the
same shape. Always true: heads that share a key are one unit of the layout, so that attention itself
moves nothing between devices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.apps.language.model.config import Config
from tinygrad.apps.language.model.norm import Norm
from tinygrad.apps.language.model.rotary import Rotary
from tinygrad.apps.language.model.weights import COLUMNS, ROWS, Projection, Split, WeightFile
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp


@dataclass(frozen=True)
class Span:
    """The tokens of a step: `length` of them in each row, from a position of its own on.

    `memories` are the caches of the rows. Without any, the rows are whole sequences.
    """

    length: int
    starts: Sequence[int | UOp]
    memories: Sequence[Tensor] = ()


class Attention:
    """One layer's attention."""

    def __init__(self, file: WeightFile, config: Config, layer: int, rotary: Rotary) -> None:
        self.config, self.layer, self.rotary = config, layer, rotary
        self.window = config.window if config.is_local(layer) else None
        self.kv_heads = file.placement.padded(config.kv_heads)
        self.heads_divide = self.kv_heads == config.kv_heads
        self.shared_by = config.heads // config.kv_heads
        name = f"blk.{layer}."
        self.rows = Split(ROWS, config.kv_heads if self.heads_divide else None)
        parts: list[tuple[str, tuple[int, int] | None]]
        if f"{name}attn_qkv.weight" in file:
            # one matrix has the rows of all three
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
        """The norm of each head, or of all together, if the file has one."""
        if name not in file:
            return None
        dim, epsilon = self.config.head_dim, self.config.epsilon
        if file.shape(name) == (dim,):
            return Norm(file.vector(name), epsilon, dim)
        return Norm(file.vector(name, self.rows), epsilon, heads * dim)

    def _output(self, file: WeightFile, name: str) -> Projection:
        """Split like the heads, or by rows if they do not divide or end within blocks."""
        unit = self.shared_by * self.config.head_dim
        if self.heads_divide and unit % file.elements_per_block(f"{name}.weight") == 0:
            self.is_gathered = False
            return file.projection(name, Split(COLUMNS, self.config.kv_heads))
        self.is_gathered = True
        return file.projection(name, Split(ROWS))

    def __call__(self, x: Tensor, angles: tuple[Tensor, Tensor], span: Span) -> Tensor:
        query = self._heads(self.query(x), self.query_norm, self.shared_by)
        key = self._heads(self.key(x), self.key_norm, 1)
        value = self._heads(self.value(x), None, 1)
        query = self.rotary.turned(query * self.config.score_scale, angles)
        key = self.rotary.turned(key, angles)
        # from (rows, length, groups, heads, dim) to (rows, groups, heads, length, dim)
        query, key, value = (t.permute(0, 2, 3, 1, 4) for t in (query, key, value))
        if span.memories:
            self._remember(Tensor.stack(key.squeeze(2), value.squeeze(2), dim=1), query, span)
            rows = [
                self._attend(query[row : row + 1], *self._remembered(span, row), span.starts[row])
                for row in range(len(span.memories))
            ]
            attended = rows[0].cat(*rows[1:])
        else:
            attended = self._attend(query, key, value, 0)
        if self.is_gathered:
            attended = attended.to(x.device)
        columns = self.config.heads * self.config.head_dim
        return self.output(attended.permute(0, 3, 1, 2, 4).flatten(2)[..., :columns]).to(x.device)

    def _heads(self, x: Tensor, norm: Norm | None, heads: int) -> Tensor:
        """(rows, length, n) as heads (rows, length, groups, heads, dim), normalised.

        Where groups do not divide, groups of zeros are added.
        """
        if norm is not None and norm.count > self.config.head_dim:
            x, norm = norm(x), None
        split = x.device
        x = x.unflatten(-1, (self.config.kv_heads, heads, self.config.head_dim))
        if not self.heads_divide:
            missing = self.kv_heads - self.config.kv_heads
            x = x.pad((None, None, (0, missing), None, None)).to(split)
        return x if norm is None else norm(x)

    def _remember(self, pairs: Tensor, query: Tensor, span: Span) -> None:
        """Writes keys and values (rows, 2, groups, length, dim) to the caches.

        The queries are computed with them, from the same vectors.
        """
        parts = [
            memory[self._number, :, :, start : start + span.length].assign(
                pairs[row].cast(memory.dtype)
            )
            for row, (memory, start) in enumerate(zip(span.memories, span.starts, strict=True))
        ]
        query.realize(*parts)

    def _remembered(self, span: Span, row: int) -> tuple[Tensor, Tensor]:
        """All keys and values of a row's cache, with what was just written, as float32."""
        stop, memory = span.starts[row] + span.length, span.memories[row]
        keys, values = (memory[self._number, part, :, :stop].float() for part in (0, 1))
        return keys.unsqueeze(0).unsqueeze(2), values.unsqueeze(0).unsqueeze(2)

    @property
    def _number(self) -> UOp:
        """The layer, as a number that kernels are given, so that those of all layers are alike."""
        return UOp.variable("layer", 0, self.config.layers - 1).bind(self.layer)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, start: int | UOp) -> Tensor:
        """Queries (rows, groups, heads, length, dim) of positions from `start` on.

        Keys and values are (rows, groups, 1, positions, dim).
        """
        scores = query @ key.transpose(-1, -2)
        if self.config.score_cap is not None:
            scores = (scores / self.config.score_cap).tanh() * self.config.score_cap
        seen = self._seen(query.shape[-2], key.shape[-2], start)
        if seen is not None:
            scores = seen.where(scores, -math.inf)
        return scores.softmax(-1) @ value

    def _seen(self, length: int, positions: int | UOp, start: int | UOp) -> Tensor | None:
        """Which positions each query sees, (length, positions); None for all."""
        own = Tensor.arange(length).reshape(length, 1) + start
        other = Tensor.arange(positions)
        seen = None if length == 1 else other <= own
        if self.window is None:
            return seen
        near = other > own - self.window
        return near if seen is None else seen & near
