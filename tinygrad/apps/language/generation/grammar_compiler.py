"""Compiles the grammars of requests, each for a bounded time, and keeps the last ones.

Input: rules from outside. Output: `Grammar`s. Invariant: a request without a grammar never waits
for one.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from tinygrad.apps.language.generation.grammar import Grammar, Grammars, Rules
from tinygrad.apps.language.generation.grammar_process import PROCESS, lower_priority
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer

KEPT = 32


class GrammarCompiler:
    """Compiles grammars for the vocabulary of one model, one at a time.

    `thread` is for callers that must not wait.
    """

    def __init__(self, tokenizer: SimpleTokenizer, vocab_size: int) -> None:
        self.thread = ThreadPoolExecutor(1, "grammars")
        self._is_prepared = False
        self._grammars = Grammars(tokenizer, vocab_size)
        # least recently used first
        self._kept: OrderedDict[Rules, Grammar] = OrderedDict()

    def compile(self, rules: Rules) -> Grammar:
        """The grammar of rules, on `thread` alone. Raises GrammarError, ImportError."""
        grammar = self._kept.get(rules)
        if grammar is None:
            self._prepare()
            PROCESS.check(rules, self._grammars.vocabulary)
            grammar = self._kept[rules] = self._grammars.of_rules(rules)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(rules)
        return grammar

    def _prepare(self) -> None:
        """Start the process at the normal priority, so that it starts soon on a busy machine."""
        if self._is_prepared:
            return
        PROCESS.prepare(self._grammars.vocabulary)
        self._is_prepared = True
        # elsewhere threads have none
        if sys.platform == "linux":
            lower_priority()

    def close(self) -> None:
        """End the thread."""
        self.thread.shutdown(cancel_futures=True)
