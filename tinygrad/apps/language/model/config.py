"""The configuration of a model: sizes, and the differences between model families.

Input: the metadata of a GGUF file. Output: a `ModelConfig`. Invariants: a family is a row of
`FAMILIES`, and no other code depends on its name. Features that show in the tensors of a file
(biases, query norms, experts) are not repeated here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class UnsupportedModelError(ValueError):
    """A model of an architecture, or with an option, that is not supported."""


@dataclass(frozen=True)
class Family:
    """What distinguishes the models of one `general.architecture`.

    `pairs_adjacent`: RoPE rotates the pairs (0, 1), (2, 3), ..., else (i, i + dim / 2). The first
    `local_layers` of each `period` layers have sliding-window attention.
    """

    pairs_adjacent: bool = False
    gelu: bool = False
    scales_embedding: bool = False
    period: int = 1
    local_layers: int = 1
    local_rope_base: float | None = None
    normalizes_experts: bool = False


FAMILIES = {
    "llama": Family(pairs_adjacent=True, normalizes_experts=True),
    "qwen2": Family(),
    "qwen3": Family(),
    "qwen3moe": Family(normalizes_experts=True),
    "olmoe": Family(),
    "phi3": Family(),
    "gemma": Family(gelu=True, scales_embedding=True),
    "gemma2": Family(gelu=True, scales_embedding=True, period=2),
    "gemma3": Family(
        gelu=True, scales_embedding=True, period=6, local_layers=5, local_rope_base=10000.0
    ),
}

# (family, layers) of models whose attention is scaled by dim / heads instead of head_dim
SCALED_BY_DIM_PER_HEAD = {("gemma2", 46), ("gemma3", 62)}


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding (arXiv:2104.09864) of the first `dim` elements of each head.

    Frequencies are `base ** (-2 i / dim) / factor`. `magnitude` scales the rotated elements.
    """

    dim: int
    base: float
    pairs_adjacent: bool
    factor: float = 1.0
    magnitude: float = 1.0


@dataclass(frozen=True)
class ModelConfig:
    """The hyperparameters of a model. `window` includes the position of the query itself."""

    architecture: str
    vocab_size: int
    context_length: int
    layers: int
    dim: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    epsilon: float
    rope: RopeConfig
    local_rope: RopeConfig
    score_scale: float
    embedding_scale: float
    gelu: bool
    window: int | None
    period: int
    local_layers: int
    score_cap: float | None
    logit_cap: float | None
    experts_used: int
    normalizes_experts: bool
    expert_scale: float
    original_context: int

    def is_local(self, layer: int) -> bool:
        """Whether a layer has sliding-window attention."""
        return self.window is not None and layer % self.period < self.local_layers


class _ArchitectureMetadata:
    """The metadata whose keys start with the name of the architecture."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self.metadata = metadata
        self.architecture = architecture

    def get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"{self.architecture}.{key}", default)

    def size(self, key: str, default: int | None = None) -> int:
        """A positive integer. Raises UnsupportedModelError for another value or none."""
        value = self.get(key, default)
        if type(value) is not int or value <= 0:
            shown = "missing" if value is None else repr(value)
            name = f"{self.architecture}.{key}"
            raise UnsupportedModelError(f"the metadata {name} is {shown}, not one positive integer")
        return value


def read_config(metadata: Mapping[str, Any], vocab_size: int) -> ModelConfig:
    """The `ModelConfig` of a file's metadata; `vocab_size` is the number of rows of the embedding.

    Raises UnsupportedModelError for an unknown architecture, and for metadata that is missing or
    not supported.

    >>> from tinygrad.apps.language.model.config import read_config
    >>> sizes = {"block_count": 2, "context_length": 64, "embedding_length": 8}
    >>> sizes |= {"feed_forward_length": 16, "attention.head_count": 2}
    >>> metadata = {"general.architecture": "qwen3"} | {f"qwen3.{k}": v for k, v in sizes.items()}
    >>> config = read_config(metadata, vocab_size=100)
    >>> config.kv_heads, config.head_dim, config.rope.pairs_adjacent
    (2, 4, False)
    """
    architecture = _known_architecture(metadata)
    family, keys = FAMILIES[architecture], _ArchitectureMetadata(metadata, architecture)
    dim, heads, layers = (
        keys.size(key) for key in ("embedding_length", "attention.head_count", "block_count")
    )
    head_dim = _head_dim(keys, dim // heads)
    rope = _rope(keys, family, head_dim)
    by_dim_per_head = (architecture, layers) in SCALED_BY_DIM_PER_HEAD
    return ModelConfig(
        architecture=architecture,
        vocab_size=vocab_size,
        context_length=keys.size("context_length"),
        layers=layers,
        dim=dim,
        hidden=keys.size("expert_feed_forward_length", keys.size("feed_forward_length")),
        heads=heads,
        kv_heads=keys.size("attention.head_count_kv", heads),
        head_dim=head_dim,
        epsilon=float(keys.get("attention.layer_norm_rms_epsilon", 1e-5)),
        rope=rope,
        local_rope=_local_rope(keys, family, rope),
        score_scale=(dim // heads if by_dim_per_head else head_dim) ** -0.5,
        embedding_scale=math.sqrt(dim) if family.scales_embedding else 1.0,
        gelu=family.gelu,
        window=keys.get("attention.sliding_window") or None,
        period=family.period,
        local_layers=family.local_layers,
        score_cap=keys.get("attn_logit_softcapping") or None,
        logit_cap=keys.get("final_logit_softcapping") or None,
        experts_used=keys.get("expert_used_count") or 0,
        normalizes_experts=family.normalizes_experts,
        expert_scale=float(keys.get("expert_weights_scale") or 1.0),
        original_context=keys.size(
            "rope.scaling.original_context_length", keys.size("context_length")
        ),
    )


def _known_architecture(metadata: Mapping[str, Any]) -> str:
    """The architecture of the model. Raises UnsupportedModelError for an unknown one."""
    architecture = metadata.get("general.architecture")
    if architecture in FAMILIES:
        return str(architecture)
    raise UnsupportedModelError(
        f"models of architecture {architecture!r} are not supported; these are: "
        f"{', '.join(FAMILIES)}"
    )


def _head_dim(keys: _ArchitectureMetadata, default: int) -> int:
    """The size of a head. Raises UnsupportedModelError if those of keys and values differ."""
    head_dim = keys.size("attention.key_length", default)
    if keys.size("attention.value_length", head_dim) != head_dim:
        raise UnsupportedModelError(f"{keys.architecture}: keys and values of different lengths")
    return head_dim


def _local_rope(keys: _ArchitectureMetadata, family: Family, rope: RopeConfig) -> RopeConfig:
    """The rotary embedding of layers with sliding-window attention: `rope`, or one of its own
    base.
    """
    if family.local_rope_base is None:
        return rope
    base = float(keys.get("rope.freq_base_swa", family.local_rope_base))
    return RopeConfig(rope.dim, base, rope.pairs_adjacent)


def _rope(keys: _ArchitectureMetadata, family: Family, head_dim: int) -> RopeConfig:
    """The rotary embedding of all other layers. Raises UnsupportedModelError for unknown scaling of
    positions.
    """
    base = float(keys.get("rope.freq_base", 10000.0))
    dim = keys.size("rope.dimension_count", head_dim)
    # a file without a type means linear scaling, by a factor or under its old name
    kind = keys.get("rope.scaling.type", "linear")
    if kind not in ("none", "linear", "longrope"):
        raise UnsupportedModelError(
            f"{keys.architecture}: positions scaled by {kind!r}; none, linear and longrope are "
            "supported"
        )
    given = keys.get("rope.scaling.factor") or keys.get("rope.scale_linear") or 1.0
    factor = float(given) if kind == "linear" else 1.0
    magnitude = float(keys.get("rope.scaling.attn_factor", 1.0))
    return RopeConfig(dim, base, family.pairs_adjacent, factor, magnitude)
