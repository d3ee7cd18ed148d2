"""Attention: values averaged by how well their keys match a query.

In: queries (..., heads, length, dim), keys and values (..., heads, other length, dim). Out: for
each query a mean of the values (..., heads, length, dim).
"""

from __future__ import annotations

import math
from typing import Any, Self

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.mixin.matmul import MatmulMixin
from tinygrad.mixin.random import RandomMixin


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
        """`softmax(self @ key.T / sqrt(dim) + mask) @ value` (arXiv:1706.03762).

        `attn_mask` is added, or says as bools what is seen. `is_causal` lets query i see keys up to
        i. With `enable_gqa`, each key and value serves several heads. The softmax is computed in
        float32 at least. Raises RuntimeError for both a mask and `is_causal`, ValueError for heads
        that cannot be shared evenly.

        >>> q, k, v = Tensor.randn(2, 4, 8), Tensor.randn(2, 6, 8), Tensor.randn(2, 6, 8)
        >>> q.scaled_dot_product_attention(k, v).shape
        (2, 4, 8)
        """
        if is_causal and attn_mask is not None:
            raise RuntimeError("attention takes attn_mask or is_causal, not both")
        if enable_gqa:
            heads, shared = self.shape[-3], key.shape[-3]
            if heads % shared:
                raise ValueError(
                    f"attention: {heads} heads of the query are no multiple of the {shared} of the "
                    "key, so these cannot be shared evenly"
                )
            repeats = heads // shared
            key = key.repeat_interleave(repeats, dim=-3)
            value = value.repeat_interleave(repeats, dim=-3)
        wide = least_upper_dtype(self.dtype, key.dtype, dtypes.float32)
        scores = self.matmul(key.transpose(-2, -1), dtype=wide) / math.sqrt(self.shape[-1])
        if is_causal:
            seen = self._triangle(self.shape[-2], key.shape[-2], 0)
            scores = seen.where(scores, -math.inf)
        elif attn_mask is not None:
            scores = _masked(scores, attn_mask)
        return scores.softmax(-1).cast(self.dtype).dropout(dropout_p) @ value


def _masked(scores: Any, mask: Any) -> Any:
    if mask.dtype is dtypes.bool:
        return mask.where(scores, -math.inf)
    return scores + mask
