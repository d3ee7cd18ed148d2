"""A model behind OpenAI's interface over HTTP, with a page to talk with it.

In: a `Service`. Out: an ASGI application. What stays true: every answer but the page is JSON, and
every error has the shape that OpenAI's clients expect; what a client may send is bounded; and no
other web page can use the server of who visits it: hosts are checked, and bodies must be JSON.
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
# of these an answer tells nothing
OPEN_PATHS = ("/", "/health")

log = logging.getLogger(__name__)


class RequestHandlers:
    """The handlers of one service; `application` puts them together."""

    def __init__(self, service: Service, api_key: str | None, any_host: bool) -> None:
        self.service = service
        self.api_key = api_key
        self.any_host = any_host
        self.created = int(time.time())

    # *** what is asked for ***

    async def page(self, request: Request) -> Response:
        """The chat page."""
        from starlette.responses import HTMLResponse

        return HTMLResponse(page(), headers={"Content-Security-Policy": security_policy()})

    async def health(self, request: Request) -> Response:
        """Whether the model answers, and how much it has to do."""
        running, waiting = self.service.engine.load
        return _json({"status": "ok", "running": running, "waiting": waiting})

    async def models(self, request: Request) -> Response:
        """The one model."""
        return _json({"object": "list", "data": [model_json(self.service.name, self.created)]})

    async def model(self, request: Request) -> Response:
        """The one model, by name."""
        name = request.path_params["name"]
        if name != self.service.name:
            raise ApiError(404, f"there is no model {name!r:.80}", "model", "model_not_found")
        return _json(model_json(name, self.created))

    async def chat(self, request: Request) -> ASGIApp:
        """Replies to a conversation."""
        wanted = chat_request(await _body(request), self.service.defaults)
        prompts = await asyncio.to_thread(self.service.prepare_chat, wanted)
        return await self._answer(request, prompts, ChatResponse)

    async def complete(self, request: Request) -> ASGIApp:
        """Continues texts."""
        wanted = completion_request(await _body(request), self.service.defaults)
        prompts = await asyncio.to_thread(self.service.prepare_completion, wanted)
        return await self._answer(request, prompts, CompletionResponse)

    async def _answer(
        self, request: Request, prompts: PreparedRequest, kind: Callable[..., ApiResponse]
    ) -> ASGIApp:
        shows_logprobs = prompts.wanted.logprobs is not None
        answer = kind(self.service.name, self.service.tokenizer, shows_logprobs)
        run = self.service.start(prompts)
        if prompts.wanted.stream:
            return EventStream(run, _chunks(run, answer, prompts.wanted.include_usage))
        return await _whole(request, run, answer)

    # *** what is refused ***

    def check(self, request: Request) -> None:
        """Raises ApiError for a request that must not be answered."""
        if not (self.any_host or is_loopback(request.url.hostname or "")):
            host = request.url.hostname
            raise ApiError(
                403, f"this server is for its own machine, not for the host {host!r:.80}"
            )
        if self.api_key is None or request.url.path in OPEN_PATHS:
            return
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        # headers come as latin-1, whatever was sent
        matches = hmac.compare_digest(key.strip().encode("latin-1"), self.api_key.encode())
        if kind.lower() != "bearer" or not matches:
            raise ApiError(
                401, "the API key is missing or wrong", code="invalid_api_key", kind="auth_error"
            )

    def handled(self, handler: Handler) -> Handler:
        """A handler whose errors become answers."""

        async def handling(request: Request) -> ASGIApp:
            try:
                self.check(request)
                return await handler(request)
            except ApiError as error:
                return _json(error_json(error), error.status)

        return handling


def application(service: Service, api_key: str | None = None, any_host: bool = False) -> Starlette:
    """The ASGI application of a service.

    With `api_key`, requests must have it as a bearer token. `any_host` answers requests that were
    sent to another name than one of this machine. Raises ImportError without starlette.
    """
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.routing import Route
    except ImportError as error:
        raise ImportError(
            "the server needs starlette and uvicorn: pip install 'tinygrad-sharding[llm]'"
        ) from error
    server = RequestHandlers(service, api_key, any_host)
    routes = [
        Route("/", server.handled(server.page)),
        Route("/health", server.handled(server.health)),
        Route("/v1/models", server.handled(server.models)),
        Route("/v1/models/{name:path}", server.handled(server.model)),
        Route("/v1/chat/completions", server.handled(server.chat), methods=["POST"]),
        Route("/v1/completions", server.handled(server.complete), methods=["POST"]),
    ]
    return Starlette(
        routes=routes, exception_handlers={HTTPException: _not_found, Exception: _failed}
    )


def is_loopback(host: str) -> bool:
    """Whether a name or an address is that of this machine to itself.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("example.com")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


async def _body(request: Request) -> Json:
    """The JSON of a request. Raises ApiError, also if it is too large or too slow."""
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


async def _whole(request: Request, run: ChoiceStream, answer: ApiResponse) -> Response:
    """One answer when all has come; ends when the client goes."""

    async def collect() -> Json:
        steps = [step async for step in run.steps()]
        return answer.whole(steps, run.choices, run.usage)

    collecting = asyncio.create_task(collect())
    leaving = asyncio.create_task(_left(request))
    try:
        await asyncio.wait({collecting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not collecting.done():
            # nobody reads it
            raise ApiError(499, "the client closed the connection")
        return _json(collecting.result())
    finally:
        run.cancel()
        collecting.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    """Ends when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _chunks(
    run: ChoiceStream, answer: ApiResponse, include_usage: bool
) -> AsyncIterator[Json]:
    """The objects of a stream; an error is the last one."""
    started = set[int]()
    try:
        async for step in run.steps():
            if step.choice not in started:
                started.add(step.choice)
                for chunk in answer.start(step.choice):
                    yield chunk
            for chunk in answer.chunk(step):
                yield chunk
        if include_usage:
            yield answer.usage_chunk(run.usage)
    except ApiError as error:
        yield error_json(error)


class EventStream:
    """An answer that comes in parts; it ends its run however it ends.

    https://html.spec.whatwg.org/multipage/server-sent-events.html
    """

    def __init__(self, run: ChoiceStream, chunks: AsyncIterator[Json]) -> None:
        self._run, self._chunks = run, chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request of ASGI."""
        from starlette.responses import StreamingResponse

        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        kind = "text/event-stream"
        response = StreamingResponse(self._events(), media_type=kind, headers=headers)
        try:
            await response(scope, receive, send)
        finally:
            self._run.cancel()

    async def _events(self) -> AsyncIterator[str]:
        async for chunk in self._chunks:
            yield f"data: {json.dumps(chunk)}\n\n"
        yield "data: [DONE]\n\n"


def _json(content: Json, status: int = 200) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(content, status)


async def _not_found(request: Request, error: Exception) -> Response:
    """What starlette itself refuses: unknown paths and methods."""
    from starlette.exceptions import HTTPException

    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path[:80]}: {error.detail}"
    if error.status_code == 404:
        message += f"; there are {', '.join(PATHS)}"
    return _json(error_json(ApiError(error.status_code, message)), error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return _json(error_json(ApiError(500, "the server failed", kind="server_error")), 500)
