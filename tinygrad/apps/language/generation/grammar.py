"""Grammars that a text must follow: which tokens may come next.

In: a JSON schema, or rules, and the vocabulary of a model. Out: `Grammar`s, each of which starts a
`Constraint` for every text that must follow it. What stays true: whatever is drawn of the tokens
that are allowed, the text can be completed, and it may end only where it is complete. The package
llguidance does the parsing: https://github.com/guidance-ai/llguidance
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer
from tinygrad.apps.language.tokenizer.vocabulary import TokenizerError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
# a line and its indentation, or a space: small models would write spaces until they are stopped
WHITESPACE = r" |\n[ \t]{0,32}"
SILENT = 0


class GrammarError(ValueError):
    """A schema that is not valid, or asks for what cannot be watched over."""


class Constraint:
    """What one text may go on with."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher, self._vocab_size = matcher, vocab_size

    def allowed(self) -> Any:
        """The tokens that may come next, bool (vocab,). Raises RuntimeError if none may."""
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        found = np.unpackbits(mask, count=self._vocab_size, bitorder="little").view(bool)
        if self._matcher.is_error() or not found.any():
            why = _error(self._matcher) or "no token of the vocabulary goes on with the text"
            raise RuntimeError(f"the grammar of the reply cannot be followed: {why}")
        return found

    def take(self, token: int) -> None:
        """Goes on behind a token that is allowed."""
        self._matcher.consume_token(token)

    @property
    def is_complete(self) -> bool:
        """Whether nothing can follow but the end."""
        return self._matcher.is_stopped()


class Grammar:
    """What texts must look like; any number of texts can follow it at once."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher, self._vocab_size = matcher, vocab_size

    def start(self) -> Constraint:
        """The constraint of a text that begins."""
        return Constraint(self._matcher.deep_copy(), self._vocab_size)


class Grammars:
    """Makes grammars over the tokens of one model, of which there are `vocab_size`.

    >>> letters = {text: at for at, text in enumerate('{}":a1')}
    >>> grammars = Grammars(SimpleTokenizer(letters, {"<end>": 6}), 7)
    >>> constraint = grammars.of_schema({"const": "1a"}).start()
    >>> constraint.allowed().nonzero()[0], constraint.take(2), constraint.allowed().nonzero()[0]
    (array([2]), None, array([5]))
    """

    def __init__(self, tokenizer: SimpleTokenizer, vocab_size: int) -> None:
        self.tokenizer, self.vocab_size = tokenizer, vocab_size

    def of_schema(self, schema: Mapping[str, Any]) -> Grammar:
        """JSON that a schema describes. Raises GrammarError, and ImportError without llguidance."""
        if not isinstance(schema, Mapping):
            raise GrammarError(f"a JSON schema is an object, not {type(schema).__name__}")
        return self.of_rules(f"start: {json_rule(schema)}")

    def of_rules(self, rules: str) -> Grammar:
        """Text by rules in llguidance's form of Lark, from `start` on. Raises as `of_schema`."""
        from llguidance import LLMatcher

        matcher = LLMatcher(self._tokens, rules, log_level=SILENT)
        if matcher.is_error():
            raise GrammarError(_error(matcher))
        grammar = Grammar(matcher, self.vocab_size)
        try:
            grammar.start().allowed()
        except RuntimeError as error:
            raise GrammarError("there is no text of it") from error
        return grammar

    @functools.cached_property
    def _tokens(self) -> LLTokenizer:
        try:
            from llguidance import LLTokenizer, TokenizerWrapper
        except ImportError as error:
            raise ImportError(
                "JSON that is sure to be valid needs the package llguidance: "
                "pip install 'tinygrad-sharding[llm]'"
            ) from error
        spelled = TokenizerWrapper(_Spelled(self.tokenizer, self.vocab_size))
        ends = sorted(self.tokenizer.end_ids)
        return LLTokenizer(spelled, n_vocab=self.vocab_size, eos_token=ends or None)


def text_rule(text: str) -> str:
    """The rule for just this text."""
    return json.dumps(text, ensure_ascii=False)


def json_rule(schema: Mapping[str, Any], is_lenient: bool = False) -> str:
    """The rule for JSON of a schema; what is not known of it is left out if `is_lenient`.

    >>> json_rule({"const": 1}, is_lenient=True)[:20]
    '%json {"const": 1, "'
    """
    options = {"whitespace_pattern": WHITESPACE, "lenient": is_lenient}
    return f"%json {json.dumps({**schema, 'x-guidance': options})}"


def _error(matcher: LLMatcher) -> str:
    """What went wrong, without the place in our rules and the state of the parser."""
    text = matcher.get_error().rpartition("compile JSON schema: ")[2]
    return " ".join(re.split(r"\n<state>|\n *\d+ \| ", text)[0].split())


class _Spelled:
    """A tokenizer as llguidance wants it."""

    def __init__(self, tokenizer: SimpleTokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self.bos_token_id = tokenizer.bos_id
        self.eos_token_id = min(tokenizer.end_ids, default=tokenizer.eos_id)
        self.special_token_ids = list(tokenizer.control.values())
        self.tokens = [self._piece(number) for number in range(vocab_size)]

    def _piece(self, number: int) -> bytes:
        try:
            return self._tokenizer.piece(number, special=True)
        except TokenizerError:
            # models have rows for tokens that their vocabulary does not use
            return b""

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, special=False, starts_text=False)
