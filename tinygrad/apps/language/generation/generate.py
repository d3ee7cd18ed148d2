"""Generation for one sequence: prefill of the prompt, then decoding token by token.

Input: a model, the tokens of a prompt, sampling parameters. Output: `Generated` tokens, until the
context is full. Invariant: wherever the caller stops, a KV cache holds the tokens that it lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tinygrad.apps.language.generation.grammar import Grammar
from tinygrad.apps.language.generation.kv_cache import KVCache
from tinygrad.apps.language.generation.sampling import Generated, Logits, Sampler, Sampling
from tinygrad.tensor import Tensor


class LanguageModel(Protocol):
    """What generation asks of a model: `Transformer`, `Replicas` and `Leader` have it."""

    vocab_size: int
    max_context: int

    @property
    def trained_context(self) -> int:
        """The length of the sequences that the model was trained for."""

    def new_cache(self) -> KVCache:
        """An empty KV cache for one sequence."""

    def prefill(self, tokens: Sequence[int], cache: KVCache) -> Logits:
        """Make the cache hold these tokens; returns the logits (vocab,) after the last."""

    def decode(self, tokens: Sequence[int], caches: Sequence[KVCache]) -> Tensor | Sequence[Logits]:
        """Add one token to each cache; returns the logits (batch, vocab) after them."""


def generate(
    model: LanguageModel,
    tokens: Sequence[int],
    sampling: Sampling | None = None,
    cache: KVCache | None = None,
    grammar: Grammar | None = None,
) -> Iterator[Generated]:
    """The tokens that follow `tokens`, one by one, until the caller stops.

    With a `grammar`, they end where nothing can follow. The longest common prefix of `tokens` and
    the sequence in `cache` is not computed again. Raises ValueError for no or unknown tokens,
    ContextOverflowError when the context is full.
    """
    tokens = check_tokens(tokens, model.vocab_size)
    cache = model.new_cache() if cache is None else cache
    cache.check_fits(len(tokens))
    constraint = grammar.start() if grammar else None
    return _generate_tokens(model, tokens, Sampler(sampling or Sampling(), constraint), cache)


def _generate_tokens(
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
    """The tokens as a list, after checking that there is one for each cache and room for it.

    Raises ValueError for unknown tokens or a number that differs from that of the caches,
    ContextOverflowError if a cache is full.
    """
    tokens = check_tokens(tokens, vocab_size)
    if len(tokens) != len(caches):
        raise ValueError(f"decode of {len(tokens)} tokens and {len(caches)} caches; give as many")
    for cache in caches:
        cache.check_fits(len(cache.tokens) + 1)
    return tokens


def check_tokens(tokens: Sequence[int], vocab_size: int) -> list[int]:
    """The tokens as a list. Raises ValueError for none, and for ids outside the vocabulary."""
    checked = [int(token) for token in tokens]
    if not checked:
        raise ValueError("there are no tokens to continue; give at least one, such as BOS")
    for token in checked:
        if not 0 <= token < vocab_size:
            raise ValueError(f"{token} is not a token; the vocabulary is 0 to {vocab_size - 1}")
    return checked
