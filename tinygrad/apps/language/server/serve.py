"""Serves a loaded model over HTTP until the process is interrupted.

Input: a loaded model, and the options of the command line. Output: a server, at an address that is
printed. A server that anybody can reach without a key says so.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from tinygrad.apps.language.chat.conversation import LoadedModel
from tinygrad.apps.language.generation.engine import Engine
from tinygrad.apps.language.generation.sampling import Sampling
from tinygrad.apps.language.server.access import AccessRules, is_loopback
from tinygrad.apps.language.server.application import application
from tinygrad.apps.language.server.connections import (
    ConnectionLimits,
    connection_limits,
    limited_protocol,
)
from tinygrad.apps.language.server.refusals import RefusalPace
from tinygrad.apps.language.server.service import Service
from tinygrad.apps.language.server.tls import tls_context, tls_protocol
from tinygrad.settings import LLM_API_KEY

SHUTDOWN_S = 5
KEEP_ALIVE_S = 30
# connections that the system keeps until they are accepted
BACKLOG = 1024
# the engine releases the interpreter in every kernel, and then waits until a thread that handles a
# request has had it for so long
SWITCH_INTERVAL_S = 0.0002


def serve(loaded: LoadedModel, options: argparse.Namespace, sampling: Sampling) -> None:
    """Run the server. Raises ImportError without uvicorn, OSError if the port is taken."""
    api_key = api_key_of(options)
    name = options.alias or loaded.name
    engine = Engine(
        loaded.model,
        max_running=options.parallel,
        max_waiting=options.queue,
        slots=options.slots,
        spilled_bytes=options.host_cache << 20,
    )
    service = Service(name, engine, loaded.tokenizer, loaded.template, sampling, options.max_tokens)
    with contextlib.closing(service), _listen(options.host, options.serve) as listener:
        is_private = is_loopback(options.host)
        hosts = frozenset(options.allowed_host) if is_private or options.allowed_host else None
        rules, pace = AccessRules(api_key, hosts), RefusalPace(options.refused_per_second)
        app = application(service, rules, options.cors_origin, pace)
        server = server_of(app, service, connection_limits(), options)
        port = listener.getsockname()[1]
        shown = f"[{options.host}]" if ":" in options.host else options.host
        scheme = "https" if options.tls_cert else "http"
        context = f"with a context of {loaded.model.max_context} tokens"
        print(f"{name} is at {scheme}://{shown}:{port}/ {context}", file=sys.stderr, flush=True)
        if not (is_private or api_key):
            print("anybody who reaches this machine may use it; see --api-key", file=sys.stderr)
        with _switch_interval(SWITCH_INTERVAL_S):
            server.run(sockets=[listener])


@contextlib.contextmanager
def _switch_interval(seconds: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def api_key_of(options: argparse.Namespace) -> str | None:
    """The API key, of an argument, a file, or the environment. Raises OSError, ValueError."""
    key: str = options.api_key or LLM_API_KEY.value
    if options.api_key_file:
        key = Path(options.api_key_file).read_text().strip()
        if not key:
            raise ValueError(f"{options.api_key_file} has no API key in it")
    return key or None


def server_of(
    app: Any, service: Service, limits: ConnectionLimits, options: argparse.Namespace | None = None
) -> Any:
    """The `uvicorn.Server` of an application. Raises ImportError without uvicorn."""
    try:
        import uvicorn
    except ImportError as error:
        raise ImportError(
            "the server needs uvicorn: pip install 'tinygrad-sharding[llm]'"
        ) from error

    class Server(uvicorn.Server):
        """Ends the engine first, so that streams end with an error and are sent to the end."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            # asyncio has set it to the number that it accepts at once
            for one in sockets or ():
                one.listen(BACKLOG)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await asyncio.to_thread(service.close)
            await super().shutdown(sockets)

    http: Callable[..., asyncio.Protocol] = limited_protocol(limits)
    if options and options.tls_cert:
        http = tls_protocol(limits, tls_context(options.tls_cert, options.tls_key), http)
    config = uvicorn.Config(
        app,
        # uvicorn only calls it
        http=cast("type[asyncio.Protocol]", http),
        backlog=limits.accepted_at_once,
        # a warning for each bad request would let a client fill the log
        log_level="error",
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    return Server(config)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        hint = "; give another one to --serve" if error.errno == errno.EADDRINUSE else ""
        raise OSError(f"cannot listen at {host} port {port}: {why}{hint}") from error
