"""Attention of the domain com.microsoft: of BERT, multi-head, and grouped-query.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.nn.onnx.errors import OnnxError, OnnxUnsupportedError
from tinygrad.nn.onnx.operators.layers.attention import (
    AttentionWindow,
    join_heads,
    rotary_embedding,
    rotate_pairs,
    split_heads,
)
from tinygrad.nn.onnx.registry import MICROSOFT, operator
from tinygrad.nn.onnx.values import Array
from tinygrad.tensor import Tensor

Ints = tuple[int, ...]


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
    """As in opset 23; a single position is the start of the sequence."""
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
    """Self-attention with one matrix for queries, keys and values; and keys and values for the next
    call.
    """
    if do_rotary or past_present_share_buffer:
        raise OnnxUnsupportedError("do_rotary and past_present_share_buffer are not there")
    third = int(weights.shape[1]) // 3
    parts = x.linear(weights, bias).split(list(qkv_hidden_sizes or (third, third, third)), dim=-1)
    query, key, value = (split_heads(part, num_heads, "the input") for part in parts)
    if past is not None:
        key, value = past[0].cat(key, dim=2), past[1].cat(value, dim=2)
    result = attend(
        query,
        key,
        value,
        mask_index,
        attention_bias,
        scale,
        mask_filter_value,
        bool(unidirectional),
    )
    return result, key.stack(value, dim=0)


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention to keys and values, which may be split into heads already; the result, and keys
    and values for the next call.
    """
    parts = [query, key, value]
    if bias is not None:
        sizes = [int(query.shape[-1])] * 2
        pieces = bias.split([*sizes, int(bias.shape[0]) - sum(sizes)])
        parts = [x if x.ndim == 4 else x + piece for x, piece in zip(parts, pieces)]
    query, key, value = (split_heads(part, num_heads, "the input") for part in parts)
    if past_key is not None and past_value is not None:
        key, value = past_key.cat(key, dim=2), past_value.cat(value, dim=2)
    result = attend(
        query,
        key,
        value,
        key_padding_mask,
        attention_bias,
        scale,
        mask_filter_value,
        bool(unidirectional),
    )
    return result, key, value


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    scale: float,
    hidden: float,
    causal: bool,
) -> Tensor:
    """The attention output: (batch, length, heads * dim). `hidden` is added to the scores of masked
    keys; the last query is at the last key.
    """
    wide = least_upper_dtype(query.dtype, dtypes.float32)
    factor = scale or 1 / math.sqrt(query.shape[-1])
    scores = query.matmul(key.transpose(-2, -1), dtype=wide) * factor
    if mask is not None:
        scores = scores + additive_mask(mask, scores, hidden)
    if causal:
        rows, columns = scores.shape[-2:]
        visible = AttentionWindow(None, 0, columns - rows).visible(rows, columns)
        assert visible is not None, "there is a limit"
        scores = visible.where(scores, hidden)
    if bias is not None:
        scores = scores + bias
    return join_heads(scores.softmax(-1).cast(query.dtype) @ value)


def additive_mask(mask: Tensor, scores: Tensor, value: float) -> Tensor:
    """The additive mask: `value` where the mask is 0, or past the end of a sequence."""
    batch, columns = scores.shape[0], scores.shape[-1]
    if mask.ndim == 1 and mask.shape[0] == batch:
        visible = Tensor.arange(columns) < mask.reshape((batch, 1, 1, 1))
    elif mask.ndim in (2, 3, 4):
        inner = (1,) * (4 - mask.ndim)
        visible = mask.reshape((mask.shape[0], *inner, *mask.shape[1:])).ne(0)
    else:
        raise OnnxError(f"a mask of shape {mask.shape} is neither lengths nor one for each key")
    return visible.where(0.0, value)


@operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    seqlens_k: Tensor,
    total_sequence_length: Array,
    cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None,
    position_ids: Tensor | None = None,
    attention_bias: Tensor | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: int = 0,
    local_window_size: int = -1,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Causal attention with a cache: the result, and the cache with the new keys and values.

    `seqlens_k` is, for each batch, the last position that has a key; without `key` and `value`, the
    query holds all three.
    """
    if smooth_softmax:
        raise OnnxUnsupportedError("smooth_softmax is not there")
    q, k, v = _heads_of_inputs(query, key, value, num_heads, kv_num_heads)
    length, total = int(q.shape[2]), int(total_sequence_length.item())
    # a first call starts at 0 in every batch, whatever its padding
    first = length == total
    last = seqlens_k.reshape((-1, 1)).cast(dtypes.int32)
    start = last.zeros_like() if first else last + (1 - length)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise OnnxError("do_rotary needs cos_cache and sin_cache")
        places = start + Tensor.arange(length) if position_ids is None else position_ids
        caches, pairs = (cos_cache, sin_cache), bool(rotary_interleaved)
        q, k = rotate(q, places, caches, pairs), rotate(k, places, caches, pairs)
    keys = update_cache(past_key, k, start, total, first)
    values = update_cache(past_value, v, start, total, first)
    before = local_window_size - 1 if local_window_size > 0 else None
    window = AttentionWindow(before, 0, start.reshape((-1, 1, 1, 1)))
    result = grouped_attention(q, keys, values, window, attention_bias, scale, softcap)
    return result, keys, values


def _heads_of_inputs(
    query: Tensor, key: Tensor | None, value: Tensor | None, heads: int, kv_heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as (batch, heads, length, dim). Without `key` and `value`, the query
    is (batch, length, (heads + 2 * kv_heads) * dim) and holds all three.
    """
    if key is None or value is None:
        dim = int(query.shape[-1]) // (heads + 2 * kv_heads)
        query, key, value = query.split([heads * dim, kv_heads * dim, kv_heads * dim], dim=-1)
    return (
        split_heads(query, heads, "query"),
        split_heads(key, kv_heads, "key"),
        split_heads(value, kv_heads, "value"),
    )


def rotate(x: Tensor, places: Tensor, caches: tuple[Tensor, Tensor], interleaved: bool) -> Tensor:
    """Heads (batch, heads, length, dim) rotated by angles of their positions (batch, length)."""
    cosine, sine = (cache[places].unsqueeze(1) for cache in caches)
    return rotate_pairs(x, cosine, sine, interleaved, 2 * int(caches[0].shape[-1]))


def grouped_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    window: AttentionWindow,
    bias: Tensor | None,
    scale: float,
    softcap: float,
) -> Tensor:
    """The attention output over visible keys: (batch, length, heads * dim)."""
    groups = q.shape[1] // keys.shape[1]
    if groups > 1:
        keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
    wide = least_upper_dtype(q.dtype, dtypes.float32)
    factor = scale or 1 / math.sqrt(q.shape[-1])
    scores = q.matmul(keys.transpose(-2, -1), dtype=wide) * factor
    scores = (scores / softcap).tanh() * softcap if softcap else scores
    rows, columns = scores.shape[-2:]
    if bias is not None:
        scores = scores + bias.pad((None, None, None, (0, columns - bias.shape[-1])))
    visible = window.visible(rows, columns)
    assert visible is not None, "there is a limit"
    weights = visible.where(scores, -math.inf).softmax(-1)
    return join_heads(weights.cast(q.dtype) @ values)


def update_cache(
    past: Tensor | None, new: Tensor, start: Tensor, total: int, first: bool
) -> Tensor:
    """A cache (batch, heads, at least `total`, dim) with new rows from `start`, (batch, 1)."""
    size = total if past is None else max(total, int(past.shape[2]))
    if past is None or first:
        return new.pad_to((None, None, size, None))
    places = start + Tensor.arange(new.shape[2])
    index = places.reshape((places.shape[0], 1, -1, 1)).expand(new.shape)
    return past.pad_to((None, None, size, None)).scatter(2, index, new)
