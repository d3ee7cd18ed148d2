"""The keys and values of what a model has read of one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from tinygrad.tensor import Tensor


class ContextOverflowError(ValueError):
    """A sequence that became longer than the context of its model."""


@dataclass
class KVCache:
    """The keys and values of one sequence, in the order of `tokens`.

    `memory` is (layers, keys and values, heads, positions, dim of a head) and has room for more
    than `capacity` positions: the last chunk of a prompt is written as a whole. `group` is the
    number of the replica that has it.
    """

    memory: Tensor
    capacity: int
    tokens: list[int] = field(default_factory=list)
    group: int = 0

    def keep_prefix(self, tokens: Sequence[int]) -> int:
        """Forget all but the longest common prefix with `tokens`; the number of tokens kept.

        >>> from tinygrad.apps.language.generation.kv_cache import KVCache
        >>> cache = KVCache(Tensor.empty(1), capacity=8, tokens=[5, 6, 7])
        >>> cache.keep_prefix([5, 6, 9, 7]), cache.tokens
        (2, [5, 6])
        """
        pairs = zip(self.tokens, tokens, strict=False)
        kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        del self.tokens[kept:]
        return kept

    def check_fits(self, length: int) -> None:
        """Raises ContextOverflowError if a sequence of this many tokens is too long."""
        if length > self.capacity:
            raise ContextOverflowError(
                f"a sequence of {length} tokens is longer than the context of the model, "
                f"{self.capacity}; shorten it, or load the model with a larger max_context"
            )
