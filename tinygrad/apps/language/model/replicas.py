"""Data parallelism for decoding: replicas of a model, which share the sequences.

Input: a GGUF file and a mesh with the dimension "dp". Output: a `LanguageModel` for the engine.
Invariants: a sequence stays with the replica that owns its KV cache; replicas exchange no messages;
all replicas start a step before any result is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinygrad.apps.language.generation.generate import check_step
from tinygrad.apps.language.generation.kv_cache import KVCache
from tinygrad.apps.language.model.layouts import DATA_PARALLEL, Devices
from tinygrad.apps.language.model.transformer import Transformer
from tinygrad.dtype import DType
from tinygrad.sharding import Mesh
from tinygrad.tensor import Tensor


class Replicas:
    """One transformer for each group of devices along "dp"."""

    def __init__(self, models: Sequence[Transformer]) -> None:
        self.models = tuple(models)
        self.vocab_size, self.max_context = models[0].vocab_size, models[0].max_context
        self.trained_context = models[0].trained_context
        self._made = 0

    def new_cache(self) -> KVCache:
        """An empty KV cache, of the replicas in turn."""
        group = self._made % len(self.models)
        self._made += 1
        cache = self.models[group].new_cache()
        cache.replica = group
        return cache

    def prefill(self, tokens: Sequence[int], cache: KVCache) -> Tensor:
        """`Transformer.prefill` of the replica that owns the cache."""
        return self.models[cache.replica].prefill(tokens, cache)

    def decode(self, tokens: Sequence[int], caches: Sequence[KVCache]) -> list[Tensor]:
        """Add one token to each sequence; returns the logits (vocab,) of each, on its replica.

        Raises as `Transformer.decode`; no cache is changed then.
        """
        tokens = check_step(tokens, caches, self.vocab_size)
        found: dict[int, Tensor] = {}
        for group, model in enumerate(self.models):
            rows = [row for row, cache in enumerate(caches) if cache.replica == group]
            if rows:
                logits = model.decode([tokens[row] for row in rows], [caches[row] for row in rows])
                found |= {row: logits[place] for place, row in enumerate(rows)}
        return [found[row] for row in range(len(caches))]


def load_model(
    gguf: Tensor | str | Path,
    max_context: int | None = None,
    devices: Devices = None,
    cache_dtype: DType | None = None,
    sequences: int = 4,
) -> tuple[Transformer | Replicas, dict[str, Any]]:
    """The model of a GGUF file, for generation, and the file's metadata.

    Over a mesh with "dp", each group of devices has a replica. Raises as `Transformer.from_gguf`.
    """
    groups: Sequence[Devices] = [devices]
    if isinstance(devices, Mesh) and DATA_PARALLEL in devices.names:
        groups = devices.split(DATA_PARALLEL)
    loaded = [
        Transformer.from_gguf(gguf, max_context, group, cache_dtype, sequences) for group in groups
    ]
    models = [model for model, _ in loaded]
    return models[0] if len(models) == 1 else Replicas(models), loaded[0][1]
