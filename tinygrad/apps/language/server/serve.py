"""Serves a loaded model over HTTP until the process is interrupted."""

from __future__ import annotations

import argparse
import errno
import socket
import sys
from types import ModuleType

from tinygrad.apps.language.chat.conversation import LoadedModel
from tinygrad.apps.language.generation.engine import Engine
from tinygrad.apps.language.generation.sampling import Sampling
from tinygrad.apps.language.server.application import application, is_loopback
from tinygrad.apps.language.server.service import Service

SHUTDOWN_S = 5
KEEP_ALIVE_S = 30


def serve(loaded: LoadedModel, options: argparse.Namespace, sampling: Sampling) -> None:
    """Run the server. Raises ImportError without uvicorn, OSError if the port is taken."""
    engine = Engine(loaded.model, max_running=options.parallel, max_waiting=options.queue)
    try:
        service = Service(
            loaded.name, engine, loaded.tokenizer, loaded.template, sampling, options.max_tokens
        )
        is_private = is_loopback(options.host)
        app = application(service, options.api_key, any_host=not is_private)
        uvicorn = _uvicorn()
        with _listen(options.host, options.serve) as listener:
            port = listener.getsockname()[1]
            shown = f"[{options.host}]" if ":" in options.host else options.host
            print(f"{loaded.name} is at http://{shown}:{port}/", file=sys.stderr, flush=True)
            if not (is_private or options.api_key):
                print("anybody who reaches this machine may use it; see --api-key", file=sys.stderr)
            config = uvicorn.Config(
                app,
                log_level="warning",
                ws="none",
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUTDOWN_S,
            )
            uvicorn.Server(config).run(sockets=[listener])
    finally:
        engine.close()


def _uvicorn() -> ModuleType:
    try:
        import uvicorn
    except ImportError as error:
        raise ImportError(
            "the server needs uvicorn: pip install 'tinygrad-sharding[llm]'"
        ) from error
    return uvicorn


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        hint = "; give another one to --serve" if error.errno == errno.EADDRINUSE else ""
        raise OSError(f"cannot listen at {host} port {port}: {why}{hint}") from error
