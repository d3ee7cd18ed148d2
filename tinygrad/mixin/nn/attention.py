"""Scaled dot-product attention.

Input: queries (..., heads, length, dim), keys and values (..., heads, other length, dim). Output: a
weighted mean of the values for each query, (..., heads, length, dim).
"""

from __future__ import annotations

import math
from typing import Any, Self

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.errors import ArgumentError
from tinygrad.mixin.core import check_tensors
from tinygrad.mixin.linalg.matmul import MatmulMixin
from tinygrad.mixin.random import RandomMixin
from tinygrad.sharding import max_size
from tinygrad.uop.reshard import shard_count


class AttentionMixin(MatmulMixin, RandomMixin):
    """`scaled_dot_product_attention`."""

    __slots__ = ()

    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        enable_gqa: bool = False,
    ) -> Self:
        """Attention: `softmax(self @ key.T / sqrt(dim) + mask) @ value` (arXiv:1706.03762).

        A float `attn_mask` is added to the scores; a bool one selects the keys that a query attends
        to. With `is_causal`, query i attends to keys up to i. With `enable_gqa` (grouped queries),
        each key and value head serves several query heads. The softmax is computed in float32 or
        wider. Raises RuntimeError for both a mask and `is_causal`, ValueError for numbers of heads
        that do not divide.

        A query that attends to no key gets zeros, and its gradients are zeros.

        >>> q, k, v = Tensor.randn(2, 4, 8), Tensor.randn(2, 6, 8), Tensor.randn(2, 6, 8)
        >>> q.scaled_dot_product_attention(k, v).shape
        (2, 4, 8)
        """
        if is_causal and attn_mask is not None:
            raise ArgumentError("attention takes attn_mask or is_causal, not both")
        mask = self if attn_mask is None else attn_mask
        check_tensors("attention", key=key, value=value, attn_mask=mask)
        if min(self.ndim, key.ndim, value.ndim) < 2 + enable_gqa:
            axes = "heads, length, size" if enable_gqa else "length, size"
            raise ArgumentError(
                f"attention: query {self.shape}, key {key.shape} and value {value.shape} must each "
                f"be (..., {axes})"
            )
        query, key, value = self._unshard_dim(key, value)
        if enable_gqa:
            heads, shared = self.shape[-3], key.shape[-3]
            if heads % shared:
                raise ArgumentError(
                    f"attention: the {heads} heads of the query are not a multiple of the {shared} "
                    "heads of the key"
                )
            repeats = heads // shared
            key = key.repeat_interleave(repeats, dim=-3)
            value = value.repeat_interleave(repeats, dim=-3)
        wide = least_upper_dtype(self.dtype, key.dtype, dtypes.float32)
        scores = query.matmul(key.transpose(-2, -1), dtype=wide) / math.sqrt(self.shape[-1])
        if is_causal:
            # every query attends to the first key
            is_visible = self._triangle(self.shape[-2], key.shape[-2], 0)
            scores = is_visible.where(scores, -math.inf)
        elif attn_mask is not None:
            scores = _apply_mask(scores, attn_mask)
        weights = scores.softmax(-1) if attn_mask is None else scores._softmax_of_visible(-1)
        return weights.cast(self.dtype).dropout(dropout_p) @ value

    def _unshard_dim(self, key: Self, value: Self) -> tuple[Self, Self, Self]:
        """Query, key and value with the last axis unsharded, if they are smaller than the scores:
        those of a sharded axis are partial sums, which devices would store and exchange.
        """
        operands = (self, key, value)
        if all(shard_count(x.uop, x.ndim - 1) == 1 for x in (self, key)):
            return operands
        length, others, dim = map(max_size, (self.shape[-2], *key.shape[-2:]))
        if length * others <= (length + 2 * others) * dim:
            return operands
        query, key, value = (x._unshard_axis(x.ndim - 1) for x in operands)
        return query, key, value


def _apply_mask(scores: Any, mask: Any) -> Any:
    if mask.dtype is dtypes.bool:
        return mask.where(scores, -math.inf)
    return scores + mask
