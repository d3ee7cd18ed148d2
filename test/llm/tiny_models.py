"""Tiny models as GGUF files: a recipe for each family, with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DIM, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, VOCAB, LAYERS = 64, 6, 3, 32, 160, 70, 2
EXPERTS, EXPERTS_USED, EXPERT_HIDDEN = 5, 2, 32
CONTEXT = 200
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Recipe:
    """The features of a family: metadata, shapes of weights that it adds or lacks (None),
    layers, and the name of the family if it is not that of the recipe.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)
    layer: Mapping[str, Shape | None] = field(default_factory=dict)
    model: Mapping[str, Shape] = field(default_factory=dict)
    layers: int = LAYERS
    family: str | None = None


Q, KV = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
BIASES = {"attn_q.bias": (Q,), "attn_k.bias": (KV,), "attn_v.bias": (KV,)}
HEAD_NORMS = {"attn_q_norm.weight": (HEAD_DIM,), "attn_k_norm.weight": (HEAD_DIM,)}
WHOLE_NORMS = {"attn_q_norm.weight": (Q,), "attn_k_norm.weight": (KV,)}
POST_NORMS = {"post_attention_norm.weight": (DIM,), "post_ffw_norm.weight": (DIM,)}
MIXTURE = {
    "ffn_gate.weight": None,
    "ffn_up.weight": None,
    "ffn_down.weight": None,
    "ffn_gate_inp.weight": (EXPERTS, DIM),
    "ffn_gate_exps.weight": (EXPERTS, EXPERT_HIDDEN, DIM),
    "ffn_up_exps.weight": (EXPERTS, EXPERT_HIDDEN, DIM),
    "ffn_down_exps.weight": (EXPERTS, DIM, EXPERT_HIDDEN),
}
MIXTURE_SIZES = {
    "expert_count": EXPERTS,
    "expert_used_count": EXPERTS_USED,
    "expert_feed_forward_length": EXPERT_HIDDEN,
}
FUSED = {
    "attn_q.weight": None,
    "attn_k.weight": None,
    "attn_v.weight": None,
    "attn_qkv.weight": (Q + 2 * KV, DIM),
    "ffn_gate.weight": None,
    "ffn_up.weight": (2 * HIDDEN, DIM),
}
OWN_OUTPUT = {"output.weight": (VOCAB, DIM)}

ONE_KEY = {
    "attn_k.weight": (HEAD_DIM, DIM),
    "attn_v.weight": (HEAD_DIM, DIM),
}

RECIPES = {
    "llama": Recipe(model={"rope_freqs.weight": (HEAD_DIM // 2,)}),
    "qwen2": Recipe(layer=BIASES, model=OWN_OUTPUT),
    "qwen3": Recipe(layer=HEAD_NORMS, metadata={"rope.freq_base": 1e6}),
    "qwen3moe": Recipe(layer=HEAD_NORMS | MIXTURE, metadata=MIXTURE_SIZES),
    "olmoe": Recipe(layer=WHOLE_NORMS | MIXTURE, metadata=MIXTURE_SIZES, model=OWN_OUTPUT),
    "phi3": Recipe(
        layer=FUSED, metadata={"rope.dimension_count": 24, "attention.sliding_window": 9}
    ),
    "phi3, long": Recipe(
        layer=FUSED,
        model={
            "rope_factors_long.weight": (HEAD_DIM // 2,),
            "rope_factors_short.weight": (HEAD_DIM // 2,),
        },
        metadata={
            "rope.scaling.type": "longrope",
            "rope.scaling.original_context_length": CONTEXT // 2,
            "rope.scaling.attn_factor": 1.2,
        },
        family="phi3",
    ),
    "gemma3": Recipe(
        layer=HEAD_NORMS | POST_NORMS,
        metadata={
            "attention.sliding_window": 7,
            "rope.freq_base": 1e6,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
        layers=7,
    ),
    "gemma": Recipe(layer=ONE_KEY, metadata={"attention.head_count_kv": 1}),
    "gemma2": Recipe(
        layer=POST_NORMS,
        metadata={"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
    ),
}


def write_model(
    path: Path,
    name: str,
    seed: int = 0,
    weights_per_file: int = 0,
    tokenizer: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a model of a recipe with random weights and matrices of several quantised types.

    With the metadata of a tokenizer, the model has its vocabulary.
    With `weights_per_file` it writes several files, whose names the package `gguf` derives from
    `path`.
    """
    gguf = pytest.importorskip("gguf")
    recipe = RECIPES[name]
    architecture = recipe.family or name
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=weights_per_file)
    for key, value in (_sizes(recipe.layers) | dict(recipe.metadata)).items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](f"{architecture}.{key}", value)
    for key, value in (tokenizer or {}).items():
        add = {int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
        add[type(value)](f"tokenizer.ggml.{key}", value)
    vocabulary = len(tokenizer["tokens"]) if tokenizer else VOCAB
    random = np.random.default_rng(seed)
    kinds = [gguf.GGMLQuantizationType[name] for name in ("Q8_0", "Q4_1", "F16", "Q5_0", "BF16")]
    for number, (weight, shape) in enumerate(_shapes(recipe, vocabulary).items()):
        values = random.standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            # scales around 1; those of frequencies stay positive
            writer.add_tensor(weight, np.abs(1 + values * np.float32(0.2)))
            continue
        kind = kinds[number % len(kinds)]
        scaled = values / np.float32(np.sqrt(shape[-1]))
        writer.add_tensor(weight, gguf.quants.quantize(scaled, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _sizes(layers: int) -> dict[str, Any]:
    return {
        "block_count": layers,
        "context_length": CONTEXT,
        "embedding_length": DIM,
        "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }


def _shapes(recipe: Recipe, vocabulary: int) -> dict[str, Shape]:
    layer: dict[str, Shape | None] = {
        "attn_norm.weight": (DIM,),
        "attn_q.weight": (Q, DIM),
        "attn_k.weight": (KV, DIM),
        "attn_v.weight": (KV, DIM),
        "attn_output.weight": (DIM, Q),
        "ffn_norm.weight": (DIM,),
        "ffn_gate.weight": (HIDDEN, DIM),
        "ffn_up.weight": (HIDDEN, DIM),
        "ffn_down.weight": (DIM, HIDDEN),
    }
    layer |= recipe.layer
    shapes: dict[str, Shape] = {
        "token_embd.weight": (vocabulary, DIM),
        "output_norm.weight": (DIM,),
    }
    shapes |= recipe.model
    for number in range(recipe.layers):
        shapes |= {f"blk.{number}.{name}": s for name, s in layer.items() if s is not None}
    return shapes
