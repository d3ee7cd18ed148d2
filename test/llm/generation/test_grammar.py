"""Structured output: every sampled text is JSON of the schema, and ends when complete."""

from __future__ import annotations

import json
import os
import signal
import sys
from enum import Enum
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from test.llm.fake_model import VOCABULARY, tokenizer
from test.llm.vocabularies import metadata_of, trained
from tinygrad.apps.language.generation.grammar import (
    ANY_OBJECT,
    Grammar,
    GrammarError,
    Grammars,
    json_rules,
)
from tinygrad.apps.language.generation.grammar_compiler import GrammarCompiler
from tinygrad.apps.language.generation.grammar_process import NICENESS, PROCESS, GrammarProcess
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer

pytest.importorskip("llguidance")
pydantic = pytest.importorskip("pydantic")


class Kind(Enum):
    TOWN = "town"
    QUOTED = 'a "quoted"\nüß'


class Closed(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    model_config = pydantic.ConfigDict(extra="forbid")


class Node(Closed):
    value: Annotated[int, pydantic.Field(ge=-5, le=12)]
    next: Node | None = None


class Everything(Closed):
    kind: Kind
    constant: Literal["one"]
    text: Annotated[str, pydantic.Field(max_length=6)]
    number: Annotated[float, pydantic.Field(ge=0, le=1)]
    either: bool | None
    nodes: Annotated[list[Node], pydantic.Field(min_length=1, max_length=2)]
    left_out: int = 0


def drawn(grammar: Grammar, spelled: SimpleTokenizer, seed: int, most: int = 600) -> str:
    """A text of tokens sampled from the allowed ones."""
    random, constraint, tokens = np.random.default_rng(seed), grammar.start(), list[int]()
    while not constraint.is_complete:
        assert len(tokens) < most
        token = int(random.choice(constraint.allowed().nonzero()[0]))
        constraint.advance(token)
        if token in spelled.end_ids:
            break
        tokens.append(token)
    return spelled.decode(tokens)


@pytest.mark.parametrize("kind", ["bytes", "SentencePiece"])
def test_any_sampled_text_is_json_of_the_schema(kind: str) -> None:
    if kind == "bytes":
        spelled, size = tokenizer(), VOCABULARY
    else:
        spelled, size = SimpleTokenizer.from_gguf_kv(metadata_of(trained(True), None)), 700
    grammar = Grammars(spelled, size).of_schema(Everything.model_json_schema())
    found = [Everything.model_validate_json(drawn(grammar, spelled, seed)) for seed in range(12)]
    assert {one.kind for one in found} == set(Kind)
    assert {one.either for one in found} == {True, False, None}
    assert any(one.nodes[0].next is not None for one in found)


def test_a_text_ends_only_where_it_is_complete() -> None:
    grammars = Grammars(tokenizer(), VOCABULARY)
    number = grammars.of_schema({"type": "integer"}).start()
    ends = sorted(tokenizer().end_ids)
    for text, may_end in (("-", False), ("1", True), ("2", True)):
        assert not number.is_complete
        number.advance(ord(text))
        assert number.allowed()[ends].all() == may_end
    object_ = grammars.of_schema(ANY_OBJECT).start()
    for text in '{"a":[{}]}':
        assert not object_.allowed()[ends].any() and object_.allowed()[ord(text)]
        object_.advance(ord(text))
    assert object_.is_complete


@pytest.mark.parametrize(("limits", "digits"), [({}, 18), ({"minimum": 0}, 40)])
def test_integers_have_18_digits_unless_the_schema_says_more(limits: Any, digits: int) -> None:
    number = Grammars(tokenizer(), VOCABULARY).of_schema({"type": "integer", **limits}).start()
    for _ in range(digits):
        assert number.allowed()[ord("7")]
        number.advance(ord("7"))
    assert number.is_complete == (digits == 18)


@pytest.mark.parametrize(
    ("pattern", "text", "follows"),
    [
        ("^ab$", '{"ab": 1', "}"),
        ("^(ab|c)$", '{"ab": 1, "c": 2', "}"),
        ("^(?:ab|c)$", '{"ab": 1', ",}"),
        ("^a", '{"ab": 1, "ax": 2', ",}"),
        ("^ab$|^a", '{"ab": 1, "ax": 2', ",}"),
    ],
)
@pytest.mark.parametrize("required", [[], ["ab"]])
@pytest.mark.parametrize("listed", [{}, {"ab": {"type": "integer", "maximum": 1}}])
def test_no_name_of_a_pattern_follows_the_last(
    pattern: str, text: str, follows: str, required: list[str], listed: Any
) -> None:
    schema = {"type": "object", "patternProperties": {pattern: {"type": "integer"}}}
    schema |= {"additionalProperties": False, "properties": listed, "required": required}
    state = Grammars(tokenizer(), VOCABULARY).of_schema(schema).start()
    for character in text:
        assert state.allowed()[ord(character)]
        state.advance(ord(character))
    allowed = state.allowed()
    assert "".join(one for one in ",}" if allowed[ord(one)]) == follows


def test_properties_may_have_the_names_of_keywords() -> None:
    properties = {"patternProperties": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    state = Grammars(tokenizer(), VOCABULARY).of_schema(schema).start()
    for character in '{"':
        state.advance(ord(character))
    assert state.allowed().nonzero()[0].tolist() == [ord("p")]
    for character in 'patternProperties":1':
        assert state.allowed()[ord(character)]
        state.advance(ord(character))


def test_a_dead_end_has_no_name_of_a_state_in_its_message() -> None:
    schema = {"type": "object", "patternProperties": {"^a[b]$": {"type": "null"}}}
    schema |= {"additionalProperties": False, "required": ["ab"]}
    state = Grammars(tokenizer(), VOCABULARY).of_schema(schema).start()
    with pytest.raises(GrammarError, match="followed: no token of the vocabulary continues"):
        for character in '{"ab":null, ':
            state.allowed()
            state.advance(ord(character))
        state.allowed()


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "multipleOf": 99999999},
        {"type": "number", "multipleOf": 99999.7},
        {"allOf": [{"type": "integer", "multipleOf": number} for number in (9973, 9967)]},
    ],
)
def test_multiples_that_take_long_are_refused_and_the_next_rules_compile(
    schema: Any,
) -> None:
    vocabulary = Grammars(tokenizer(), VOCABULARY).vocabulary
    with pytest.raises(GrammarError, match="to compile"):
        PROCESS.check(json_rules(schema), vocabulary)
    process = PROCESS._process
    PROCESS.check(json_rules({"const": 1}), vocabulary)
    # only the trial was killed
    assert PROCESS._process is process


def test_an_interrupt_does_not_end_the_process_that_compiles() -> None:
    process = GrammarProcess()
    process._start()
    assert process._process is not None and process._process.pid is not None
    os.kill(process._process.pid, signal.SIGINT)
    process.check(json_rules({"const": 1}), Grammars(tokenizer(), VOCABULARY).vocabulary)
    assert process._process.is_alive()
    process._kill()


def test_sequences_of_one_grammar_are_independent() -> None:
    grammar = Grammars(tokenizer(), VOCABULARY).of_schema({"const": "ab"})
    first, second = grammar.start(), grammar.start()
    first.advance(ord('"'))
    assert first.allowed().nonzero()[0].tolist() == [ord("a")]
    assert second.allowed().nonzero()[0].tolist() == [ord('"')]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "text"}, "Invalid type: text"),
        ({"$ref": "#/$defs/none"}, r"'/\$defs/none' does not exist"),
        ({"not": {"type": "string"}}, r'Unimplemented keys: \["not"\]'),
        ({"type": "integer", "minimum": 5, "maximum": 2}, "Unsatisfiable"),
        ({"type": "string", "pattern": "(("}, "regex parse error.*unclosed"),
        ({"$ref": "#"}, "no text satisfies it"),
        (["object"], "is an object, not list"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_an_error(schema: Any, message: str) -> None:
    with pytest.raises(GrammarError, match=message) as caught:
        Grammars(tokenizer(), VOCABULARY).of_schema(schema)
    assert len(str(caught.value)) < 200


def test_a_text_that_no_token_continues_is_an_error() -> None:
    letters = SimpleTokenizer({'"': 0, "b": 1}, {"<end>": 2})
    constraint = Grammars(letters, 3).of_schema({"enum": ["ba", "bc"]}).start()
    for token in (0, 1):
        assert constraint.allowed().nonzero()[0].tolist() == [token]
        constraint.advance(token)
    with pytest.raises(GrammarError, match="cannot be followed"):
        constraint.allowed()


def test_a_schema_cannot_change_how_json_is_written() -> None:
    options = {"whitespace_flexible": False, "item_separator": "//"}
    schema = {"type": "array", "minItems": 2, "items": {"const": 1}, "x-guidance": options}
    grammar = Grammars(tokenizer(), VOCABULARY).of_schema(schema)
    assert json.loads(drawn(grammar, tokenizer(), 1))[:2] == [1, 1]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities on Linux alone")
def test_grammars_of_requests_compile_at_a_low_priority() -> None:
    compiler = GrammarCompiler(tokenizer(), VOCABULARY)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    compiler.thread.submit(compiler.compile, json_rules({"const": "a"})).result()
    lowered = compiler.thread.submit(os.getpriority, os.PRIO_PROCESS, 0).result()
    assert PROCESS._process is not None and PROCESS._process.pid is not None
    assert os.getpriority(os.PRIO_PROCESS, PROCESS._process.pid) == lowered
    compiler.close()
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
    assert lowered == max(before, NICENESS)
