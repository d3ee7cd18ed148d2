"""The server holds against requests that are made to break it, and serves others meanwhile."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import logging
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from test.llm.bad_requests import (
    CHAT,
    NAMES,
    USER,
    called_with,
    junk,
    nested,
    with_schema,
    with_variables,
)
from test.llm.fake_model import FakeModel, always_replies, replies_for_ever
from test.llm.serving import TIMEOUT_S, Site, running, served, service_of, wait_until
from tinygrad.apps.language.generation.engine import Engine
from tinygrad.apps.language.generation.grammar_process import PROCESS
from tinygrad.apps.language.server.connections import ConnectionLimits, limits_within
from tinygrad.apps.language.server.refusals import MAX_CLIENTS, RefusalPace
from tinygrad.apps.language.server.request_fields import ApiError

pytest.importorskip("starlette")
pytest.importorskip("llguidance")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served(FakeModel()) as site:
        yield site


BEGUN = {"role": "assistant"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": nested(450)}}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (with_variables(messages=[]), "chat_template_kwargs.messages is not a variable"),
        (with_variables(self=1), "chat_template_kwargs.self is not a variable"),
        (with_variables(**{"a b": 1}), "chat_template_kwargs.a b is not a variable"),
        (with_variables(x=nested(450)), "nested deeper than 64 levels"),
        ({"messages": [USER], "tools": [TOOL]}, "nested deeper than 64 levels"),
        (with_schema(nested(450)), "nested deeper than 64 levels"),
        (called_with("[" * 100_000), "nested deeper than 64 levels"),
        (called_with("[" * 100 + "]" * 100), "nested deeper than 64 levels"),
        ({"messages": [{**USER, "content": "a" * 4_000_000}]}, "has 4000000 characters"),
        # the start of a reply is part of the prompt
        ({"messages": [USER, {**BEGUN, "content": "a" * 4_000_000}]}, "has 4000002 characters"),
        ({"messages": [USER], "guided_regex": "("}, "unclosed group"),
        ({"messages": [USER], "grammar": 'root ::= ("a" | '}, "it is not GBNF"),
        ({"messages": [USER], "grammar": "start: /a/", "guided_regex": "a"}, "not several"),
        ({"messages": [USER], "guided_choice": []}, "a list of texts"),
        (
            {"messages": [USER], "structured_outputs": {"xml": 1}},
            "no structured_outputs.xml; there are choice",
        ),
        ({"messages": [USER], "repetion_penalty": 1.2}, "is repetition_penalty meant"),
        ({"messages": [USER], "mirostat": 2}, "mirostat is not supported"),
        ({"messages": [USER], "logit_bias": {"9999": 1}}, "9999 in logit_bias is not a token"),
        ({"messages": [USER], "logit_bias": {"x": 1}}, "'x' in logit_bias is not a token number"),
        ({"messages": [USER], "presence_penalty": 3}, "from -2 to 2, not 3"),
    ],
)
def test_a_bad_request_is_an_error_in_one_line(site: Site, body: Any, said: str) -> None:
    status, answer = site.ask("POST", CHAT, body)
    message = answer["error"]["message"]
    assert (status, "\n" in message, len(message) < 500) == (400, False, True)
    assert said in message


def test_a_call_whose_arguments_are_not_json_is_passed_on(site: Site) -> None:
    assert site.ask("POST", CHAT, called_with("no { JSON"))[0] == 200
    assert site.ask("POST", CHAT, called_with("[" * 64))[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost/health?", 400),
        ("localhost/health#", 400),
        ("user@localhost", 400),
        ("localhost:1:2", 400),
        ("localhost", 401),
        ("LOCALHOST:80", 401),
        ("[::1]:80", 401),
        ("evil.example", 403),
    ],
)
def test_no_host_field_passes_for_another_path(host: str, status: int) -> None:
    with served(FakeModel(), api_key="secret") as site:
        for path in ("/v1/models", CHAT):
            body = {"messages": [USER]} if path == CHAT else None
            assert site.ask("POST" if body else "GET", path, body, {"Host": host})[0] == status


@pytest.mark.slow
def test_a_schema_that_explodes_is_refused_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with served(FakeModel(), max_running=4) as site:
        compiling, others_are_served = threading.Event(), threading.Event()
        check = PROCESS.check

        def checked(*rules: Any) -> None:
            compiling.set()
            assert others_are_served.wait(TIMEOUT_S)
            check(*rules)

        monkeypatch.setattr(PROCESS, "check", checked)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            schema = {"type": "integer", "multipleOf": 99999999}
            exploding = pool.submit(site.ask, "POST", CHAT, with_schema(schema))
            assert compiling.wait(TIMEOUT_S)
            for _ in range(10):
                assert site.ask("POST", CHAT, {"messages": [USER]})[0] == 200
            assert not exploding.done()
            others_are_served.set()
            status, answer = exploding.result(TIMEOUT_S)
        assert (status, "to compile" in answer["error"]["message"]) == (400, True)
        assert site.ask("POST", CHAT, with_schema({"type": "integer"}))[0] == 200


def test_a_grammar_that_fails_while_it_generates_is_the_error_of_its_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with served(FakeModel(always_replies("a" * 1500))) as site:
        body = {"messages": [USER], "guided_regex": "(a?){500}a{500}"}
        status, answer = site.ask("POST", CHAT, body)
        assert status in (200, 400)
        if status == 400:
            assert "grammar" in answer["error"]["message"]
        assert site.ask("POST", CHAT, {"messages": [USER], "max_tokens": 3})[0] == 200
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


@pytest.mark.sample(3, values=False)
@pytest.mark.parametrize(
    ("parameter", "reply", "expected"),
    [
        ({"guided_regex": "[0-9]{3}"}, "123456", "123"),
        ({"guided_choice": ["yes", "no"]}, "maybe no", "no"),
        ({"structured_outputs": {"choice": ["yes"]}}, "no", "yes"),
        ({"grammar": 'root ::= "a" "b"+ "c"'}, "abbc", "abbc"),
        ({"guided_grammar": 'start: "q" /[rs]/'}, "qs", "qs"),
        ({"json_schema": {"const": 5}}, "7", "5"),
        ({"guided_json": {"const": [1]}}, "[1]", "[1]"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_a_reply_follows_its_grammar(
    path: str, parameter: dict[str, Any], reply: str, expected: str
) -> None:
    with served(FakeModel(always_replies(reply))) as site:
        asked = {"messages": [USER]} if path == CHAT else {"prompt": "Hi", "max_tokens": 50}
        status, answer = site.ask("POST", path, asked | parameter)
        assert status == 200, answer
        choice = answer["choices"][0]
        assert (choice["message"]["content"] if path == CHAT else choice["text"]) == expected


def test_penalties_and_biases_change_the_reply() -> None:
    with served(FakeModel(always_replies("aaaa"))) as site:
        ask = {"messages": [USER], "temperature": 0, "max_tokens": 4}

        def reply(**changes: Any) -> str:
            answer = site.ask("POST", CHAT, ask | changes)[1]
            return str(answer["choices"][0]["message"]["content"])

        assert reply() == "aaaa"
        # the logits of the script are 20, all others 0
        assert reply(logit_bias={str(ord("b")): 100}) == "bbbb"
        assert reply(frequency_penalty=2, presence_penalty=2, logit_bias={"98": 17}) == "abaa"


def test_errors_of_a_client_that_causes_many_are_held_back() -> None:
    model, pace = FakeModel(), RefusalPace(per_second=5, burst=2)
    bad: Any = {"messages": []}
    with (
        running(service_of(model, Engine(model)), pace=pace) as site,
        site.stopped_clock() as clock,
        concurrent.futures.ThreadPoolExecutor(2) as pool,
    ):
        pace.clock = clock.now
        assert [site.ask("POST", CHAT, bad)[0] for _ in range(2)] == [400] * 2
        held = []
        for asked in (("POST", CHAT, bad), ("GET", "/x")):
            before = pace._empty_at["127.0.0.1"]
            held.append(pool.submit(site.ask, *asked))
            wait_until(lambda: pace._empty_at["127.0.0.1"] > before, "it is not refused")  # noqa: B023 - called at once
        # a right request does not wait for them
        assert site.ask("POST", CHAT, {"messages": [USER]})[0] == 200
        assert not any(one.done() for one in held)
        # the errors come 0.2 s after each other
        for one, status in zip(held, (400, 404), strict=True):
            assert not one.done()
            clock.advance(0.2)
            assert one.result(TIMEOUT_S)[0] == status
        # a client that sends without waiting is refused for a while, whatever it asks
        for _ in range(30):
            pace.wait_s("127.0.0.1")
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request("GET", "/health")
            answer = connection.getresponse()
            assert answer.status == 429
            assert 1 <= int(answer.headers["Retry-After"]) <= 6


def test_the_pace_of_refused_requests() -> None:
    now = 0.0
    pace = RefusalPace(per_second=2, burst=3, clock=lambda: now)
    assert [pace.wait_s("a") for _ in range(5)] == [0, 0, 0, 0.5, 1]
    assert pace.wait_s("b") == 0
    now = 1.5
    assert pace.wait_s("a") == 0
    # addresses of one IPv6 network are one client
    assert [pace.wait_s(f"2001:db8::{n}") for n in range(4)] == [0, 0, 0, 0.5]
    for _ in range(12):
        pace.wait_s("b")
    with pytest.raises(ApiError, match="from this address") as caught:
        pace.check("b")
    assert (caught.value.status, caught.value.retry_after_s) == (429, 1)
    pace.check("a")
    now = 2.5
    pace.check("b")
    for number in range(MAX_CLIENTS + 10):
        pace.wait_s(str(number))
    assert len(pace._empty_at) == MAX_CLIENTS


def held(site: Site, sent: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", site.port), timeout=TIMEOUT_S)
    connection.sendall(sent)
    return connection


def test_half_sent_headers_end_and_free_their_descriptors() -> None:
    model, limits = FakeModel(), ConnectionLimits(max_open=40)
    with (
        running(service_of(model, Engine(model)), limits=limits) as site,
        site.stopped_clock() as clock,
    ):
        before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
        with contextlib.ExitStack() as closing:
            for number in range(39):
                part = b"GET / HTTP/1.1\r\nHost: local"[: number % 28]
                closing.enter_context(held(site, part))
            # there is room for one more
            assert site.ask("GET", "/health")[0] == 200
            extra = [closing.enter_context(held(site, b"")) for _ in range(5)]
            # those beyond the limit are refused at once
            answers = [one.recv(4096) for one in extra[1:]]
            assert all(b"503" in one and b"Retry-After" in one for one in answers)
            wait_until(lambda: len(limits.open) == limits.max_open, "those refused stay open")
            clock.advance(limits.header_timeout_s)
            wait_until(lambda: not limits.open, "connections stay open")
            assert site.ask("GET", "/health")[0] == 200
        if before is not None:
            assert len(os.listdir("/proc/self/fd")) <= before + 2


HOLD_CONNECTIONS = """
import contextlib, resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(200)]
for one in held:
    one.sendall(b"GET / HT")
for one in held:
    with contextlib.suppress(ConnectionResetError):
        while one.recv(4096):
            pass
print("all were ended", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system lists no descriptors")
def test_connections_do_not_use_up_the_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    model = FakeModel()
    before, soft = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)
    # the process has more descriptors open than it would as a server
    limits = limits_within(128)
    limits.header_timeout_s = 1.0
    service = service_of(model, Engine(model))
    resource.setrlimit(resource.RLIMIT_NOFILE, (128 + before, soft[1]))
    try:
        with (
            running(service, limits=limits) as site,
            subprocess.Popen(
                [sys.executable, "-c", HOLD_CONNECTIONS, str(site.port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            ) as client,
        ):
            assert client.stdout is not None and client.stdin is not None
            assert client.stdout.readline() == b"all were ended\n"
            wait_until(lambda: not limits.open, "connections stay open")
            # the client has not closed a connection, and others are served
            assert site.ask("POST", CHAT, {"messages": [USER]})[0] == 200
            client.stdin.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, soft)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize("body", [{"\ud800": 1}, {"model": "\ud800"}, {"stop": "\ud800"}])
def test_texts_that_have_no_encoding_are_no_failure(site: Site, body: dict[str, Any]) -> None:
    for path, asked in ((CHAT, {"messages": [USER]}), ("/v1/completions", {"prompt": "\ud800"})):
        for echo in ({}, {"echo": True})[: 1 + ("prompt" in asked)]:
            assert site.ask("POST", path, {**asked, **echo, **body, "max_tokens": 1})[0] < 500


def test_a_slow_header_ends_on_a_connection_that_was_used_before() -> None:
    model, limits = FakeModel(), ConnectionLimits()
    with (
        running(service_of(model, Engine(model)), limits=limits) as site,
        site.stopped_clock() as clock,
        held(site, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as connection,
    ):
        assert b"200" in connection.recv(4096)
        (open_one,) = limits.open
        connection.sendall(b"GET /health")
        wait_until(lambda: open_one.deadline is not None, "the header has no time limit")
        clock.advance(limits.header_timeout_s)
        received = b"x"
        while received:
            received = connection.recv(4096)
        wait_until(lambda: not limits.open, "the connection stays open")


def test_a_body_that_is_cut_off_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    with served(FakeModel()) as site:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with held(site, f"{head}Content-Length: 100\r\n\r\n{{".encode()):
            pass
        counted = f'llm_responses_total{{path="{CHAT}",status="499"}} 1.0'
        wait_until(lambda: counted in site.text("/metrics"), "the request is not counted")
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def test_a_server_that_stops_ends_its_streams_with_an_error() -> None:
    model = FakeModel(replies_for_ever("x"), max_context=1 << 40, step_s=0.005)
    service = service_of(model, Engine(model))
    with running(service) as site:
        body = json.dumps({"messages": [USER], "stream": True}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with held(site, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body) as stream:
            assert b"200 OK" in stream.recv(4096)
            site.stop()
            received = b""
            while part := stream.recv(65536):
                received += part
        assert b"the server is shutting down" in received


def test_metrics_and_properties() -> None:
    with served(FakeModel(always_replies("abc"))) as site:
        assert site.ask("POST", CHAT, {"messages": [USER]})[0] == 200
        assert site.ask("POST", CHAT, {"messages": []})[0] == 400
        text = site.text("/metrics")
        for line in (
            f'llm_responses_total{{path="{CHAT}",status="200"}} 1.0',
            f'llm_responses_total{{path="{CHAT}",status="400"}} 1.0',
            'llm_tokens_total{kind="reply"} 3.0',
            "llm_running 0.0",
            "llm_waiting 0.0",
            "llm_request_seconds_count 1.0",
            "llm_first_token_seconds_count 1.0",
        ):
            assert line in text.splitlines()
        found = site.ask("GET", "/props")[1]
        assert (found["model_alias"], found["n_ctx"], found["total_slots"]) == ("fake", 2048, 4)


@pytest.mark.slow
def test_random_requests_are_answered_without_a_failure(site: Site) -> None:
    random = Random(0)
    seen = set()
    for number in range(500):
        body = {"messages": [USER], "max_tokens": 2}
        for _ in range(random.randrange(1, 4)):
            body[random.choice(NAMES)] = junk(random)
        if number % 7 == 0:
            body = junk(random)
        data = json.dumps(body).encode()
        if number % 11 == 0:
            data = bytes(random.choices(data or b"{", k=len(data)))
        # a stream is not one JSON value
        if isinstance(body, dict):
            body.pop("stream", None)
        path = random.choice([CHAT, CHAT, "/v1/completions"])
        status, _ = site.ask("POST", path, data if number % 11 == 0 else body)
        seen.add(status)
        assert status in (200, 400, 404, 413), (status, body)
    assert {200, 400} <= seen
