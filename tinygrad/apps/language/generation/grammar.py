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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer
from tinygrad.apps.language.tokenizer.vocabulary import TokenizerError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
# a line break with indentation, or one space: small models repeat white space without end
WHITESPACE = r" |\n[ \t]{0,32}"
SILENT = 0
# small models repeat digits without end
MAX_DIGITS = 18
# keywords that say which integers there are, and those whose values are data
SAID_OF_INTEGERS = {
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "enum",
    "const",
}
VALUES = {"enum", "const", "default", "examples"}
# a pattern of one name, or of several
LITERAL_NAMES = re.compile(r"\^(?:([\w -]+)|\((?:\?:)?([\w -]+(?:\|[\w -]+)*)\))\$")
# of llguidance, where no token can follow
STATES = {"NoExtension", "NoExtensionBias"}


class GrammarError(ValueError):
    """A grammar that is not valid, cannot be enforced, or leaves no token to sample."""


@dataclass(frozen=True)
class Rules:
    """A grammar as a text: in llguidance's Lark dialect, in GBNF, or a regular expression."""

    text: str
    syntax: Literal["lark", "gbnf", "regex"] = "lark"

    def as_lark(self) -> str:
        """The text for llguidance. Raises GrammarError."""
        if self.syntax == "lark":
            return self.text
        from llguidance import grammar_from
        from llguidance.gbnf_to_lark import gbnf_to_lark

        if self.syntax == "regex":
            return grammar_from("regex", self.text)
        try:
            return gbnf_to_lark(self.text)
        except Exception as error:
            # its parser raises whatever it meets
            raise GrammarError(f"it is not GBNF: {error}") from error


class Constraint:
    """The state of one sequence in a grammar."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher, self._vocab_size = matcher, vocab_size

    def allowed(self) -> Any:
        """The mask of allowed tokens, bool (vocab,). Raises GrammarError if it is empty."""
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        found = np.unpackbits(mask, count=self._vocab_size, bitorder="little").view(bool)
        if self._matcher.is_error() or not found.any():
            why = _error(self._matcher) or "no token of the vocabulary continues the text"
            raise GrammarError(f"the grammar of the reply cannot be followed: {why}")
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
        return self.of_rules(json_rules(schema))

    def of_rules(self, rules: Rules) -> Grammar:
        """The grammar of rules. Raises as `of_schema`."""
        return compiled(rules, self._tokens, self.vocab_size)

    @functools.cached_property
    def vocabulary(self) -> VocabularyBytes:
        """The bytes of the model's tokens."""
        return VocabularyBytes(self.tokenizer, self.vocab_size)

    @functools.cached_property
    def _tokens(self) -> LLTokenizer:
        return self.vocabulary.tokens_of_llguidance()


def compiled(rules: Rules, tokens: LLTokenizer, vocab_size: int) -> Grammar:
    """The grammar of rules. Raises GrammarError."""
    from llguidance import LLMatcher

    matcher = LLMatcher(tokens, rules.as_lark(), log_level=SILENT)
    if matcher.is_error():
        raise GrammarError(_error(matcher))
    grammar = Grammar(matcher, vocab_size)
    try:
        grammar.start().allowed()
    except GrammarError as error:
        raise GrammarError("no text satisfies it") from error
    return grammar


def text_rule(text: str) -> str:
    """The rule of a literal text."""
    return json.dumps(text, ensure_ascii=False)


def json_rules(schema: Mapping[str, Any]) -> Rules:
    """The rules of JSON by a schema."""
    return Rules(f"start: {json_rule(schema)}")


def json_rule(schema: Mapping[str, Any], is_lenient: bool = False) -> str:
    """The rule of JSON by a schema; `is_lenient` ignores keywords that are not supported.

    >>> json_rule({"const": 1}, is_lenient=True)[:20]
    '%json {"const": 1, "'
    """
    options = {"whitespace_pattern": WHITESPACE, "lenient": is_lenient}
    return f"%json {json.dumps({**_prepared(schema), 'x-guidance': options})}"


def _prepared(schema: Any) -> Any:
    """A schema without what makes replies endless, or llguidance lead into dead ends."""
    if isinstance(schema, list):
        return [_prepared(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = {key: one if key in VALUES else _prepared(one) for key, one in schema.items()}
    if schema.get("type") == "integer" and SAID_OF_INTEGERS.isdisjoint(schema):
        inner |= {"minimum": 1 - 10**MAX_DIGITS, "maximum": 10**MAX_DIGITS - 1}
    return _with_named_patterns(inner)


def _with_named_patterns(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose patterns of one name, or of several, are properties.

    Once each name was there, llguidance would let another begin, which no text can be.
    """
    patterns, properties = schema.get("patternProperties"), schema.get("properties", {})
    if not isinstance(patterns, dict) or not isinstance(properties, dict):
        return schema
    literals = {pattern: LITERAL_NAMES.fullmatch(pattern) for pattern in patterns}
    listed = dict(properties)
    for pattern, literal in literals.items():
        for name in (literal[1] or literal[2]).split("|") if literal else ():
            one = patterns[pattern]
            listed[name] = {"allOf": [listed[name], one]} if name in listed else one
    others = {pattern: one for pattern, one in patterns.items() if not literals[pattern]}
    # the object may also be one of properties that have the names of keywords
    found = {"properties": listed, "patternProperties": others}
    return schema if len(others) == len(patterns) else {**schema, **found}


def _error(matcher: LLMatcher) -> str:
    """The error of llguidance, without the position in our rules and the state of its parser.

    It is empty if there is only the name of a state.
    """
    text = matcher.get_error().rpartition("compile JSON schema: ")[2]
    error = " ".join(re.split(r"\n<state>|\n *\d+ \| ", text)[0].split())
    return "" if error in STATES else error


class VocabularyBytes:
    """The bytes of each token, in the interface of tokenizers that llguidance expects.

    It can be pickled; then a text is encoded byte by byte.
    """

    def __init__(self, tokenizer: SimpleTokenizer, vocab_size: int) -> None:
        self._tokenizer: SimpleTokenizer | None = tokenizer
        self.bos_token_id = tokenizer.bos_id
        self.end_ids = sorted(tokenizer.end_ids)
        self.eos_token_id = self.end_ids[0] if self.end_ids else tokenizer.eos_id
        self.special_token_ids = list(tokenizer.control.values())
        self.tokens = [_piece(tokenizer, number) for number in range(vocab_size)]

    def tokens_of_llguidance(self) -> LLTokenizer:
        """The vocabulary as llguidance has it. Raises ImportError without llguidance."""
        try:
            from llguidance import LLTokenizer, TokenizerWrapper
        except ImportError as error:
            raise ImportError(
                "structured output needs the package llguidance: "
                "pip install 'tinygrad-sharding[llm]'"
            ) from error
        ends = self.end_ids or None
        return LLTokenizer(TokenizerWrapper(self), n_vocab=len(self.tokens), eos_token=ends)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_tokenizer": None}

    def __call__(self, text: str) -> list[int]:
        if self._tokenizer is not None:
            return self._tokenizer.encode(text, special=False, starts_text=False)
        numbers = {piece: number for number, piece in enumerate(self.tokens)}
        pieces = (bytes([byte]) for byte in text.encode())
        return [numbers[piece] for piece in pieces if piece in numbers]


def _piece(tokenizer: SimpleTokenizer, number: int) -> bytes:
    try:
        return tokenizer.piece(number, special=True)
    except TokenizerError:
        # the logits of a model may have more rows than the vocabulary has tokens
        return b""
