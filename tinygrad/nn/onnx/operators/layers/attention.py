"""Attention and rotary embeddings of opsets 23 and 24."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.nn.onnx.element_types import dtype_of
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.registry import operator
from tinygrad.tensor import Tensor


def split_heads(x: Tensor, heads: int, what: str) -> Tensor:
    """(batch, length, heads * dim) to (batch, heads, length, dim); four axes are kept."""
    if x.ndim == 4:
        return x
    if x.ndim != 3 or heads < 1 or x.shape[-1] % heads:
        raise OnnxError(f"{what} of shape {x.shape} is not (batch, length, {heads} heads * dim)")
    return x.reshape((*x.shape[:2], heads, -1)).permute(0, 2, 1, 3)


def join_heads(x: Tensor) -> Tensor:
    """(batch, heads, length, dim) to (batch, length, heads * dim)."""
    return x.permute(0, 2, 1, 3).flatten(2)


@operator("Attention")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    left_window_size: int = -1,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The result, the keys and values with the past ones, and the scores at the requested stage."""
    query = split_heads(q, q_num_heads, "q")
    key, value = split_heads(k, kv_num_heads, "k"), split_heads(v, kv_num_heads, "v")
    past = 0 if past_key is None else int(past_key.shape[2])
    if past_key is not None and past_value is not None:
        key, value = past_key.cat(key, dim=2), past_value.cat(value, dim=2)
    groups = query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(groups, 1) if groups > 1 else x for x in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    wide = least_upper_dtype(query.dtype, dtypes.float32)
    raw = query.matmul(keys.transpose(-2, -1), dtype=wide) * factor
    capped = raw if softcap == 0 else (raw / softcap).tanh() * softcap
    lengths = None if nonpad_kv_seqlen is None else nonpad_kv_seqlen.reshape((-1, 1, 1, 1))
    window = AttentionWindow(
        before=left_window_size if left_window_size >= 0 else None,
        after=0 if is_causal else right_window_size if right_window_size >= 0 else None,
        offset=past if lengths is None else lengths - query.shape[2],
    )
    masked = with_mask(capped, attn_mask, lengths, window)
    precision = wide if softmax_precision is None else dtype_of(softmax_precision, "softmax")
    weights = masked.cast(precision)._softmax_of_visible(-1)
    result = weights.cast(q.dtype) @ values
    stages = {0: raw, 1: capped, 2: masked, 3: weights}
    if qk_matmul_output_mode not in stages:
        raise OnnxError(f"qk_matmul_output_mode is {qk_matmul_output_mode}, not 0 to 3")
    scores = stages[qk_matmul_output_mode].cast(q.dtype)
    return (join_heads(result) if q.ndim == 3 else result), key, value, scores


@dataclass(frozen=True)
class AttentionWindow:
    """The attention window: a query at position p sees keys from p - `before` to p + `after`,
    without limit if None. Positions start at `offset`, one number or one for each batch.
    """

    before: int | None
    after: int | None
    offset: int | Tensor

    def visible(self, rows: int, columns: int) -> Tensor | None:
        """The mask of visible keys for each query, or None if all are."""
        if self.before is None and self.after is None:
            return None
        key = Tensor.arange(columns)
        own = Tensor.arange(rows).reshape((rows, 1)) + self.offset
        visible = Tensor.full((rows, columns), True)
        if self.after is not None:
            visible = visible & (key <= own + self.after)
        if self.before is not None:
            visible = visible & (key >= own - self.before)
        return visible


def with_mask(
    scores: Tensor, mask: Tensor | None, lengths: Tensor | None, window: AttentionWindow
) -> Tensor:
    """Scores with the mask added, or minus infinity where it is false, past the `lengths` of each
    batch, and outside the window.
    """
    rows, columns = scores.shape[-2:]
    if mask is not None:
        missing = columns - mask.shape[-1]
        if missing:
            hidden = False if mask.dtype is dtypes.bool else -math.inf
            mask = mask.pad([None] * (mask.ndim - 1) + [(0, missing)], value=hidden)
        is_bool = mask.dtype is dtypes.bool
        scores = mask.where(scores, -math.inf) if is_bool else scores + mask
    if lengths is not None:
        scores = (Tensor.arange(columns) < lengths).where(scores, -math.inf)
    visible = window.visible(rows, columns)
    return scores if visible is None else visible.where(scores, -math.inf)


def rotate_pairs(x: Tensor, cosine: Tensor, sine: Tensor, interleaved: bool, dim: int) -> Tensor:
    """The first `dim` elements of the last axis, in pairs, rotated by angles (arXiv:2104.09864)."""
    dim = dim or int(x.shape[-1])
    turning, rest = x[..., :dim], x[..., dim:]
    if interleaved:
        pairs = turning.reshape((*turning.shape[:-1], dim // 2, 2))
        a, b = pairs[..., 0], pairs[..., 1]
    else:
        a, b = turning[..., : dim // 2], turning[..., dim // 2 :]
    first, second = a * cosine - b * sine, b * cosine + a * sine
    if interleaved:
        result = first.stack(second, dim=-1).reshape(turning.shape)
    else:
        result = first.cat(second, dim=-1)
    return result.cat(rest, dim=-1) if rest.shape[-1] else result


@operator("RotaryEmbedding")
def rotary_embedding(
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """Caches are (batch, length, dim / 2), or with positions (longest, dim / 2)."""
    heads = split_heads(x, num_heads, "the input")
    cosine, sine = (
        (cache if position_ids is None else cache[position_ids]).unsqueeze(1)
        for cache in (cos_cache, sin_cache)
    )
    result = rotate_pairs(heads, cosine, sine, bool(interleaved), rotary_embedding_dim)
    return join_heads(result) if x.ndim == 3 else result
