"""Operators of the domain com.microsoft, which ONNX Runtime fuses transformers into.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.nn.onnx.errors import OnnxError, OnnxUnsupportedError
from tinygrad.nn.onnx.operators.activation import exact_gelu, gelu, swish
from tinygrad.nn.onnx.operators.attention import join_heads, rotary_embedding, split_heads
from tinygrad.nn.onnx.operators.normalization import (
    layer_normalization,
    root_mean_square_normalized,
)
from tinygrad.nn.onnx.registry import MICROSOFT, operator
from tinygrad.tensor import Tensor

Ints = tuple[int, ...]


operator("Gelu", domain=MICROSOFT)(gelu)


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(a: Tensor, b: Tensor) -> Tensor:
    return exact_gelu(a + b)


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return (x if bias is None else x + bias).gelu()


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return swish(x, alpha=alpha)


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    """A product of matrices, transposed first; `transBatch` puts the first axis before the last."""
    if transBatchA:
        a = a.permute((*range(1, a.ndim - 1), 0, a.ndim - 1))
    if transBatchB:
        b = b.permute((*range(1, b.ndim - 1), 0, b.ndim - 1))
    a = a.transpose(-2, -1) if transA and a.ndim > 1 else a
    b = b.transpose(-2, -1) if transB and b.ndim > 1 else b
    return (a @ b) * alpha


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum of both and the bias, normalized; its statistics, and the sum."""
    total = x + skip if bias is None else x + skip + bias
    return (*layer_normalization(total, gamma, beta, epsilon=epsilon), total)


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum of both and the bias, over its root mean square; and the sum."""
    total = x + skip if bias is None else x + skip + bias
    result, inverse = root_mean_square_normalized(total, gamma, -1, epsilon, 1)
    return result, inverse, inverse, total


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    input_ids: Tensor,
    segment_ids: Tensor | None,
    word_embedding: Tensor,
    position_embedding: Tensor,
    segment_embedding: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings of words, positions and segments added and normalized; how long each sequence is
    by its mask; and the sum.
    """
    batch, length = input_ids.shape
    places = Tensor.arange(length).reshape((1, length)) if position_ids is None else position_ids
    total = word_embedding[input_ids] + position_embedding[places]
    if segment_ids is not None and segment_embedding is not None:
        total = total + segment_embedding[segment_ids]
    counts = Tensor.zeros(batch, dtype=dtypes.int32)
    if mask is not None:
        counts = mask.cast(dtypes.int32).sum(1).cast(dtypes.int32)
    return layer_normalization(total, gamma, beta, epsilon=epsilon)[0], counts, total


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary(
    x: Tensor,
    position_ids: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Tensor:
    """As that of opset 23; a single position is where the sequence starts."""
    heads = num_heads or int(x.shape[-1]) // (2 * int(cos_cache.shape[-1]))
    length = x.shape[1] if x.ndim == 3 else x.shape[2]
    if position_ids.numel() == 1:
        position_ids = (position_ids.reshape((1, 1)) + Tensor.arange(length)).expand(
            (x.shape[0], length)
        )
    return rotary_embedding(
        x,
        cos_cache,
        sin_cache,
        position_ids,
        interleaved=interleaved,
        num_heads=heads,
        rotary_embedding_dim=rotary_embedding_dim,
    )


@operator("Attention", domain=MICROSOFT)
def attention(
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask_index: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Ints = (),
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Tensor, Tensor]:
    """Attention of a sequence to itself, with one matrix for queries, keys and values; and keys
    and values for the next call.
    """
    if do_rotary or past_present_share_buffer:
        raise OnnxUnsupportedError("do_rotary and past_present_share_buffer are not there")
    third = int(weights.shape[1]) // 3
    parts = x.linear(weights, bias).split(list(qkv_hidden_sizes or (third, third, third)), dim=-1)
    query, key, value = (split_heads(part, num_heads, "the input") for part in parts)
    if past is not None:
        key, value = past[0].cat(key, dim=2), past[1].cat(value, dim=2)
    factor = scale or 1 / math.sqrt(query.shape[-1])
    wide = least_upper_dtype(x.dtype, dtypes.float32)
    scores = query.matmul(key.transpose(-2, -1), dtype=wide) * factor
    if mask_index is not None:
        scores = scores + filtered(mask_index, scores, mask_filter_value)
    if unidirectional:
        rows, columns = scores.shape[-2:]
        own = Tensor.arange(rows).reshape((rows, 1)) + (columns - rows)
        scores = (Tensor.arange(columns) <= own).where(scores, mask_filter_value)
    if attention_bias is not None:
        scores = scores + attention_bias
    result = scores.softmax(-1).cast(x.dtype) @ value
    return join_heads(result), key.stack(value, dim=0)


def filtered(mask: Tensor, scores: Tensor, value: float) -> Tensor:
    """What is added to scores: `value` where the mask is 0, or behind the length of a sequence."""
    batch, columns = scores.shape[0], scores.shape[-1]
    if mask.ndim == 1 and mask.shape[0] == batch:
        seen = Tensor.arange(columns) < mask.reshape((batch, 1, 1, 1))
    elif mask.ndim in (2, 3, 4):
        inner = (1,) * (4 - mask.ndim)
        seen = mask.reshape((mask.shape[0], *inner, *mask.shape[1:])).ne(0)
    else:
        raise OnnxError(f"a mask of shape {mask.shape} is neither lengths nor one for each key")
    return seen.where(0.0, value)
