"""The KV cache of one sequence.

Input: the tokens of a sequence, and the keys and values of another one that begins alike. Output:
the length of the prefix that need not be computed again. Invariant: the first positions of the
memory hold the keys and values of `tokens`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp

# positions that are copied to and from host memory at once; a cache has as many past its capacity
BLOCK_TOKENS = 64
HOST = "CPU"


class ContextOverflowError(ValueError):
    """A sequence longer than the context of its model."""


def prompt_overflow(length: str, context: int, trained: int) -> str:
    """The message for a prompt of some length, in a context of `context` tokens.

    >>> prompt_overflow("9 tokens", 4, 4)
    'the prompt has 9 tokens, and the context of the model 4 tokens; shorten it'
    """
    hint = f", or give a larger --max-context: the model has {trained}" if trained > context else ""
    return (
        f"the prompt has {length}, and the context of the model {context} tokens; shorten it{hint}"
    )


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the longest common prefix of two sequences of tokens.

    >>> common_prefix([5, 6, 7], [5, 6, 9, 7])
    2
    """
    pairs = enumerate(zip(one, other, strict=False))
    different = (at for at, (mine, theirs) in pairs if mine != theirs)
    return next(different, min(len(one), len(other)))


@dataclass(eq=False)
class HostBlock:
    """`BLOCK_TOKENS` positions of a KV cache in host memory."""

    memory: Tensor

    def nbytes(self) -> int:
        """The size in bytes."""
        size: int = self.memory.nbytes()
        return size


@dataclass
class KVCache:
    """The keys and values of one sequence, in the order of `tokens`.

    `memory` is (layers, 2, kv_heads, positions, head_dim), with keys first. It has more than
    `capacity` positions, as the last prefill chunk of a prompt is written padded. `replica` is the
    number of the replica that owns it.
    """

    memory: Tensor
    capacity: int
    tokens: list[int] = field(default_factory=list)
    replica: int = 0

    def keep_prefix(self, tokens: Sequence[int]) -> int:
        """Drop all but the longest common prefix with `tokens`; returns its length.

        >>> from tinygrad.apps.language.generation.kv_cache import KVCache
        >>> cache = KVCache(Tensor.empty(1), capacity=8, tokens=[5, 6, 7])
        >>> cache.keep_prefix([5, 6, 9, 7]), cache.tokens
        (2, [5, 6])
        """
        kept = common_prefix(self.tokens, tokens)
        del self.tokens[kept:]
        return kept

    def copy_prefix(self, source: KVCache, count: int) -> None:
        """Take the first `count` tokens of another cache of the same shape, and drop the rest."""
        positions = UOp.variable("copied", 1, int(self.memory.shape[3])).bind(count)
        self.memory[:, :, :, :positions].assign(source.memory[:, :, :, :positions]).realize()
        self.tokens = source.tokens[:count]

    def copy_block(self, start: int) -> HostBlock:
        """A copy of `BLOCK_TOKENS` positions from `start`."""
        return HostBlock(self._block(start).clone().to(HOST).realize())

    def write_block(self, start: int, block: HostBlock) -> None:
        """Overwrite `BLOCK_TOKENS` positions from `start`."""
        self._block(start).assign(block.memory.to(self.memory.device)).realize()

    def _block(self, start: int) -> Tensor:
        last = int(self.memory.shape[3]) - BLOCK_TOKENS
        at = UOp.variable("copied_from", 0, last).bind(start)
        return self.memory[:, :, :, at : at + BLOCK_TOKENS]

    def check_fits(self, length: int) -> None:
        """Raise ContextOverflowError if a sequence of `length` tokens is too long."""
        if length > self.capacity:
            raise ContextOverflowError(
                f"a sequence of {length} tokens is longer than the context of the model, "
                f"{self.capacity}; shorten it, or load the model with a larger max_context "
                "(--max-context)"
            )
