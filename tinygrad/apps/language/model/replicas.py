"""A model several times, each on devices of its own, which share out the sequences.

In: a GGUF file and a mesh with the dimension "dp". Out: what `engine` asks of a model. Always true:
a sequence stays with the replica that has its cache, and replicas send each other nothing; work for
all of them is started before any result is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinygrad.apps.language.generation.generate import check_step
from tinygrad.apps.language.generation.kv_cache import KVCache
from tinygrad.apps.language.model.layouts import BATCHES, Devices
from tinygrad.apps.language.model.transformer import Transformer
from tinygrad.dtype import DType, dtypes
from tinygrad.sharding import Mesh
from tinygrad.tensor import Tensor


class Replicas:
    """Transformers of one file, one for each group of devices along "dp"."""

    def __init__(self, models: Sequence[Transformer]) -> None:
        self.models = tuple(models)
        self.vocab_size, self.max_context = models[0].vocab_size, models[0].max_context
        self._made = 0

    def new_cache(self) -> KVCache:
        """A cache without tokens, each the next replica's."""
        group = self._made % len(self.models)
        self._made += 1
        cache = self.models[group].new_cache()
        cache.group = group
        return cache

    def prefill(self, tokens: Sequence[int], cache: KVCache) -> Tensor:
        """`Transformer.prefill` of the replica that has the cache."""
        return self.models[cache.group].prefill(tokens, cache)

    def decode(self, tokens: Sequence[int], caches: Sequence[KVCache]) -> list[Tensor]:
        """One more token for each sequence; the logits (vocab,) of each, where its cache is.

        Raises as `Transformer.decode`; no cache is changed then.
        """
        tokens = check_step(tokens, caches, self.vocab_size)
        found: dict[int, Tensor] = {}
        for group, model in enumerate(self.models):
            rows = [row for row, cache in enumerate(caches) if cache.group == group]
            if rows:
                logits = model.decode([tokens[row] for row in rows], [caches[row] for row in rows])
                found |= {row: logits[place] for place, row in enumerate(rows)}
        return [found[row] for row in range(len(caches))]


def load_model(
    gguf: Tensor | str | Path,
    max_context: int | None = None,
    devices: Devices = None,
    cache_dtype: DType = dtypes.float32,
) -> tuple[Transformer | Replicas, dict[str, Any]]:
    """The model of a GGUF file, for sequences that grow, and the file's metadata.

    Over a mesh with "dp", each of its groups has a replica. Raises as `Transformer.from_gguf`.
    """
    groups: Sequence[Devices] = [devices]
    if isinstance(devices, Mesh) and BATCHES in devices.names:
        groups = devices.split(BATCHES)
    loaded = [Transformer.from_gguf(gguf, max_context, group, cache_dtype) for group in groups]
    models = [model for model, _ in loaded]
    return models[0] if len(models) == 1 else Replicas(models), loaded[0][1]
