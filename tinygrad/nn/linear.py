"""Layers with one weight matrix: `Linear` multiplies by it, `Embedding` looks up its rows."""

from __future__ import annotations

import math

from tinygrad.dtype import dtypes
from tinygrad.errors import ArgumentIndexError
from tinygrad.mixin.core import check_tensors
from tinygrad.mixin.creation import known_sizes
from tinygrad.nn.inputs import check_input
from tinygrad.tensor import Tensor


class Linear:
    """`x @ weight.T + bias`: (..., in_features) to (..., out_features).

    `weight` is (out_features, in_features), `bias` (out_features,) or None. Both start uniform in
    +-1/sqrt(in_features).

    >>> layer = nn.Linear(3, 2)
    >>> layer(Tensor.ones(4, 3)).shape
    (4, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        in_features, out_features = known_sizes((in_features, out_features))
        bound = 1 / math.sqrt(max(1, in_features))
        self.weight = Tensor.uniform(out_features, in_features, low=-bound, high=bound)
        self.bias = Tensor.uniform(out_features, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        check_input("Linear", x, ..., self.weight.shape[-1])
        return x.linear(self.weight.transpose(), self.bias)


class Embedding:
    """Row `index` of `weight` for each index: (...) of ints to (..., embed_size).

    `weight` is (vocab_size, embed_size) and starts Glorot-uniform. Negative indices count from the
    end; an index out of range gives zeros. A table sharded over the vocabulary is not moved: each
    device looks up its own rows.

    >>> layer = nn.Embedding(10, 4)
    >>> layer(Tensor([[1, 2, 1]])).shape
    (1, 3, 4)
    """

    def __init__(self, vocab_size: int, embed_size: int) -> None:
        self.vocab_sz, self.embed_sz = vocab_size, embed_size
        self.weight = Tensor.glorot_uniform(vocab_size, embed_size)

    def __call__(self, idx: Tensor) -> Tensor:
        check_tensors("Embedding", idx=idx)
        if not dtypes.is_int(idx.dtype):
            raise ArgumentIndexError(
                f"Embedding of {self.weight.shape[0]} rows takes integers as idx, not {idx.dtype} "
                f"of shape {idx.shape}; cast them: idx.int()"
            )
        return self.weight[idx]
