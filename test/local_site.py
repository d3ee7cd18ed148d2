"""A local web server for tests of downloads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class QuietHandler(BaseHTTPRequestHandler):
    """A request handler without log output."""

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


class LocalSite(ThreadingHTTPServer):
    """Serves `handler` on a free local port."""

    handler: type[QuietHandler]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), self.handler)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Serves from another thread during a `with` block."""
        with self:
            thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield self
            finally:
                self.shutdown()
                thread.join()
