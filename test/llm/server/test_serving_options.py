"""The options of `--serve`, with requests as clients send them: TLS, host names, origins, keys."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import logging
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from test.llm.fake_model import FakeModel, tokenizer
from test.llm.serving import TEMPLATE, TIMEOUT_S, running, service_of, wait_until
from tinygrad.apps.language.chat.conversation import LoadedModel
from tinygrad.apps.language.chat.template import ChatTemplate
from tinygrad.apps.language.cli.arguments import parse_arguments
from tinygrad.apps.language.generation.engine import Engine
from tinygrad.apps.language.generation.sampling import Sampling
from tinygrad.apps.language.server import serve
from tinygrad.apps.language.server.connections import ConnectionLimits
from tinygrad.settings import Context

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("jinja2")

KEY = {"Authorization": "Bearer secret"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost, signed by itself, and its key."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("the program openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "cert.pem", folder / "key.pem"
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-out", str(paths[0]), "-keyout", str(paths[1]), "-nodes", "-days", "1"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    subprocess.run([program, "req", "-x509", *curve, *files, *named], check=True, timeout=TIMEOUT_S)
    return paths


@contextlib.contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Iterator[int]:
    """The port of a server that is started as the program starts it."""
    servers: list[Any] = []
    make = serve.server_of

    def noted(*given: Any) -> Any:
        servers.append(make(*given))
        return servers[-1]

    # not `capsys`: reading it empties it, and loses what another thread writes meanwhile
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(serve, "server_of", noted)
    spelled = tokenizer()
    loaded = LoadedModel("fake", FakeModel(), spelled, ChatTemplate(TEMPLATE, spelled))
    options = parse_arguments(["--serve", "0", *arguments])
    thread = threading.Thread(target=serve.serve, args=(loaded, options, Sampling()))
    thread.start()
    try:
        wait_until(
            lambda: not thread.is_alive() or bool(servers and servers[0].started),
            "the server does not start",
        )
        assert thread.is_alive()
        scheme = "https" if "--tls-cert" in arguments else "http"
        address = re.search(rf"{scheme}://[^:]+:(\d+)/", said.getvalue())
        assert address is not None
        yield int(address[1])
    finally:
        for server in servers:
            server.should_exit = True
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def ask(
    connection: http.client.HTTPConnection, path: str = "/v1/models", **fields: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    method = fields.pop("method", "GET")
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
    is_post = method == "POST"
    kind = {"Content-Type": "application/json"} if is_post else {}
    with contextlib.closing(connection):
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        connection.request(method, path, body if is_post else None, {**kind, **headers})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def test_tls_with_an_api_key_of_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    (tmp_path / "key").write_text("secret\n")
    files = ["--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])]
    arguments = [*files, "--api-key-file", str(tmp_path / "key"), "--alias", "other"]
    trusting = ssl.create_default_context(cafile=certificate[0])
    with serving(monkeypatch, *arguments) as port:

        def connect(context: ssl.SSLContext = trusting) -> http.client.HTTPSConnection:
            return http.client.HTTPSConnection(
                "localhost", port, timeout=TIMEOUT_S, context=context
            )

        status, _, body = ask(connect(), **KEY)
        assert (status, json.loads(body)["data"][0]["id"]) == (200, "other")
        path = "/v1/chat/completions"
        assert ask(connect(), path, method="POST", **KEY)[0] == 200
        assert ask(connect(), path, method="POST")[0] == 401
        assert b"secret" not in ask(connect(), Authorization="Bearer wrong")[2]
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(connect(ssl.create_default_context()), **KEY)
        # without TLS there is no response, and the server goes on
        with pytest.raises((http.client.BadStatusLine, ConnectionError)):
            ask(http.client.HTTPConnection("localhost", port, timeout=TIMEOUT_S), **KEY)
        with socket.create_connection(("localhost", port), timeout=TIMEOUT_S) as half:
            half.sendall(b"\x16\x03\x01")
            assert ask(connect(), **KEY)[0] == 200


def test_handshakes_count_as_connections_and_must_end_in_time(
    certificate: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    model, limits = FakeModel(), ConnectionLimits(max_open=4)
    files = ["--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])]
    options = parse_arguments(["--serve", "0", *files])
    trusting = ssl.create_default_context(cafile=certificate[0])
    with (
        running(service_of(model, Engine(model)), limits=limits, options=options) as site,
        site.stopped_clock() as clock,
        contextlib.ExitStack() as closing,
    ):

        def connect(sent: bytes = b"") -> socket.socket:
            connection = socket.create_connection(("127.0.0.1", site.port), timeout=TIMEOUT_S)
            closing.enter_context(connection).sendall(sent)
            return connection

        def secure(connection: socket.socket) -> ssl.SSLSocket:
            return closing.enter_context(
                trusting.wrap_socket(connection, server_hostname="localhost")
            )

        # two in the handshake, one that has sent half a header, and a request with the last part of
        # the handshake
        half = [connect(), connect(b"\x16\x03\x01"), secure(connect())]
        half[2].sendall(b"GET / HTTP/1.1\r\nHo")
        whole = secure(connect())
        whole.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in whole.recv(4096)
        # no fifth one is let in
        with pytest.raises((ConnectionError, ssl.SSLError)):
            secure(connect()).recv(1)
        clock.advance(limits.header_timeout_s)
        for one in half:
            with contextlib.suppress(ConnectionError):
                assert not one.recv(1)
        whole.close()

        def all_are_closed() -> bool:
            # the clients do not end TLS, which has a limit of its own
            clock.advance(limits.header_timeout_s)
            return not limits.open

        wait_until(all_are_closed, "connections stay open")
        secure(connect()).close()
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_the_api_key_is_that_of_an_argument_a_file_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("of a file\n")
    (tmp_path / "empty").write_text("\n")

    def key(*arguments: str) -> str | None:
        return serve.api_key_of(parse_arguments(["--serve", "0", *arguments]))

    assert key() is None
    with Context(LLM_API_KEY="of the environment"):
        assert key() == "of the environment"
        assert key("--api-key", "given") == "given"
        assert key("--api-key-file", str(tmp_path / "key")) == "of a file"
        with pytest.raises(ValueError, match="empty has no API key in it"):
            key("--api-key-file", str(tmp_path / "empty"))


def test_host_names_and_origins_are_those_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    friend, stranger = "https://friend.example", "https://friend.example.evil.example"
    arguments = ["--allowed-host", "model.example", "--cors-origin", friend]
    path = "/v1/chat/completions"
    interval = sys.getswitchinterval()
    with serving(monkeypatch, *arguments) as port:
        # threads that handle requests hold up the engine for so long at each of its kernels
        assert sys.getswitchinterval() < 0.001 <= interval

        def send(*, path: str = "/v1/models", **fields: str) -> tuple[int, str | None]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
            status, headers, _ = ask(connection, path, **fields)
            return status, headers.get("Access-Control-Allow-Origin")

        assert send(Host="model.example") == send(Host=f"MODEL.example:{port}") == (200, None)
        assert send(Host="localhost") == (200, None)
        for host in ("evil.example", "model.example.evil.example", "xmodel.example"):
            assert send(Host=host) == (403, None)
        assert send(Origin=friend) == (200, friend)
        assert send(Origin=friend, method="POST", path=path) == (200, friend)
        assert send(Origin=stranger) == (200, None)
        asked = {"Access_Control_Request_Headers": "content-type,authorization,x-stainless-lang"}
        wanted = {"method": "OPTIONS", "path": path, "Access_Control_Request_Method": "POST"}
        assert send(Origin=friend, **wanted, **asked) == (200, friend)
        assert send(Origin=stranger, **wanted, **asked)[1] is None
        assert send(Origin=friend, Host="evil.example")[0] == 403
    assert sys.getswitchinterval() == interval
