"""Constrained decoding: the tokens that a grammar allows next.

Input: a JSON schema, or rules, and the vocabulary of a model. Output: `Grammar`s, each of which
starts a `Constraint` for every sequence. Invariant: whichever allowed tokens are sampled, the text
can be completed, and it can end only where it is complete. The package llguidance does the parsing:
https://github.com/guidance-ai/llguidance
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
# a line break with indentation, or one space: small models repeat white space without end
WHITESPACE = r" |\n[ \t]{0,32}"
SILENT = 0


class GrammarError(ValueError):
    """A schema that is not valid, or has a keyword that cannot be enforced."""


class Constraint:
    """The state of one sequence in a grammar."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher, self._vocab_size = matcher, vocab_size

    def allowed(self) -> Any:
        """The mask of allowed tokens, bool (vocab,). Raises RuntimeError if it is empty."""
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        found = np.unpackbits(mask, count=self._vocab_size, bitorder="little").view(bool)
        if self._matcher.is_error() or not found.any():
            why = _error(self._matcher) or "no token of the vocabulary continues the text"
            raise RuntimeError(f"the grammar of the reply cannot be followed: {why}")
        return found

    def advance(self, token: int) -> None:
        """Append a token that is allowed."""
        self._matcher.consume_token(token)

    @property
    def is_complete(self) -> bool:
        """Whether only the end can follow."""
        return self._matcher.is_stopped()


class Grammar:
    """A compiled grammar, for any number of sequences at once."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher, self._vocab_size = matcher, vocab_size

    def start(self) -> Constraint:
        """The constraint at the start of a sequence."""
        return Constraint(self._matcher.deep_copy(), self._vocab_size)


class Grammars:
    """Compiles grammars for the vocabulary of one model, of `vocab_size` tokens.

    >>> letters = {text: at for at, text in enumerate('{}":a1')}
    >>> grammars = Grammars(SimpleTokenizer(letters, {"<end>": 6}), 7)
    >>> constraint = grammars.of_schema({"const": "1a"}).start()
    >>> constraint.allowed().nonzero()[0], constraint.advance(2), constraint.allowed().nonzero()[0]
    (array([2]), None, array([5]))
    """

    def __init__(self, tokenizer: SimpleTokenizer, vocab_size: int) -> None:
        self.tokenizer, self.vocab_size = tokenizer, vocab_size

    def of_schema(self, schema: Mapping[str, Any]) -> Grammar:
        """The grammar of JSON by a schema. Raises GrammarError, ImportError without llguidance."""
        if not isinstance(schema, Mapping):
            raise GrammarError(f"a JSON schema is an object, not {type(schema).__name__}")
        return self.of_rules(f"start: {json_rule(schema)}")

    def of_rules(self, rules: str) -> Grammar:
        """The grammar of rules in llguidance's Lark dialect. Raises as `of_schema`."""
        from llguidance import LLMatcher

        matcher = LLMatcher(self._tokens, rules, log_level=SILENT)
        if matcher.is_error():
            raise GrammarError(_error(matcher))
        grammar = Grammar(matcher, self.vocab_size)
        try:
            grammar.start().allowed()
        except RuntimeError as error:
            raise GrammarError("no text satisfies it") from error
        return grammar

    @functools.cached_property
    def _tokens(self) -> LLTokenizer:
        try:
            from llguidance import LLTokenizer, TokenizerWrapper
        except ImportError as error:
            raise ImportError(
                "structured output needs the package llguidance: "
                "pip install 'tinygrad-sharding[llm]'"
            ) from error
        spelled = TokenizerWrapper(_VocabularyBytes(self.tokenizer, self.vocab_size))
        ends = sorted(self.tokenizer.end_ids)
        return LLTokenizer(spelled, n_vocab=self.vocab_size, eos_token=ends or None)


def text_rule(text: str) -> str:
    """The rule of a literal text."""
    return json.dumps(text, ensure_ascii=False)


def json_rule(schema: Mapping[str, Any], is_lenient: bool = False) -> str:
    """The rule of JSON by a schema; `is_lenient` ignores keywords that are not supported.

    >>> json_rule({"const": 1}, is_lenient=True)[:20]
    '%json {"const": 1, "'
    """
    options = {"whitespace_pattern": WHITESPACE, "lenient": is_lenient}
    return f"%json {json.dumps({**schema, 'x-guidance': options})}"


def _error(matcher: LLMatcher) -> str:
    """The error of llguidance, without the position in our rules and the state of its parser."""
    text = matcher.get_error().rpartition("compile JSON schema: ")[2]
    return " ".join(re.split(r"\n<state>|\n *\d+ \| ", text)[0].split())


class _VocabularyBytes:
    """The interface of tokenizers that llguidance expects."""

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
            # the logits of a model may have more rows than the vocabulary has tokens
            return b""

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, special=False, starts_text=False)
