"""A fake model for tests of the engine and the server: replies follow a script."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from test.llm.vocabularies import spelling_of_bytes
from tinygrad import Tensor
from tinygrad.apps.language.generation.kv_cache import BLOCK_TOKENS, HostBlock, KVCache
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer

START, END, PYTHON_TAG = 256, 257, 258
CONTROL = {"<|im_start|>": START, "<|im_end|>": END, "<|python_tag|>": PYTHON_TAG}
VOCABULARY = 259

# maps the tokens of a prompt to those of the reply
Script = Callable[[list[int]], Sequence[int]]


def tokenizer() -> SimpleTokenizer:
    """A tokenizer with a token for each byte, and several control tokens."""
    bytes_ = {spelling_of_bytes(bytes([byte])): byte for byte in range(256)}
    return SimpleTokenizer(bytes_, CONTROL)


def checksum(tokens: Sequence[int]) -> str:
    """A text that depends on all tokens."""
    value = 7
    for token in tokens:
        value = (value * 131 + token + 1) % 1_000_003
    return f"sum{value}"


def answers_with_checksum(tokens: list[int]) -> list[int]:
    return list(checksum(tokens).encode())


def always_replies(text: str) -> Script:
    """A script with a constant reply."""
    return lambda tokens: tokenizer().encode(text)


class Endless(Sequence[int]):
    """The tokens of a reply that does not end: always the same one."""

    def __init__(self, token: int) -> None:
        self.token = token

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, position: Any) -> Any:
        return self.token


def replies_for_ever(letter: str) -> Script:
    """A script whose reply ends only at a limit."""
    return lambda tokens: Endless(ord(letter))


@dataclass
class FakeCache(KVCache):
    """A cache that also holds the scripted reply, and the position where it starts."""

    planned: Sequence[int] = ()
    planned_from: int = 0
    copied: int = 0
    written: int = 0

    def copy_prefix(self, source: KVCache, count: int) -> None:
        self.tokens = source.tokens[:count]

    def copy_block(self, start: int) -> HostBlock:
        self.copied += 1
        return HostBlock(Tensor(self.tokens[start : start + BLOCK_TOKENS]))

    def write_block(self, start: int, block: HostBlock) -> None:
        self.written += 1


class FakeModel:
    """Follows `script`, then emits END. A step takes `step_s`; `fails` is raised once, if set."""

    vocab_size = VOCABULARY

    def __init__(
        self, script: Script = answers_with_checksum, max_context: int = 2048, step_s: float = 0
    ) -> None:
        self.script, self.max_context, self.step_s = script, max_context, step_s
        self.trained: int | None = None
        self.fails: Exception | None = None
        self.read: list[int] = []
        self.batches: list[int] = []
        self.caches: list[FakeCache] = []

    @property
    def trained_context(self) -> int:
        return self.trained or self.max_context

    def new_cache(self) -> FakeCache:
        self.caches.append(FakeCache(Tensor.empty(1), self.max_context))
        return self.caches[-1]

    def prefill(self, tokens: Sequence[int], cache: KVCache) -> Tensor:
        assert isinstance(cache, FakeCache)
        self._step()
        kept = cache.keep_prefix(list(tokens)[:-1])
        self.read.append(len(tokens) - kept)
        cache.tokens = list(tokens)
        cache.planned, cache.planned_from = self.script(list(tokens)), len(tokens)
        return self._logits([cache])[0]

    def decode(self, tokens: Sequence[int], caches: Sequence[KVCache]) -> Tensor:
        self._step()
        assert len({id(cache) for cache in caches}) == len(caches) == len(tokens)
        self.batches.append(len(caches))
        for token, cache in zip(tokens, caches, strict=True):
            cache.check_fits(len(cache.tokens) + 1)
            cache.tokens.append(token)
        return self._logits(caches)

    def _step(self) -> None:
        time.sleep(self.step_s)
        if self.fails is not None:
            error, self.fails = self.fails, None
            raise error

    def _logits(self, caches: Sequence[KVCache]) -> Tensor:
        rows = numpy.zeros((len(caches), VOCABULARY), numpy.float32)
        for row, cache in enumerate(caches):
            assert isinstance(cache, FakeCache)
            said = len(cache.tokens) - cache.planned_from
            rows[row, cache.planned[said] if said < len(cache.planned) else END] = 20
        return Tensor(rows)
