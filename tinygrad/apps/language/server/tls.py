"""TLS for the connections of a server, within the limits of connections.

Input: TCP connections. Output: the same for an HTTP protocol, decrypted. Invariant: a connection
counts, and its time runs, from the moment that it is accepted, not only after the handshake.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

from tinygrad.apps.language.server.connections import ConnectionLimits


def tls_context(certificate: str, key: str | None) -> ssl.SSLContext:
    """The context of a server, of files in the PEM format. Raises OSError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        files = f"{certificate} and {key}" if key else certificate
        why = error.strerror or error
        raise OSError(f"cannot use {files} for TLS: {why}; give files in the PEM format") from error
    return context


class TlsHandshake(asyncio.Protocol):
    """One connection, until it is handed to the HTTP protocol that `http` makes."""

    def __init__(
        self, limits: ConnectionLimits, context: ssl.SSLContext, http: Callable[[], Any]
    ) -> None:
        self._limits, self._context, self._http = limits, context, http
        # what the client sent along with the end of the handshake
        self._early = b""
        self._starting: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        # that of TCP; there is no response before TLS
        if not self._limits.has_room:
            transport.abort()
            return
        self._limits.open.add(self)
        self._starting = asyncio.get_running_loop().create_task(self._start(transport))

    def data_received(self, data: bytes) -> None:
        self._early += data

    async def _start(self, transport: asyncio.Transport) -> None:
        timeout_s, loop = self._limits.header_timeout_s, asyncio.get_running_loop()
        try:
            secure = await loop.start_tls(
                transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=timeout_s,
                ssl_shutdown_timeout=timeout_s,
            )
        except OSError:
            # a client without TLS, or one that is too slow or gone
            transport.abort()
            return
        finally:
            self._limits.open.discard(self)
        if secure is None or secure.is_closing():
            return
        protocol = self._http()
        secure.set_protocol(protocol)
        protocol.connection_made(secure)
        if self._early:
            protocol.data_received(self._early)


def tls_protocol(
    limits: ConnectionLimits, context: ssl.SSLContext, http: Callable[..., asyncio.Protocol]
) -> Callable[..., asyncio.Protocol]:
    """What makes the protocol of a connection: a handshake, and then the protocol of `http`."""

    def protocol(**arguments: Any) -> asyncio.Protocol:
        return TlsHandshake(limits, context, partial(http, **arguments))

    return protocol
