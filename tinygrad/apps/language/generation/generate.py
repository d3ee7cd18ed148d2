"""Tokens one after the other: a prompt is read, then each token that is drawn.

In: a model, the tokens of a prompt, how to draw. Out: `Generated` tokens, without end until the
context is full. Always true: a cache holds just the tokens that it says, whenever the caller stops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tinygrad.apps.language.generation.grammar import Grammar
from tinygrad.apps.language.generation.kv_cache import ContextOverflowError, KVCache
from tinygrad.apps.language.generation.sampling import Generated, Sampler, Sampling
from tinygrad.tensor import Tensor

__all__ = ["ContextOverflowError", "Generated", "LanguageModel", "Sampler", "Sampling", "generate"]


class LanguageModel(Protocol):
    """What generation asks of a model."""

    vocab_size: int

    def new_cache(self) -> KVCache:
        """Room for one sequence."""

    def prefill(self, tokens: Sequence[int], cache: KVCache) -> Tensor:
        """Makes the cache hold these tokens; the logits (vocab,) after the last."""

    def decode(self, tokens: Sequence[int], caches: Sequence[KVCache]) -> Tensor | Sequence[Tensor]:
        """One more token for each cache; the logits (batch, vocab) after them."""


def generate(
    model: LanguageModel,
    tokens: Sequence[int],
    sampling: Sampling | None = None,
    cache: KVCache | None = None,
    grammar: Grammar | None = None,
) -> Iterator[Generated]:
    """The tokens that follow `tokens`, one by one; the caller stops when it has enough.

    They end by themselves where `grammar` lets nothing follow. Of `cache`, the longest common
    prefix with `tokens` is reused. Raises ValueError for no tokens and for numbers that are none,
    ContextOverflowError when the context is full.
    """
    tokens = check_tokens(tokens, model.vocab_size)
    cache = model.new_cache() if cache is None else cache
    cache.check_fits(len(tokens))
    constraint = grammar.start() if grammar else None
    return _generated(model, tokens, Sampler(sampling or Sampling(), constraint), cache)


def _generated(
    model: LanguageModel, tokens: list[int], sampler: Sampler, cache: KVCache
) -> Iterator[Generated]:
    logits = model.prefill(tokens, cache)
    while True:
        found = sampler(logits, tokens)
        tokens.append(found.token)
        yield found
        if sampler.is_complete:
            return
        logits = model.decode([found.token], [cache])[0]


def check_step(tokens: Sequence[int], caches: Sequence[KVCache], vocab_size: int) -> list[int]:
    """The tokens as a list, if each of the caches can take one more.

    Raises ValueError for unknown tokens or another number of them than of caches,
    ContextOverflowError if a cache is full.
    """
    tokens = check_tokens(tokens, vocab_size)
    if len(tokens) != len(caches):
        raise ValueError(f"decode of {len(tokens)} tokens and {len(caches)} caches; give as many")
    for cache in caches:
        cache.check_fits(len(cache.tokens) + 1)
    return tokens


def check_tokens(tokens: Sequence[int], vocab_size: int) -> list[int]:
    """The tokens as a list. Raises ValueError if there are none, or for numbers that are none."""
    checked = [int(token) for token in tokens]
    if not checked:
        raise ValueError("there are no tokens to go on from; give at least one, such as BOS")
    for token in checked:
        if not 0 <= token < vocab_size:
            raise ValueError(f"{token} is no token; the model knows 0 to {vocab_size - 1}")
    return checked
