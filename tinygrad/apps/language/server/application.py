"""The HTTP application: OpenAI's API for one model, and a chat page.

Input: a `Service`. Output: an ASGI application. Invariants: every response but the page is JSON,
and every error has the form of OpenAI's API; request bodies are bounded; web pages of other origins
cannot use a user's server, as host names are checked and bodies must be JSON.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from tinygrad.apps.language.server.page import page, security_policy
from tinygrad.apps.language.server.request_fields import ApiError
from tinygrad.apps.language.server.requests import chat_request, completion_request, parse_json
from tinygrad.apps.language.server.responses import (
    ApiResponse,
    ChatResponse,
    CompletionResponse,
    Json,
    error_json,
    model_json,
)
from tinygrad.apps.language.server.service import ChoiceStream, PreparedRequest, Service

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    Handler = Callable[[Request], Awaitable[ASGIApp]]

MAX_BODY_BYTES = 4 << 20
BODY_TIMEOUT_S = 30
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/health")
# these need no API key: they reveal nothing
OPEN_PATHS = ("/", "/health")

log = logging.getLogger(__name__)


class RequestHandlers:
    """The HTTP handlers of one service; `application` routes to them."""

    def __init__(self, service: Service, api_key: str | None, any_host: bool) -> None:
        self.service = service
        self.api_key = api_key
        self.any_host = any_host
        self.created = int(time.time())

    # ---- endpoints ----

    async def page(self, request: Request) -> Response:
        """The chat page."""
        from starlette.responses import HTMLResponse

        return HTMLResponse(page(), headers={"Content-Security-Policy": security_policy()})

    async def health(self, request: Request) -> Response:
        """The state of the server, and the numbers of running and waiting requests."""
        running, waiting = self.service.engine.load
        return _json({"status": "ok", "running": running, "waiting": waiting})

    async def models(self, request: Request) -> Response:
        """The list of models, which is one."""
        return _json({"object": "list", "data": [model_json(self.service.name, self.created)]})

    async def model(self, request: Request) -> Response:
        """The model by name."""
        name = request.path_params["name"]
        if name != self.service.name:
            raise ApiError(404, f"there is no model {name!r:.80}", "model", "model_not_found")
        return _json(model_json(name, self.created))

    async def chat(self, request: Request) -> ASGIApp:
        """Chat completions."""
        parsed = chat_request(await _body(request), self.service.defaults)
        prepared = await asyncio.to_thread(self.service.prepare_chat, parsed)
        return await self._respond(request, prepared, ChatResponse)

    async def complete(self, request: Request) -> ASGIApp:
        """Text completions."""
        parsed = completion_request(await _body(request), self.service.defaults)
        prepared = await asyncio.to_thread(self.service.prepare_completion, parsed)
        return await self._respond(request, prepared, CompletionResponse)

    async def _respond(
        self, request: Request, prepared: PreparedRequest, kind: Callable[..., ApiResponse]
    ) -> ASGIApp:
        shows_logprobs = prepared.options.logprobs is not None
        response = kind(self.service.name, self.service.tokenizer, shows_logprobs)
        choices = self.service.start(prepared)
        if prepared.options.stream:
            return EventStream(choices, _chunks(choices, response, prepared.options.include_usage))
        return await _whole(request, choices, response)

    # ---- access ----

    def check(self, request: Request) -> None:
        """Raise ApiError for a request of another host name, or without the API key."""
        if not (self.any_host or is_loopback(request.url.hostname or "")):
            host = request.url.hostname
            raise ApiError(
                403, f"this server is for its own machine, not for the host {host!r:.80}"
            )
        if self.api_key is None or request.url.path in OPEN_PATHS:
            return
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        # headers are decoded as latin-1, whatever was sent
        matches = hmac.compare_digest(key.strip().encode("latin-1"), self.api_key.encode())
        if kind.lower() != "bearer" or not matches:
            raise ApiError(
                401, "the API key is missing or wrong", code="invalid_api_key", kind="auth_error"
            )

    def wrap(self, handler: Handler) -> Handler:
        """A handler whose errors become responses."""

        async def handling(request: Request) -> ASGIApp:
            try:
                self.check(request)
                return await handler(request)
            except ApiError as error:
                return _json(error_json(error), error.status)

        return handling


def application(service: Service, api_key: str | None = None, any_host: bool = False) -> Starlette:
    """The ASGI application of a service.

    With `api_key`, requests must have it as a bearer token. `any_host` accepts requests to host
    names other than those of this machine. Raises ImportError without starlette.
    """
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.routing import Route
    except ImportError as error:
        raise ImportError(
            "the server needs starlette and uvicorn: pip install 'tinygrad-sharding[llm]'"
        ) from error
    handlers = RequestHandlers(service, api_key, any_host)
    routes = [
        Route("/", handlers.wrap(handlers.page)),
        Route("/health", handlers.wrap(handlers.health)),
        Route("/v1/models", handlers.wrap(handlers.models)),
        Route("/v1/models/{name:path}", handlers.wrap(handlers.model)),
        Route("/v1/chat/completions", handlers.wrap(handlers.chat), methods=["POST"]),
        Route("/v1/completions", handlers.wrap(handlers.complete), methods=["POST"]),
    ]
    return Starlette(
        routes=routes, exception_handlers={HTTPException: _not_found, Exception: _failed}
    )


def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback one.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("example.com")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


async def _body(request: Request) -> Json:
    """The JSON body of a request. Raises ApiError, also for one that is too large or too slow."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "the Content-Type must be application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise ApiError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    except TimeoutError as error:
        raise ApiError(408, f"the body did not come within {BODY_TIMEOUT_S} s") from error
    return dict(parse_json(bytes(body)))


async def _whole(request: Request, choices: ChoiceStream, response: ApiResponse) -> Response:
    """The whole response; the request is cancelled if the client disconnects."""

    async def collect() -> Json:
        updates = [update async for update in choices.updates()]
        return response.whole(updates, choices.choices, choices.usage)

    collecting = asyncio.create_task(collect())
    disconnecting = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({collecting, disconnecting}, return_when=asyncio.FIRST_COMPLETED)
        if not collecting.done():
            # the status is for the log only
            raise ApiError(499, "the client closed the connection")
        return _json(collecting.result())
    finally:
        choices.cancel()
        collecting.cancel()
        disconnecting.cancel()


async def _disconnected(request: Request) -> None:
    """Returns when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _chunks(
    choices: ChoiceStream, response: ApiResponse, include_usage: bool
) -> AsyncIterator[Json]:
    """The JSON objects of a stream; an error is the last one."""
    started = set[int]()
    try:
        async for update in choices.updates():
            if update.choice not in started:
                started.add(update.choice)
                for chunk in response.start(update.choice):
                    yield chunk
            for chunk in response.chunk(update):
                yield chunk
        if include_usage:
            yield response.usage_chunk(choices.usage)
    except ApiError as error:
        yield error_json(error)


class EventStream:
    """A response of server-sent events; its choices are cancelled however it ends.

    https://html.spec.whatwg.org/multipage/server-sent-events.html
    """

    def __init__(self, choices: ChoiceStream, chunks: AsyncIterator[Json]) -> None:
        self._choices, self._chunks = choices, chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        from starlette.responses import StreamingResponse

        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        kind = "text/event-stream"
        response = StreamingResponse(self._events(), media_type=kind, headers=headers)
        try:
            await response(scope, receive, send)
        finally:
            self._choices.cancel()

    async def _events(self) -> AsyncIterator[str]:
        async for chunk in self._chunks:
            yield f"data: {json.dumps(chunk)}\n\n"
        yield "data: [DONE]\n\n"


def _json(content: Json, status: int = 200) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(content, status)


async def _not_found(request: Request, error: Exception) -> Response:
    """The response to unknown paths and methods."""
    from starlette.exceptions import HTTPException

    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path[:80]}: {error.detail}"
    if error.status_code == 404:
        message += f"; there are {', '.join(PATHS)}"
    return _json(error_json(ApiError(error.status_code, message)), error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return _json(error_json(ApiError(500, "the server failed", kind="server_error")), 500)
