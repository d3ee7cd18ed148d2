"""API requests: any JSON becomes a request with typed values, or an error."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.llm.fake_model import tokenizer
from tinygrad.apps.language.chat.template import ChatError, ChatTemplate, normalize_messages
from tinygrad.apps.language.generation.sampling import Sampling
from tinygrad.apps.language.server.parameters import CHAT, COMPLETION, REFUSED, WITHOUT_EFFECT
from tinygrad.apps.language.server.request_fields import ROLES, ApiError
from tinygrad.apps.language.server.requests import chat_request, completion_request, parse_json

NAMES = (
    *("model", "messages", "prompt", "temperature", "top_p", "top_k", "min_p", "seed", "n", "stop"),
    *("max_tokens", "max_completion_tokens", "logprobs", "top_logprobs", "stream", "tools"),
    *("stream_options", "tool_choice", "response_format", "logit_bias", "reasoning_effort"),
    *("chat_template_kwargs", "repetition_penalty", "unheard_of"),
)
INNER = ("role", "content", "type", "text", "function", "name", "arguments", "tool_calls", "id")
WORDS = (*ROLES, "text", "function", "auto", "none", "{}", "{", "", "<|im_end|>", "\ud800")
SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(-2, 5), st.floats(0, 2), st.sampled_from(WORDS)),
    st.sampled_from([10**400, -(10**30), 1e308, 1.5]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER), inner, max_size=4)
    ),
    max_leaves=12,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(ROLES), "content": st.sampled_from(WORDS)},
    optional={"tool_calls": VALUES, "name": VALUES, "tool_call_id": VALUES},
)
BODIES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)
CHATS = st.builds(
    lambda body, messages: body | {"messages": messages},
    BODIES,
    st.lists(MESSAGE, min_size=1, max_size=3),
)
TEMPLATE = """{{ tools }}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>
{% endfor %}"""


@given(CHATS | BODIES)
def test_any_json_is_a_chat_request_or_an_error(body: dict[str, Any]) -> None:
    pytest.importorskip("jinja2")
    try:
        request = chat_request(parse_json(json.dumps(body).encode()), Sampling())
    except ApiError as error:
        assert (error.status, bool(error.message)) == (400, True)
        return
    assert 1 <= request.options.choices <= 8
    assert isinstance(request.options.stream, bool)
    assert all(isinstance(stop, str) and stop for stop in request.options.stops)
    # accepted requests can be rendered by a template and tokenized
    try:
        tokens = ChatTemplate(TEMPLATE, tokenizer()).encode(
            normalize_messages(request.messages), request.tools, **request.variables
        )
    except ChatError:
        return
    assert tokens.count(257) == len(request.messages)


@given(BODIES | st.builds(lambda body, prompt: body | {"prompt": prompt}, BODIES, VALUES))
def test_any_json_is_a_completion_request_or_an_error(body: dict[str, Any]) -> None:
    try:
        request = completion_request(parse_json(json.dumps(body).encode()), Sampling())
    except ApiError as error:
        assert error.status == 400
        return
    assert request.prompts
    for prompt in request.prompts:
        tokens = tokenizer().encode(prompt) if isinstance(prompt, str) else prompt
        assert all(type(token) is int for token in tokens)


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_an_object_or_an_error(body: bytes) -> None:
    try:
        assert isinstance(parse_json(body), dict)
    except ApiError as error:
        assert error.status == 400


def test_missing_parameters_have_the_defaults_of_the_server() -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "top_p": 0.5, "seed": -1}
    sampling = chat_request(body, Sampling(temperature=0.3, top_p=0.9)).options.sampling
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.3, 0.5, 2**64 - 1)


@pytest.mark.parametrize("others", [{}, {"max_tokens": 3, "tools": [], "tool_choice": "none"}])
def test_a_null_counts_as_missing(others: dict[str, Any]) -> None:
    plain = {"messages": [{"role": "user", "content": "a"}], "prompt": "a", **others}
    for name in {*CHAT, *COMPLETION, *WITHOUT_EFFECT, *REFUSED, "unheard_of"} - plain.keys():
        body = {key: plain[key] for key in plain if key != "prompt"}
        assert chat_request({**body, name: None}, Sampling()) == chat_request(body, Sampling())
        body = {key: plain[key] for key in plain if key in ("prompt", "max_tokens")}
        given, expected = (
            completion_request(one, Sampling()) for one in ({**body, name: None}, body)
        )
        assert given == expected


def test_a_null_inside_a_field_counts_as_missing() -> None:
    call = {"id": None, "function": {"name": "f", "arguments": None}}
    messages = [{"role": "user", "content": "a", "name": None, "tool_calls": None}]
    messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
    function = {"name": "f", "description": None, "parameters": None}
    request = chat_request(
        {
            "messages": messages,
            "tools": [{"type": "function", "function": function}],
            "response_format": {"type": None, "json_schema": None, "schema": None},
            "structured_outputs": {"json": None, "regex": None},
            "stream_options": {"include_usage": None},
            "logit_bias": {"5": None},
        },
        Sampling(),
    )
    assert request.messages[1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert request.tools[0]["function"] == {"name": "f", "parameters": {}}
    assert request.options.structure.schema is request.options.structure.grammar is None
    assert request.options.sampling.logit_bias == ()


A_SCHEMA = {"type": "object", "properties": {"a": {"const": None}}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_object", "schema": A_SCHEMA}, A_SCHEMA),
        ({"type": "json_schema", "schema": A_SCHEMA}, A_SCHEMA),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": A_SCHEMA}}, A_SCHEMA),
        ({"type": "json_object", "json_schema": {"schema": A_SCHEMA}}, A_SCHEMA),
        ({"type": "json_object", "json_schema": {"schema": {}}, "schema": {}}, "given once"),
        ({"type": "text", "schema": {}}, "given once, for JSON"),
        ({"type": "json_object", "shema": {}}, "no response_format.shema; there are json_schema"),
        ({"type": "json_schema", "json_schema": A_SCHEMA}, "json_schema.schema must be an object"),
    ],
)
def test_a_reply_has_the_schema_of_the_request(given: Any, expected: Any) -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "response_format": given}
    if isinstance(expected, str):
        with pytest.raises(ApiError, match=expected):
            chat_request(body, Sampling())
    else:
        assert chat_request(body, Sampling()).options.structure.schema == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_tokens": 3}, 3),
        ({"max_tokens": -1}, None),
        ({"n_predict": -1}, None),
        ({"n_predict": 4}, 4),
        ({"max_tokens": None, "n_predict": 4}, 4),
        ({"max_tokens": 3, "n_predict": 4}, 3),
        ({"max_tokens": -2}, "from 1 to"),
        ({"max_tokens": 0}, "from 1 to"),
        ({"max_tokens": 3, "min_tokens": 4}, "min_tokens is above the maximum length, 3"),
    ],
)
def test_the_maximum_length_has_the_names_of_other_servers(fields: Any, expected: Any) -> None:
    for request in (chat_request, completion_request):
        body: dict[str, Any] = {"messages": [{"role": "user", "content": "a"}], **fields}
        if request is completion_request:
            body["prompt"] = body.pop("messages")[0]["content"]
        if isinstance(expected, str):
            with pytest.raises(ApiError, match=expected):
                request(body, Sampling())
        else:
            assert request(body, Sampling()).options.max_tokens == expected
    body = {"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 2, **fields}
    if not isinstance(expected, str):
        assert chat_request(body, Sampling()).options.max_tokens == 2


def test_sampling_parameters_have_the_names_and_values_of_other_servers() -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "top_k": -1, "repeat_penalty": 1.5}
    defaults = Sampling(top_k=40, repetition_penalty=1.1)
    sampling = chat_request(body, defaults).options.sampling
    assert (sampling.top_k, sampling.repetition_penalty) == (0, 1.5)
    both = {**body, "repetition_penalty": 1.25}
    assert chat_request(both, defaults).options.sampling.repetition_penalty == 1.25
    with pytest.raises(ApiError, match="top_k must be a number from -1"):
        chat_request({**body, "top_k": -2}, defaults)
    for wrong in ("a", 3, [-1], [True], [1.5]):
        with pytest.raises(ApiError, match="stop_token_ids must be a list of tokens"):
            chat_request({**body, "stop_token_ids": wrong}, defaults)


def test_each_choice_has_its_own_seed() -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "seed": 5, "n": 2}
    wanted = chat_request(body, Sampling()).options
    assert [wanted.sampling_of(choice).seed for choice in range(wanted.choices)] == [5, 6]


def test_the_page_lists_every_parameter() -> None:
    table = (
        (Path(__file__).parents[3] / "docs" / "llm.md").read_text().partition("| Parameter |")[2]
    )
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    known = CHAT | COMPLETION | WITHOUT_EFFECT | REFUSED.keys()
    # the table of folders comes later on the page
    assert listed[: len(known)] == list(dict.fromkeys(listed))[: len(known)]
    assert set(listed[: len(known)]) == known
