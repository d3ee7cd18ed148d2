"""The server: compatibility with the official client, many clients at once, and errors."""

from __future__ import annotations

import asyncio
import concurrent.futures
import http.client
import json
import math
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from random import Random
from typing import Any
from unittest import mock

import pytest

from test.llm.fake_model import FakeModel, always_replies, checksum, tokenizer
from test.llm.serving import Site, served
from tinygrad.apps.language.server.application import MAX_BODY_BYTES, EventStream

openai = pytest.importorskip("openai")

USER = {"role": "user", "content": "Hi"}
CHAT = "/v1/chat/completions"
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "adds",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}


def prompt_of(text: str) -> list[int]:
    """The tokens of a conversation of one message, by the template of the tests."""
    return tokenizer().encode(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server whose model answers with a checksum of its prompt."""
    with served(FakeModel(), max_running=4, max_waiting=64) as site:
        yield site


@pytest.fixture(scope="module")
def client(site: Site) -> Any:
    return site.client()


# ---- the official client ----


def test_a_conversation_gets_a_reply(client: Any) -> None:
    answer = client.chat.completions.create(model="fake", messages=[USER])
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == checksum(prompt_of("Hi"))
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == len(prompt_of("Hi"))
    assert answer.usage.completion_tokens == len(checksum(prompt_of("Hi")))
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_reply_streams(client: Any) -> None:
    options = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(
            model="fake", messages=[USER], stream=True, stream_options=options
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content for chunk in chunks[1:-2]]
    assert texts == list(checksum(prompt_of("Hi")))
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert (chunks[-1].choices, chunks[-1].usage.completion_tokens) == ([], len(texts))
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_reply_that_was_begun_is_continued(client: Any) -> None:
    begun = {"role": "assistant", "content": "It is <|im_end|>"}
    reply = client.chat.completions.create(model="fake", messages=[USER, begun])
    spelled = tokenizer()
    tokens = prompt_of("Hi") + spelled.encode("It is <|im_end|>", special=False)
    assert reply.choices[0].message.content == checksum(tokens)


def test_texts_and_tokens_are_completed(client: Any) -> None:
    answer = client.completions.create(model="fake", prompt=["one", "two"])
    assert [choice.text for choice in answer.choices] == [checksum(b"one"), checksum(b"two")]
    assert answer.usage.prompt_tokens == 6
    stream = client.completions.create(model="fake", prompt=[1, 2, 3], stream=True)
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == checksum([1, 2, 3])
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_models_are_listed(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["fake"]
    found = client.models.retrieve("fake")
    assert (found.object, found.max_model_len) == ("model", 2048)
    assert found.meta == {"n_ctx": 2048, "n_ctx_train": 2048, "n_vocab": 259}
    with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
        client.models.retrieve("other")


def test_a_stop_string_ends_a_reply(client: Any) -> None:
    whole = checksum(prompt_of("Hi"))
    answer = client.chat.completions.create(model="fake", messages=[USER], stop=[whole[4:6], "#"])
    assert answer.choices[0].message.content == whole[: whole.find(whole[4:6])]
    assert answer.choices[0].finish_reason == "stop"


def test_a_length_ends_a_reply(client: Any) -> None:
    answer = client.chat.completions.create(model="fake", messages=[USER], max_tokens=2)
    assert answer.choices[0].message.content == "su"
    assert answer.choices[0].finish_reason == "length"


def test_a_request_says_which_tokens_end_a_reply() -> None:
    with served(FakeModel(always_replies("ab"))) as site:
        create = site.client().chat.completions.create
        for fields, text, reason in (
            ({}, "ab", "stop"),
            ({"min_tokens": 2}, "ab", "stop"),
            # the other tokens are equally likely, and the first is token 0
            ({"min_tokens": 4}, "ab\0\0", "stop"),
            ({"ignore_eos": True, "max_tokens": 5}, "ab\0\0\0", "length"),
            ({"stop_token_ids": [98]}, "a", "stop"),
            ({"stop_token_ids": [98], "ignore_eos": True}, "a", "stop"),
            ({"min_tokens": 3, "stop_token_ids": [98]}, "a\0\0", "stop"),
        ):
            choice = create(model="fake", messages=[USER], extra_body=fields).choices[0]
            assert (choice.message.content, choice.finish_reason) == (text, reason)
        for name, value in (("stop_token_ids", [259]), ("logit_bias", {"259": 1})):
            with pytest.raises(openai.BadRequestError, match=f"259 in {name} is not a token"):
                create(model="fake", messages=[USER], extra_body={name: value})


def test_texts_are_tokenized_and_tokens_detokenized(site: Site) -> None:
    text = "é<|im_end|>"
    tokens = [0xC3, 0xA9, 257]
    for path in ("/tokenize", "/v1/tokenize"):
        for name in ("content", "prompt"):
            status, answer = site.ask("POST", path, {name: text})
            assert (status, answer) == (200, {"tokens": tokens, "count": 3})
    plain = site.ask("POST", "/tokenize", {"content": text, "parse_special": False})[1]
    assert plain["tokens"] == tokenizer().encode(text, special=False)
    pieces = site.ask("POST", "/tokenize", {"content": "é", "with_pieces": True})[1]["tokens"]
    assert pieces == [{"id": 0xC3, "piece": [0xC3]}, {"id": 0xA9, "piece": [0xA9]}]
    prompt = site.ask("POST", "/tokenize", {"messages": [USER]})[1]
    assert prompt == {"tokens": prompt_of("Hi"), "count": len(prompt_of("Hi"))}
    for path in ("/detokenize", "/v1/detokenize"):
        status, answer = site.ask("POST", path, {"tokens": tokens})
        assert (status, answer) == (200, {"content": text, "prompt": text})
    for path, body, message in (
        ("/tokenize", {}, "content must be a text"),
        ("/tokenize", {"content": "a", "prompts": 1}, "no prompts"),
        ("/tokenize", {"content": "a" * 2**18}, "shorten it"),
        ("/detokenize", {"tokens": "ab"}, "must be a list of tokens"),
        ("/detokenize", {"tokens": [300]}, "300 in tokens is not a token"),
        ("/detokenize", {"tokens": [-1]}, "-1 in tokens is not a token"),
    ):
        status, answer = site.ask("POST", path, body)
        assert (status, message in answer["error"]["message"]) == (400, True)


def test_paths_need_no_version(site: Site) -> None:
    body = {"messages": [USER]}
    answers = [site.ask("POST", f"{base}/chat/completions", body)[1] for base in ("/v1", "")]
    assert answers[0]["choices"] == answers[1]["choices"]
    assert site.ask("POST", "/completions", {"prompt": "a"})[1]["choices"][0]["text"]
    assert site.ask("GET", "/models") == site.ask("GET", "/v1/models")
    assert site.ask("GET", "/models/fake")[1]["id"] == "fake"


def test_logprobs_are_those_of_the_tokens(client: Any) -> None:
    answer = client.chat.completions.create(
        model="fake", messages=[USER], logprobs=True, top_logprobs=2
    )
    found = answer.choices[0].logprobs.content
    assert "".join(token.token for token in found) == answer.choices[0].message.content
    expected = -math.log1p(258 * math.exp(-20))
    for token in found:
        assert token.logprob == pytest.approx(expected, abs=1e-6)
        assert (token.bytes, len(token.top_logprobs)) == (list(token.token.encode()), 2)
        assert token.top_logprobs[0].token == token.token
    stream = client.chat.completions.create(
        model="fake", messages=[USER], logprobs=True, stream=True
    )
    parts = [chunk.choices[0].logprobs for chunk in stream]
    streamed = [token for part in parts if part for token in part.content]
    assert [token.token for token in streamed] == [token.token for token in found]


def test_logprobs_of_a_text(client: Any) -> None:
    found = client.completions.create(model="fake", prompt="a", logprobs=1).choices[0].logprobs
    assert "".join(found.tokens) == checksum(b"a")
    assert found.text_offset == list(range(len(found.tokens)))
    assert [list(top) for top in found.top_logprobs] == [[token] for token in found.tokens]


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_name_bytes_and_have_their_place_in_the_text(stream: bool) -> None:
    read: list[int] = []

    # the script is read after the first token
    with served(FakeModel(lambda tokens: [*read[1:], *"é日a\n".encode()])) as site:
        for prompt, places in (("é|", [0, 0, 1]), ([0xC3, 0x7C, 256, 0xC3], [0, 0, 2, 14])):
            read[:] = prompt if isinstance(prompt, list) else prompt.encode()
            answer = site.client().completions.create(
                model="fake", prompt=prompt, echo=True, logprobs=5, stream=stream
            )
            found = [chunk.choices[0] for chunk in answer] if stream else answer.choices
            text = "".join(one.text for one in found)
            names = [name for one in found for name in one.logprobs.tokens]
            tops = [top for one in found for top in one.logprobs.top_logprobs]
            reply = text.index("é日a\n")
            places += [reply] * 2 + [reply + 1] * 3 + [reply + 2, reply + 3]
            assert [place for one in found for place in one.logprobs.text_offset] == places
            assert names[-7:] == [*(f"bytes:\\x{one:02x}" for one in "é日".encode()), "a", "\n"]
            for name, top in list(zip(names, tops, strict=True))[-6:]:
                # one of five tokens stands out, and all five are there
                assert (len(top), max(top, key=top.__getitem__)) == (5, name)


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_begins_a_reply_and_scores_the_prompt(stream: bool) -> None:
    # the script is read after the first token, so it predicts the rest of the prompt too
    with served(FakeModel(always_replies("bcdé"))) as site:

        def ask(**wanted: Any) -> Any:
            answer = site.client().completions.create(
                model="fake", echo=True, stream=stream, **wanted
            )
            if not stream:
                return answer.choices
            return [choice for chunk in answer for choice in chunk.choices]

        texts = ["", "", "", ""]
        for part in ask(prompt=["é", "x"], n=2, max_tokens=3):
            texts[part.index] += part.text
        assert texts == ["ébcd", "ébcd", "xbcd", "xbcd"]
        assert [one.text for one in ask(prompt=[97, 98], max_tokens=0) if one.text] == ["ab"]
        found = ask(prompt="axc", logprobs=1, max_tokens=9)
        assert "".join(one.text for one in found) == "axcdé"
        tokens = [token for one in found for token in one.logprobs.tokens]
        scores = [score for one in found for score in one.logprobs.token_logprobs]
        tops = [top for one in found for top in one.logprobs.top_logprobs]
        assert tokens[:4] == ["a", "x", "c", "d"]
        assert scores[0] is None and scores[1] == pytest.approx(-20, abs=1e-3)
        assert scores[2:] == pytest.approx([0] * len(scores[2:]), abs=1e-3)
        assert [top and list(top) for top in tops[:4]] == [None, ["b"], ["c"], ["d"]]
        only = ask(prompt=[97, 98, 99], logprobs=0, max_tokens=0)[0]
        assert (only.text, only.finish_reason or "length") == ("abc", "length")
        assert len(only.logprobs.tokens) == 3


def test_choices_are_numbered(client: Any) -> None:
    stream = client.chat.completions.create(model="fake", messages=[USER], n=3, stream=True)
    texts = ["", "", ""]
    for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [checksum(prompt_of("Hi"))] * 3


def test_usage_counts_a_prompt_once_and_the_part_that_was_cached_before() -> None:
    template = "{{ messages[0].content }}"
    with served(FakeModel(), template, max_running=2) as site:
        for text, cached in (("a" * 90, 0), ("a" * 40 + "b" * 50, 40)):
            body = {"messages": [{"role": "user", "content": text}], "n": 4}
            usage = site.ask("POST", "/v1/chat/completions", body)[1]["usage"]
            found = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
            assert found == (90, cached)
        # 40 and 20 tokens of two prompts
        body = {"prompt": ["a" * 40 + "c" * 9, "b" * 50 + "c" * 9], "n": 2}
        usage = site.ask("POST", "/v1/completions", body)[1]["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 40


REASONED_CALL = (
    '<think>\nadd\n</think>\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
)


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called(stream: bool) -> None:
    prompts: list[str] = []

    def script(tokens: list[int]) -> list[int]:
        prompts.append(tokenizer().decode(tokens))
        return tokenizer().encode(REASONED_CALL if "<|im_start|>tool" not in prompts[-1] else "2")

    with served(FakeModel(script)) as site:
        client = site.client()
        arguments = {"model": "fake", "tools": [TOOL]}
        messages: list[Any] = [USER]
        if stream:
            with client.chat.completions.stream(messages=messages, **arguments) as events:
                message = events.get_final_completion().choices[0].message
        else:
            answer = client.chat.completions.create(messages=messages, **arguments)
            message = answer.choices[0].message
            assert answer.choices[0].finish_reason == "tool_calls"
            assert message.reasoning_content == "add"
        call = message.tool_calls[0]
        assert (call.type, call.function.name) == ("function", "add")
        assert json.loads(call.function.arguments) == {"a": 1}
        assert '"name": "add"' in prompts[0]
        result = {"role": "tool", "tool_call_id": call.id, "content": "2"}
        messages += [message.model_dump(exclude_none=True), result]
        answer = client.chat.completions.create(messages=messages, **arguments)
        assert answer.choices[0].message.content == "2"
        assert "<|im_start|>assistant\n1<|im_end|>" in prompts[-1]


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_has_one_call_if_calls_are_not_parallel(stream: bool) -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"a": %d}}\n</tool_call>'
    both = "first\n" + "\n".join(call % number for number in (1, 2)) + "\nmore"
    with served(FakeModel(always_replies(both))) as site:
        for parallel, expected in ((False, ['{"a": 1}']), (True, ['{"a": 1}', '{"a": 2}'])):
            answer = site.client().chat.completions.create(
                model="fake",
                messages=[USER],
                tools=[TOOL],
                parallel_tool_calls=parallel,
                stream=stream,
            )
            parts = (
                [chunk.choices[0].delta for chunk in answer]
                if stream
                else [answer.choices[0].message]
            )
            calls = [call for part in parts for call in part.tool_calls or ()]
            assert [call.function.arguments for call in calls] == expected
            content = "".join(part.content or "" for part in parts)
            assert content == ("firstmore" if parallel else "first")


@pytest.mark.parametrize(
    ("way", "start", "reply"),
    [
        (
            "<tool_call>",
            '<tool_call>\n{"name": "add", "arguments":',
            ' {"a": 1}}\n</tool_call> and',
        ),
        ("<tool_call> <think>\n", '</think>\n\n<tool_call>\n{"name": "add", ', ' {"a": 1}}'),
        ("[TOOL_CALLS]", '[TOOL_CALLS][{"name": "add", "arguments":', ' {"a": 1}}]'),
        ("", '{"name": "add", "parameters":', ' {"a": 1}}'),
    ],
)
def test_a_required_tool_is_called(way: str, start: str, reply: str) -> None:
    prompts: list[str] = []

    def script(tokens: list[int]) -> list[int]:
        prompts.append(tokenizer().decode(tokens))
        return tokenizer().encode(reply)

    template = "{% if tools %}{{ messages[0].content }}{% endif %}" + way
    with served(FakeModel(script), template) as site:
        choice = {"type": "function", "function": {"name": "add"}}
        for tool_choice in ("required", choice):
            answer = site.client().chat.completions.create(
                model="fake", messages=[USER], tools=[TOOL], tool_choice=tool_choice
            )
            call = answer.choices[0].message.tool_calls[0]
            assert (call.function.name, call.function.arguments) == ("add", '{"a": 1}')
            assert answer.choices[0].finish_reason == "tool_calls"
            assert answer.choices[0].message.content is None
    assert start in prompts[0]


REASONING = "{{ messages[0].content + '<think>\n' }}"


def test_a_begun_reply_follows_the_reasoning_that_a_template_opens() -> None:
    prompts: list[str] = []

    def script(tokens: list[int]) -> list[int]:
        prompts.append(tokenizer().decode(tokens))
        return tokenizer().encode(" <think> blue")

    with served(FakeModel(script), REASONING) as site:
        for begun, read in (
            ({"content": "It is"}, "<think>\n\n</think>\n\nIt is"),
            ({"content": "It is", "reasoning_content": "Hm"}, "<think>\nHm\n</think>\n\nIt is"),
            ({"content": "<think>Hm</think>It is"}, "<think>\nHm</think>It is"),
            ({"content": "Hm</think>It is"}, "<think>\nHm</think>It is"),
        ):
            messages = [USER, {"role": "assistant", **begun}]
            create = site.client().chat.completions.create
            message = create(model="fake", messages=messages).choices[0].message
            assert message.content == " <think> blue"
            assert not hasattr(message, "reasoning_content")
            assert prompts.pop() == f"Hi{read}"


@pytest.mark.parametrize("template", [REASONING, "{{ messages[0].content }}"])
def test_begun_reasoning_is_continued(template: str) -> None:
    with served(FakeModel(always_replies(", yes\n</think>\n\nblue")), template) as site:
        for form in ({"reasoning_content": "Hm", "content": ""}, {"content": "<think>Hm"}):
            messages = [USER, {"role": "assistant", **form}]
            create = site.client().chat.completions.create
            message = create(model="fake", messages=messages).choices[0].message
            assert (message.reasoning_content, message.content) == (", yes", "blue")


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_model_is_told_of_tools_that_its_template_does_not_know(choice: str) -> None:
    prompts: list[str] = []

    def script(tokens: list[int]) -> list[int]:
        prompts.append(tokenizer().decode(tokens))
        whole = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
        reply = whole if choice == "auto" else ' {"a": 1}}\n</tool_call>'
        return tokenizer().encode(reply if '"a": 2' not in prompts[-1] else "3")

    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    with served(FakeModel(script), template) as site:
        create = site.client().chat.completions.create
        arguments = {"model": "fake", "tools": [TOOL], "tool_choice": choice}
        message = create(messages=[USER], **arguments).choices[0].message
        assert message.tool_calls[0].function.arguments == '{"a": 1}'
        assert message.content is None
        assert prompts[-1].startswith("[system]You can call") and '"adds"' in prompts[-1]
        function = {"name": "add", "arguments": '{"a": 2}'}
        call = {"id": "1", "type": "function", "function": function}
        messages = [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "3"},
        ]
        if choice == "auto":
            reply = create(messages=messages, model="fake", tools=[TOOL])
            assert reply.choices[0].message.content == "3"
            said = '[assistant]<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'
            assert said + "[user]<tool_response>\n3\n</tool_response>" in prompts[-1]


def test_a_model_that_cannot_be_told_of_tools_refuses_them() -> None:
    refused = pytest.raises(openai.BadRequestError, match="does not support tools")
    with served(FakeModel(), "Hello") as site, refused:
        site.client().chat.completions.create(model="fake", messages=[USER], tools=[TOOL])


def test_a_call_is_text_if_there_are_no_tools() -> None:
    with served(FakeModel(always_replies("<tool_call>{}</tool_call>"))) as site:
        answer = site.client().chat.completions.create(model="fake", messages=[USER])
        assert answer.choices[0].message.content == "<tool_call>{}</tool_call>"


def test_a_character_is_streamed_whole() -> None:
    with served(FakeModel(always_replies("aé日👍🏽"))) as site:
        stream = site.client().chat.completions.create(model="fake", messages=[USER], stream=True)
        parts = [chunk.choices[0].delta.content for chunk in stream]
        assert [part for part in parts if part] == list("aé日👍🏽")


def test_an_asynchronous_client_streams(site: Site) -> None:
    import asyncio

    async def text_of(client: Any, prompt: str) -> str:
        messages = [{"role": "user", "content": prompt}]
        stream = await client.chat.completions.create(model="fake", messages=messages, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def ask_all() -> list[str]:
        options = {"base_url": f"{site.url}/v1", "api_key": "x", "max_retries": 0}
        async with openai.AsyncOpenAI(**options) as client:
            return await asyncio.gather(*(text_of(client, f"{n}" * n) for n in range(1, 20)))

    assert asyncio.run(ask_all()) == [checksum(prompt_of(f"{n}" * n)) for n in range(1, 20)]


# ---- many clients ----


@pytest.mark.slow
def test_many_clients_get_their_own_replies(client: Any, site: Site) -> None:
    def ask(number: int) -> str:
        messages = [{"role": "user", "content": f"client {number}"}]
        stream = client.chat.completions.create(
            model="fake", messages=messages, stream=number % 2 == 0
        )
        if number % 2:
            return stream.choices[0].message.content
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(ask, range(48)))
    assert replies == [checksum(prompt_of(f"client {number}")) for number in range(48)]
    assert site.engine.load == (0, 0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_disconnects_frees_its_slot(stream: bool) -> None:
    model = FakeModel(always_replies("x" * 100_000), max_context=200_000, step_s=0.001)
    with served(model, max_running=1, max_waiting=1) as site:
        for _ in range(2):  # a running and a waiting request
            leave_after_the_start(site, stream)
        site.wait_until_idle()


def test_a_stream_ends_at_once_when_its_client_is_gone() -> None:
    sent: list[Any] = []

    async def stream() -> None:
        gone = asyncio.Event()

        async def chunks() -> AsyncIterator[dict[str, Any]]:
            for number in range(1000):
                yield {"number": number}

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if len(sent) == 3:
                asyncio.get_running_loop().call_soon(gone.set)

        choices = mock.Mock()
        await EventStream(choices, chunks(), lambda: None)({}, receive, send)
        choices.cancel.assert_called_once()

    asyncio.run(stream())
    assert len(sent) < 10


def leave_after_the_start(site: Site, stream: bool) -> None:
    """Sends a request, and disconnects once the server works on it."""
    body = json.dumps({"messages": [USER], "stream": stream}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", site.port)) as connection:
        connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        if stream:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            return
        while site.engine.load == (0, 0):
            pass


@pytest.mark.slow
def test_clients_that_disconnect_at_random_do_not_disturb_others() -> None:
    def act(number: int) -> str | None:
        """A description of a mistake of the server; None if it made none."""
        random = Random(number)
        messages = [{"role": "user", "content": f"{random.choice('ab') * random.randint(1, 300)}"}]
        expected = checksum(prompt_of(messages[0]["content"]))
        kind = random.choice(("whole", "stream", "leave", "wrong", "short"))
        arguments = {"model": "fake", "messages": messages, "stream": kind in ("stream", "leave")}
        if kind == "wrong":
            with pytest.raises(openai.BadRequestError):
                client.chat.completions.create(**arguments, temperature=-1)
            return None
        answer = client.chat.completions.create(
            **arguments, max_tokens=3 if kind == "short" else None
        )
        if kind in ("whole", "short"):
            found = answer.choices[0].message.content
            return None if found == (expected[:3] if kind == "short" else expected) else found
        text = ""
        for chunk in answer:
            text += chunk.choices[0].delta.content or ""
            if kind == "leave" and len(text) == 2:
                answer.close()
                return None
        return None if text == expected else text

    with (
        served(FakeModel(step_s=0.0005), max_running=3, max_waiting=64) as site,
        concurrent.futures.ThreadPoolExecutor(16) as pool,
    ):
        client = site.client()
        assert [wrong for wrong in pool.map(act, range(150)) if wrong] == []
        site.wait_until_idle()


def test_a_full_queue_is_reported(client: Any) -> None:
    model = FakeModel(always_replies("x" * 100_000), max_context=200_000, step_s=0.001)
    with served(model, max_running=1, max_waiting=1) as site:
        client = site.client()
        streams = []
        for _ in range(2):
            streams.append(
                client.chat.completions.create(model="fake", messages=[USER], stream=True)
            )
            if len(streams) == 1:
                next(streams[0])
        with pytest.raises(openai.RateLimitError, match="1 requests are waiting already") as caught:
            client.chat.completions.create(model="fake", messages=[USER])
        assert caught.value.response.headers["Retry-After"] == "1"
        for stream in streams:
            stream.close()
        site.wait_until_idle()


# ---- rejected requests ----


def bad(**changes: Any) -> dict[str, Any]:
    return {"model": "fake", "messages": [USER], **changes}


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (bad(model="other"), "model", "no model 'other' here, only 'fake'"),
        (bad(model=3), "model", "model must be a text, not 3"),
        (bad(messages=[]), "messages", "at least one message"),
        (bad(messages="Hi"), "messages", "must be a list, not 'Hi'"),
        (bad(messages=["Hi"]), "messages", "must be a list of objects"),
        (bad(messages=[{"role": "king"}]), "messages[0].role", "one of system, .*, not 'king'"),
        (bad(messages=[{"role": "user"}]), "messages[0].content", "a text.*, not null"),
        (bad(messages=[{**USER, "content": 7}]), "messages[0].content", "a list, not 7"),
        (bad(messages=[{**USER, "content": [{"type": "image_url"}]}]),
         "messages[0].content[0].type", "'text': this model reads text only"),
        (bad(messages=[{"role": "assistant", "tool_calls": [{"function": {}}]}]),
         "messages[0].tool_calls[0].function.name", "a text that is not empty"),
        (bad(temperature="hot"), "temperature", "must be a number, not 'hot'"),
        (bad(temperature=9), "temperature", "a number from 0 to 2, not 9"),
        (bad(temperature=True), "temperature", "must be a number, not True"),
        (bad(top_p=0), "top_p", "a number above 0, up to 1, not 0"),
        (bad(max_tokens=0), "max_tokens", "from 1"),
        (bad(max_tokens=1.5), "max_tokens", "a whole number, not 1.5"),
        (bad(max_tokens=10**400), "max_tokens", "from 1"),
        (bad(n=99), "n", "from 1 to 8"),
        (bad(stop=[""]), "stop", "not empty"),
        (bad(stop=["a"] * 17), "stop", "at most 16"),
        (bad(stream="yes"), "stream", "true or false, not 'yes'"),
        (bad(stream_options={"include_usage": 1}), "stream_options.include_usage", "true or"),
        (bad(top_logprobs=2), "top_logprobs", "needs logprobs"),
        (bad(logprobs=True, top_logprobs=21), "top_logprobs", "from 0 to 20"),
        (bad(response_format={"type": "xml"}), "response_format.type", "json_schema, not 'xml'"),
        (bad(response_format={"type": "json_schema"}),
         "response_format.json_schema.schema", "must be an object, not null"),
        (bad(echo=True), "echo", "is not supported"),
        (bad(parallel_tool_calls=2), "parallel_tool_calls", "true or false"),
        (bad(tools=[{"type": "shell"}]), "tools[0].type", "'function'"),
        (bad(tools=[{"type": "function"}]), "tools[0].function.name", "not empty"),
        (bad(tools=[TOOL], tool_choice="sometimes"), "tool_choice", "or one of the tools .add."),
        (bad(tools=[TOOL], tool_choice={"function": {"name": "mul"}}), "tool_choice", "one of the"),
        (bad(tool_choice="required"), "tool_choice", "there are none"),
    ],
)  # fmt: skip
def test_the_error_names_an_invalid_parameter(
    site: Site, body: Any, param: str, message: str
) -> None:
    import re

    status, answer = site.ask("POST", CHAT, body)
    assert status == (404 if body["model"] == "other" else 400)
    assert answer["error"]["param"] == param
    assert re.search(message, answer["error"]["message"])
    assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("prompt", [None, 3, [], [[]], [1, "a"], [True], {"a": 1}])
def test_an_invalid_prompt_is_rejected(site: Site, prompt: Any) -> None:
    status, answer = site.ask("POST", "/v1/completions", {"prompt": prompt})
    assert (status, answer["error"]["param"]) == (400, "prompt")


def test_unknown_tokens_are_rejected(site: Site) -> None:
    status, answer = site.ask("POST", "/v1/completions", {"prompt": [1, 999]})
    assert (status, answer["error"]["param"]) == (400, "prompt")
    assert "999 is not a token" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"messages": NaN}', 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"n": ' + b"9" * 10_000 + b"}", 400),
        (b" " * (MAX_BODY_BYTES + 1), 413),
    ],
    ids=["none", "cut off", "a list", "not a number", "no UTF-8", "deep", "long number", "huge"],
)
def test_an_invalid_body_is_rejected(site: Site, body: bytes, status: int) -> None:
    found, answer = site.ask("POST", CHAT, body)
    assert found == status
    assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/v2", {}, 404),
        ("GET", "/v1/../etc/passwd", {}, 404),
        ("GET", CHAT, {}, 405),
        ("POST", "/health", {}, 405),
        ("POST", CHAT, {"Content-Type": "text/plain"}, 415),
        ("GET", "/v1/models", {"Host": "evil.example"}, 403),
        ("GET", "/", {"Host": "127.0.0.1.evil.example:80"}, 403),
    ],
)
def test_requests_to_other_hosts_and_paths_are_rejected(
    site: Site, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    found, answer = site.ask(method, path, b"{}" if method == "POST" else None, headers)
    assert found == status
    assert answer["error"]["message"]


def test_a_wrong_method_is_answered_with_the_methods_that_there_are(site: Site) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", site.port)) as connection:
        for method, path, allowed in (("GET", CHAT, {"POST"}), ("PUT", "/health", {"GET", "HEAD"})):
            connection.request(method, path)
            response = connection.getresponse()
            response.read()
            assert response.status == 405
            assert set(response.headers["Allow"].split(", ")) == allowed


def test_a_prompt_that_is_too_long_is_rejected(client: Any) -> None:
    messages = [{"role": "user", "content": "a" * 3000}]
    with pytest.raises(openai.BadRequestError, match="the context of the model 2048") as caught:
        client.chat.completions.create(model="fake", messages=messages)
    assert caught.value.code == "context_length_exceeded"


def test_a_model_without_template_only_completes() -> None:
    with served(FakeModel(), template=None) as site:
        status, answer = site.ask("POST", CHAT, bad())
        assert status == 400
        assert "use /v1/completions" in answer["error"]["message"]
        assert site.ask("POST", "/v1/completions", {"prompt": "a"})[0] == 200


def test_a_template_can_reject_a_conversation() -> None:
    with served(FakeModel(), template="{{ raise_exception('no system') }}") as site:
        status, answer = site.ask("POST", CHAT, bad())
        assert (status, answer["error"]["param"]) == (400, "messages")
        assert "rejects the conversation: no system" in answer["error"]["message"]


def test_a_failing_model_is_a_server_error() -> None:
    model = FakeModel()
    with served(model) as site:
        client = site.client()
        model.fails = RuntimeError("out of memory")
        with pytest.raises(openai.InternalServerError, match="the model failed: out of memory"):
            client.chat.completions.create(model="fake", messages=[USER])
        model.fails = RuntimeError("out of memory")
        with pytest.raises(openai.APIError, match="the model failed: out of memory"):
            list(client.chat.completions.create(model="fake", messages=[USER], stream=True))
        assert client.chat.completions.create(model="fake", messages=[USER]).choices


def test_an_api_key_is_required() -> None:
    with served(FakeModel(), api_key="sécret") as site:
        with pytest.raises(openai.AuthenticationError, match="API key is missing or wrong"):
            site.client("wrong").models.list()
        assert site.ask("GET", "/v1/models")[0] == 401
        assert site.ask("GET", "/health") == (200, {"status": "ok", "running": 0, "waiting": 0})
        authorized = {"Authorization": "Bearer sécret".encode().decode("latin-1")}
        assert site.ask("GET", "/v1/models", headers=authorized)[0] == 200
