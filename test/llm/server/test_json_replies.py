"""JSON replies and tool calls, as received by the official client, for any model output."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest

from test.llm.fake_model import FakeModel, Script, always_replies
from test.llm.serving import TEMPLATE, running, served
from tinygrad.apps.language.chat.template import ChatTemplate
from tinygrad.apps.language.files.catalogue import CATALOGUE
from tinygrad.apps.language.generation.engine import Engine
from tinygrad.apps.language.model.transformer import Transformer
from tinygrad.apps.language.server.service import Service
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer

pytest.importorskip("llguidance")
openai = pytest.importorskip("openai")
pydantic = pytest.importorskip("pydantic")

TIMEOUT_S = 120
USER = {"role": "user", "content": "Hi"}
BARE = "{% if tools %}{{ messages[0].content }}{% endif %}"
JSON_OBJECT = {"type": "json_object"}


class River(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    name: Annotated[str, pydantic.Field(max_length=16)]
    length_km: Annotated[int, pydantic.Field(ge=0, le=10_000)]


class City(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    name: Annotated[str, pydantic.Field(max_length=16)]
    kind: Literal["capital", "town"]
    height_m: float | None
    rivers: Annotated[list[River], pydantic.Field(min_length=1, max_length=2)]


PARIS = (
    '{"name": "Paris", "kind": "capital", "height_m": 35.5, '
    '"rivers": [{"name": "Seine", "length_km": 777}]}'
)


@contextlib.contextmanager
def client_for(script: Script, template: str = TEMPLATE) -> Iterator[Any]:
    """A client of a server whose model follows a script."""
    with served(FakeModel(script), template) as site, site.client() as client:
        yield client


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("add", a={"type": "integer"}), tool("greet", who={"enum": ["Ada", "Bob"]})]


def asked(script: Script, template: str = TEMPLATE, **request: Any) -> Any:
    """The only choice of the response to a request."""
    with client_for(script, template) as client:
        create = client.chat.completions.create
        return create(model="fake", messages=[USER], **request).choices[0]


def test_content_is_json_of_the_schema() -> None:
    with client_for(always_replies(PARIS)) as client:
        parse = client.chat.completions.parse
        choice = parse(model="fake", messages=[USER], response_format=City).choices[0]
    assert choice.message.content == PARIS
    assert choice.message.parsed == City.model_validate_json(PARIS)
    assert choice.finish_reason == "stop"


@pytest.mark.slow
def test_tokens_outside_the_schema_are_never_sampled() -> None:
    with client_for(always_replies("Sure! The city is Paris, which")) as client:
        completions = client.chat.completions

        def ask(seed: int) -> Any:
            wanted = {"temperature": 1, "seed": seed, "n": 2}
            return completions.parse(model="fake", messages=[USER], response_format=City, **wanted)

        # several at once, each with its own grammar state
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            found = [
                choice.message
                for answer in pool.map(ask, (0, 2, 4, 6))
                for choice in answer.choices
            ]
    assert all(isinstance(message.parsed, City) for message in found)
    assert len({message.content for message in found}) == len(found)


def test_json_streams_to_its_end_or_the_maximum_length() -> None:
    with client_for(always_replies('{"a": [1, "é"]} and more')) as client:
        create = client.chat.completions.create
        request = {"model": "fake", "messages": [USER], "response_format": JSON_OBJECT}
        chunks = list(create(**request, stream=True))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert (text, chunks[-1].choices[0].finish_reason) == ('{"a": [1, "é"]}', "stop")
        short = create(**request, max_tokens=5).choices[0]
        assert (short.message.content, short.finish_reason) == ('{"a":', "length")
        stopped = create(**request, stop=["1"]).choices[0]
        assert (stopped.message.content, stopped.finish_reason) == ('{"a": [', "stop")
        completions = client.completions
        answer = completions.create(
            model="fake", prompt="a", max_tokens=99, extra_body={"response_format": JSON_OBJECT}
        )
        assert json.loads(answer.choices[0].text) == {"a": [1, "é"]}


@pytest.mark.slow
def test_with_tools_a_reply_is_json_or_a_call() -> None:
    schema = {"name": "city", "schema": City.model_json_schema()}
    request = {"tools": TOOLS, "response_format": {"type": "json_schema", "json_schema": schema}}
    said = asked(always_replies(PARIS), **request)
    assert (said.message.content, said.message.tool_calls) == (PARIS, None)
    for template, call in (
        (TEMPLATE, '<tool_call>\n{"name": "greet", "arguments": {"who": "Bob"}}'),
        (
            "{% if tools %}[TOOL_CALLS]{% endif %}",
            '[TOOL_CALLS][{"name": "greet", "arguments": {"who": "Bob"}}]',
        ),
        (BARE, '{"name": "greet", "parameters": {"who": "Bob"}}'),
    ):
        called = asked(always_replies(call), template, **request)
        assert called.finish_reason == "tool_calls"
        assert called.message.tool_calls[0].function.arguments == '{"who": "Bob"}'
    # if calls have no marker, JSON is one only with the name of a tool and its arguments
    said = asked(always_replies(PARIS), BARE, **request)
    assert (said.message.content, said.message.tool_calls) == (PARIS, None)


def test_json_that_names_no_tool_is_content() -> None:
    recipe = '{"name": "soup", "parameters": {"salt": true}}'
    for form in (JSON_OBJECT, {"type": "text"}):
        said = asked(always_replies(recipe), BARE, tools=TOOLS, response_format=form)
        assert (said.message.content, said.message.tool_calls) == (recipe, None)


@pytest.mark.parametrize("choice", ["required", {"function": {"name": "add"}}])
def test_a_required_call_has_arguments_of_its_tool(choice: Any) -> None:
    if choice != "required":
        choice = {"type": "function", **choice}
    for said in ("I would rather not", ' "greet", "arguments": {"who": "Eve"}}', ' {"b": "one"}}'):
        request = {"tools": TOOLS, "tool_choice": choice, "temperature": 1, "seed": 3}
        found = asked(always_replies(said), **request).message
        function = found.tool_calls[0].function
        arguments = json.loads(function.arguments)
        if function.name == "add":
            assert list(arguments) == ["a"] and isinstance(arguments["a"], int)
        else:
            assert choice == "required" and arguments["who"] in ("Ada", "Bob")


def test_an_unsupported_schema_is_an_error() -> None:
    schema = {"name": "wrong", "schema": {"type": "text"}}
    with pytest.raises(openai.BadRequestError, match="cannot be followed: Invalid type: text") as e:
        asked(always_replies(""), response_format={"type": "json_schema", "json_schema": schema})
    assert e.value.param == "response_format"
    with pytest.raises(openai.BadRequestError, match="cannot be followed: .*object") as e:
        asked(always_replies(""), tools=[tool("f", a=3)], tool_choice="required")
    assert e.value.param == "tools"


def test_an_error_names_the_field_of_the_grammar() -> None:
    for field, value, param in (
        ("guided_regex", "[", "guided_regex"),
        ("guided_json", {"type": "text"}, "guided_json"),
        ("structured_outputs", {"regex": "["}, "structured_outputs.regex"),
        ("grammar", "root ::= [", "grammar"),
    ):
        with pytest.raises(openai.BadRequestError, match="cannot be followed") as e:
            asked(always_replies(""), extra_body={field: value})
        assert e.value.param == param
    with pytest.raises(openai.BadRequestError, match="guided_regex and grammar") as e:
        asked(always_replies(""), extra_body={"guided_regex": "a", "grammar": "start: 'a'"})
    assert e.value.param == "grammar"


@pytest.mark.slow
def test_a_real_model_returns_json_and_calls() -> None:
    model, metadata = Transformer.from_gguf(CATALOGUE["smollm2:135m"].path(), max_context=512)
    tokenizer = SimpleTokenizer.from_gguf_kv(metadata)
    template = ChatTemplate.from_gguf_kv(metadata, tokenizer)
    service = Service("smollm2", Engine(model, max_running=3), tokenizer, template)
    messages = [{"role": "user", "content": "Describe Paris, the capital of France, as JSON."}]
    with running(service) as site, site.client() as client:
        completions = client.chat.completions

        def ask(seed: int) -> Any:
            wanted = {"temperature": 0.8, "seed": seed, "response_format": City}
            return completions.parse(model="smollm2", messages=messages, **wanted)

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            choices = [answer.choices[0] for answer in pool.map(ask, range(6))]
        for choice in choices:
            assert choice.finish_reason == "stop" and choice.message.parsed.rivers
        stream = completions.create(
            model="smollm2", messages=messages, tools=TOOLS, tool_choice="required", stream=True
        )
        calls = [call for chunk in stream for call in chunk.choices[0].delta.tool_calls or ()]
    assert calls[0].function.name in ("add", "greet")
    assert len(json.loads("".join(call.function.arguments for call in calls))) == 1
