"""Helpers to run a server, usually with a fake model, on a free port in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from test.llm.fake_model import FakeModel, tokenizer
from tinygrad.apps.language.chat.template import ChatTemplate
from tinygrad.apps.language.generation.engine import Engine
from tinygrad.apps.language.server.access import AccessRules
from tinygrad.apps.language.server.application import application
from tinygrad.apps.language.server.connections import ConnectionLimits
from tinygrad.apps.language.server.refusals import RefusalPace
from tinygrad.apps.language.server.serve import server_of
from tinygrad.apps.language.server.service import Service

# only a server that hangs takes so long, however busy the machine is
TIMEOUT_S = 240
TEMPLATE = """{% if tools %}<tool_call> for {{ tools | tojson }}
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments.a }}{% endfor %}<|im_end|>
{% endfor %}<|im_start|>assistant
"""


def service_of(model: FakeModel, engine: Engine, template: str | None = TEMPLATE) -> Service:
    spelled = tokenizer()
    chat = None if template is None else ChatTemplate(template, spelled)
    return Service("fake", engine, spelled, chat)


class Clock:
    """The clock of a server's event loop while it is stopped: time limits end when a test says."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._running = loop, loop.time
        self._advanced, self._now = 0.0, loop.time()

    def now(self) -> float:
        return self._now

    def restarted(self) -> float:
        """The time of a clock that goes on, and never back."""
        return self._running() + self._advanced

    def advance(self, seconds: float) -> None:
        """Let time pass, at once."""
        self._now += seconds
        self._advanced += seconds
        # the loop looks at its clock again
        self._loop.call_soon_threadsafe(lambda: None)


class Site:
    """The address of a server, and plain requests to it."""

    def __init__(
        self,
        port: int,
        engine: Engine,
        closing: contextlib.ExitStack,
        stop: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.port, self.engine, self.stop = port, engine, stop
        self.url = f"http://127.0.0.1:{port}"
        self._closing, self._loop = closing, loop

    @contextlib.contextmanager
    def stopped_clock(self) -> Iterator[Clock]:
        """Stops the clock of the server, so that a slow machine cannot exceed its limits."""
        clock = Clock(self._loop)
        self._loop.time = clock.now
        try:
            yield clock
        finally:
            self._loop.time = clock.restarted
            clock.advance(0)

    def client(self, key: str = "unused") -> Any:
        """A client of the `openai` package, which is closed before the server stops."""
        openai = pytest.importorskip("openai")
        url, limits = f"{self.url}/v1", {"timeout": TIMEOUT_S, "max_retries": 0}
        return self._closing.enter_context(openai.OpenAI(base_url=url, api_key=key, **limits))

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """The status and the JSON of a response; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request(
                method, path, data, {"Content-Type": "application/json", **(headers or {})}
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def text(self, path: str) -> str:
        """The text of a page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read().decode()

    def wait_until_idle(self) -> None:
        """Returns when no sequence runs or waits."""
        wait_until(lambda: self.engine.load == (0, 0), "the engine is busy")


def wait_until(is_so: Callable[[], bool], otherwise: str) -> None:
    """Returns when a condition holds."""
    until = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < until, otherwise
        time.sleep(0.005)


@contextlib.contextmanager
def served(
    model: FakeModel, template: str | None = TEMPLATE, api_key: str | None = None, **limits: int
) -> Iterator[Site]:
    """Runs a server of `model`."""
    pytest.importorskip("jinja2")
    engine = Engine(model, **limits)
    with running(service_of(model, engine, template), api_key) as site:
        yield site


@contextlib.contextmanager
def running(
    service: Service,
    api_key: str | None = None,
    limits: ConnectionLimits | None = None,
    pace: RefusalPace | None = None,
    options: Namespace | None = None,
) -> Iterator[Site]:
    """Runs a server of `service`, and closes it at the end. By default no error is held back."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    pace = pace or RefusalPace(per_second=0)
    app, engine = application(service, AccessRules(api_key), pace=pace), service.engine
    listener = socket.create_server(("127.0.0.1", 0))
    server = server_of(app, service, limits or ConnectionLimits(), options)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()

    def stop() -> None:
        server.should_exit = True

    try:
        wait_until(lambda: server.started, "the server does not start")
        port = listener.getsockname()[1]
        with contextlib.ExitStack() as closing:
            yield Site(port, engine, closing, stop, server.servers[0].get_loop())
    finally:
        stop()
        thread.join()
        service.close()
