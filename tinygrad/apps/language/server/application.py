"""The HTTP application: OpenAI's API for one model, and a chat page.

Input: a `Service`. Output: an ASGI application. Invariants: every response but the page is JSON,
and every error has the form of OpenAI's API; request bodies are bounded; web pages of other origins
cannot use a user's server, as host names are checked and bodies must be JSON.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tinygrad.apps.language.server.access import AccessRules
from tinygrad.apps.language.server.metrics import Metrics
from tinygrad.apps.language.server.page import page, security_policy
from tinygrad.apps.language.server.refusals import RefusalPace
from tinygrad.apps.language.server.request_fields import ApiError
from tinygrad.apps.language.server.requests import (
    chat_request,
    completion_request,
    detokenize_request,
    parse_json,
    tokenize_request,
)
from tinygrad.apps.language.server.responses import (
    ApiResponse,
    ChatResponse,
    CompletionResponse,
    Json,
    error_json,
    model_json,
    tokens_json,
)
from tinygrad.apps.language.server.service import ChoiceStream, PreparedRequest, Service

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    Handler = Callable[[Request], Awaitable[ASGIApp]]

MAX_BODY_BYTES = 4 << 20
BODY_TIMEOUT_S = 30
SEND_TIMEOUT_S = 60
STREAM_FIELDS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/models", "/tokenize", "/detokenize"),
    *("/health", "/metrics", "/props"),
)

# a full queue, a client that has gone, and failures of the server are none
FAULTS_OF_CLIENTS = frozenset(range(400, 500)) - {429, 499}

log = logging.getLogger(__name__)


class RequestHandlers:
    """The HTTP handlers of one service; `application` routes to them."""

    def __init__(self, service: Service, rules: AccessRules, pace: RefusalPace) -> None:
        self.service = service
        self.rules = rules
        self.pace = pace
        self.metrics = Metrics(service.engine)
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

    async def numbers(self, request: Request) -> Response:
        """The metrics, for Prometheus."""
        from starlette.responses import Response

        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def properties(self, request: Request) -> Response:
        """The model's context, defaults and template, under the names of llama.cpp's server."""
        service, engine = self.service, self.service.engine
        return _json(
            {
                "model_alias": service.name,
                "n_ctx": engine.model.max_context,
                "total_slots": engine.max_slots,
                "default_generation_settings": {"n_predict": service.max_tokens}
                | dataclasses.asdict(service.defaults),
                "chat_template": service.template.source if service.template else None,
            }
        )

    async def models(self, request: Request) -> Response:
        """The list of models, which is one."""
        model = model_json(self.service.name, self.created, self.service.engine.model)
        return _json({"object": "list", "data": [model]})

    async def model(self, request: Request) -> Response:
        """The model by name."""
        name = request.path_params["name"]
        if name != self.service.name:
            raise ApiError(404, f"there is no model {name!r:.80}", "model", "model_not_found")
        return _json(model_json(name, self.created, self.service.engine.model))

    async def tokenize(self, request: Request) -> Response:
        """The tokens of a text, or of the prompt of a conversation."""
        body, service = await _body(request), self.service
        if "messages" in body:
            parsed = chat_request(body, service.defaults)
            prepared = await asyncio.to_thread(service.prepare_chat, parsed)
            return _json(tokens_json(prepared.tokens[0], None))
        asked = tokenize_request(body)
        tokens = await asyncio.to_thread(service.tokens_of, asked)
        return _json(tokens_json(tokens, service.tokenizer if asked.shows_pieces else None))

    async def detokenize(self, request: Request) -> Response:
        """The text of tokens, under the names of llama.cpp and of vLLM."""
        tokens = detokenize_request(await _body(request))
        text = await asyncio.to_thread(self.service.text_of, tokens)
        return _json({"content": text, "prompt": text})

    async def chat(self, request: Request) -> ASGIApp:
        """Chat completions."""
        parsed = chat_request(await _body(request), self.service.defaults)
        prepared = await asyncio.to_thread(self.service.prepare_chat, parsed)
        prepared = await self.service.with_grammar(prepared)
        return await self._respond(request, prepared, ChatResponse)

    async def complete(self, request: Request) -> ASGIApp:
        """Text completions."""
        parsed = completion_request(await _body(request), self.service.defaults)
        prepared = await asyncio.to_thread(self.service.prepare_completion, parsed)
        prepared = await self.service.with_grammar(prepared)
        return await self._respond(request, prepared, CompletionResponse)

    async def _respond(
        self, request: Request, prepared: PreparedRequest, kind: Callable[..., ApiResponse]
    ) -> ASGIApp:
        shows_logprobs = prepared.options.logprobs is not None
        response = kind(self.service.name, self.service.tokenizer, shows_logprobs)
        choices = self.service.start(prepared)
        if prepared.options.stream:
            chunks = _chunks(choices, response, prepared.options.include_usage)
            return EventStream(choices, chunks, partial(self.metrics.count_reply, choices))
        try:
            return await _whole(request, choices, response)
        finally:
            self.metrics.count_reply(choices)

    def wrap(self, path: str, handler: Handler) -> Handler:
        """The handler of a route, whose errors become responses, and whose responses are counted
        by the path of the route. Errors of a client that causes many are held back.
        """

        async def handling(request: Request) -> ASGIApp:
            status = 200
            try:
                self.pace.check(_address(request))
                self.rules.check(request)
                return await handler(request)
            except ApiError as error:
                status = error.status
                return await self.refused(request, error)
            except Exception:
                status = 500
                raise
            finally:
                self.metrics.count_response(path, status)

        return handling

    async def refused(self, request: Request, error: ApiError) -> Response:
        """The response to a request that is refused, held back by the pace of its client."""
        if error.status in FAULTS_OF_CLIENTS:
            await asyncio.sleep(self.pace.wait_s(_address(request)))
        response = _json(error_json(error), error.status)
        if error.retry_after_s is not None:
            response.headers["Retry-After"] = str(error.retry_after_s)
        return response

    async def not_found(self, request: Request, error: Exception) -> Response:
        """The response to unknown paths and methods."""
        from starlette.exceptions import HTTPException

        assert isinstance(error, HTTPException)
        message = f"{request.method} {request.scope['path'][:80]}: {error.detail}"
        if error.status_code == 404:
            message += f"; there are {', '.join(PATHS)}"
        try:
            self.pace.check(_address(request))
        except ApiError as many:
            return await self.refused(request, many)
        response = await self.refused(request, ApiError(error.status_code, message))
        # of a wrong method: the methods that there are
        response.headers.update(error.headers or {})
        return response


def application(
    service: Service,
    rules: AccessRules | None = None,
    origins: Sequence[str] = (),
    pace: RefusalPace | None = None,
) -> Starlette:
    """The ASGI application of a service.

    Web pages of `origins` may use it, besides its own. Raises ImportError without starlette.
    """
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.middleware import Middleware
        from starlette.middleware.cors import CORSMiddleware
        from starlette.routing import Route
    except ImportError as error:
        raise ImportError(
            "the server needs starlette and uvicorn: pip install 'tinygrad-sharding[llm]'"
        ) from error
    handlers = RequestHandlers(service, rules or AccessRules(), pace or RefusalPace())

    def route(path: str, handler: Handler, **options: Any) -> Route:
        return Route(path, handlers.wrap(path, handler), **options)

    routes = [
        route("/", handlers.page),
        route("/health", handlers.health),
        route("/metrics", handlers.numbers),
        route("/props", handlers.properties),
        *(
            one
            # clients of llama.cpp's server leave the version out
            for base in ("/v1", "")
            for one in (
                route(f"{base}/models", handlers.models),
                route(f"{base}/models/{{name:path}}", handlers.model),
                route(f"{base}/chat/completions", handlers.chat, methods=["POST"]),
                route(f"{base}/completions", handlers.complete, methods=["POST"]),
                route(f"{base}/tokenize", handlers.tokenize, methods=["POST"]),
                route(f"{base}/detokenize", handlers.detokenize, methods=["POST"]),
            )
        ),
    ]
    shared = Middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["GET", "POST"],
        # clients of OpenAI's API in a browser send some of their own, such as x-stainless-lang
        allow_headers=["*"],
    )
    return Starlette(
        routes=routes,
        middleware=[shared] if origins else [],
        exception_handlers={HTTPException: handlers.not_found, Exception: _failed},
    )


def _address(request: Request) -> str:
    """The address of the client; that of a trusted proxy's client, as uvicorn finds it."""
    return request.client.host if request.client else ""


async def _body(request: Request) -> Json:
    """The JSON body of a request. Raises ApiError, also for one that is too large or too slow."""
    from starlette.requests import ClientDisconnect

    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "the Content-Type must be application/json")
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            body = await _bytes_of(request)
    except TimeoutError as error:
        raise ApiError(408, f"the body did not come within {BODY_TIMEOUT_S} s") from error
    except ClientDisconnect as error:
        raise _disconnected_error() from error
    return dict(parse_json(body))


async def _bytes_of(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise ApiError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    return bytes(body)


async def _whole(request: Request, choices: ChoiceStream, response: ApiResponse) -> Response:
    """The whole response; the request is cancelled if the client disconnects."""

    async def collect() -> Json:
        updates = [update async for update in choices.updates()]
        return response.whole(updates, choices.choices, choices.usage)

    collecting = asyncio.create_task(collect())
    disconnecting = asyncio.create_task(_disconnected(request.receive))
    try:
        await asyncio.wait({collecting, disconnecting}, return_when=asyncio.FIRST_COMPLETED)
        if not collecting.done():
            raise _disconnected_error()
        return _json(collecting.result())
    finally:
        choices.cancel()
        collecting.cancel()
        disconnecting.cancel()


def _disconnected_error() -> ApiError:
    # nobody reads it; the status is for the metrics
    return ApiError(499, "the client closed the connection")


async def _disconnected(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _chunks(
    choices: ChoiceStream, response: ApiResponse, include_usage: bool
) -> AsyncIterator[Json]:
    """The JSON objects of a stream; an error is the last one."""
    started = set[int]()
    try:
        async for update in choices.updates():
            first = () if update.choice in started else response.start(update.choice)
            started.add(update.choice)
            for chunk in (*first, *response.chunk(update)):
                yield chunk
        if include_usage:
            yield response.usage_chunk(choices.usage)
    except ApiError as error:
        yield error_json(error)


class EventStream:
    """A response of server-sent events; its choices are cancelled however it ends.

    https://html.spec.whatwg.org/multipage/server-sent-events.html
    """

    def __init__(
        self, choices: ChoiceStream, chunks: AsyncIterator[Json], ended: Callable[[], None]
    ) -> None:
        self._choices, self._chunks, self._ended = choices, chunks, ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        # starlette leaves this to uvicorn, some versions of which do not see that a client is gone
        streaming = asyncio.create_task(self._stream(send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({streaming, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if streaming.done():
                streaming.result()
        except TimeoutError:
            log.warning("a client did not read its stream for %d s", SEND_TIMEOUT_S)
        finally:
            streaming.cancel()
            leaving.cancel()
            self._choices.cancel()
            self._ended()

    async def _stream(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            # a client that does not read would keep its connection for ever
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await send(message)

        await send_in_time({"type": "http.response.start", "status": 200, "headers": STREAM_FIELDS})
        async for event in self._events():
            await send_in_time({"type": "http.response.body", "body": event, "more_body": True})
            # sending does not yield: let the loop see that the client is gone
            await asyncio.sleep(0)
        await send_in_time({"type": "http.response.body", "body": b""})

    async def _events(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            yield f"data: {json.dumps(chunk)}\n\n".encode()
        yield b"data: [DONE]\n\n"


def _json(content: Json, status: int = 200) -> Response:
    from starlette.responses import Response

    # ASCII: texts of requests may have lone surrogates, which no encoding has
    return Response(json.dumps(content), status, media_type="application/json")


async def _failed(request: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return _json(error_json(ApiError(500, "the server failed", kind="server_error")), 500)
