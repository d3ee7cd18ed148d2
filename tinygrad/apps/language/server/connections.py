"""Limits of connections: how many there are, and how long one may take to send its header.

Input: limits. Output: a protocol class for uvicorn. Invariant: a connection that waits for the
rest of a header ends after the limit, so half-sent requests do not use up the descriptors of the
process.
"""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass, field
from typing import Any

# a client that has started a request must complete the header within this time
HEADER_TIMEOUT_S = 10.0
MAX_CONNECTIONS = 1024
# descriptors that files, pipes and the rest of the process need
RESERVED_DESCRIPTORS = 64
# asyncio accepts so many at once, whatever the limit, and closes those beyond it some rounds of its
# loop later; without descriptors it would fill the log with errors
MAX_ACCEPTED_AT_ONCE = 256
ROUNDS = 4
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\n\r\n"
)


@dataclass
class ConnectionLimits:
    """The limits, and the connections that are open."""

    max_open: int = MAX_CONNECTIONS
    header_timeout_s: float = HEADER_TIMEOUT_S
    accepted_at_once: int = MAX_ACCEPTED_AT_ONCE
    open: set[object] = field(default_factory=set)

    @property
    def has_room(self) -> bool:
        """Whether one more connection may be open."""
        return len(self.open) < self.max_open


def connection_limits() -> ConnectionLimits:
    """The limits of connections, after raising the limit of open files as far as possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + RESERVED_DESCRIPTORS + ROUNDS * MAX_ACCEPTED_AT_ONCE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return ConnectionLimits()
    return limits_within(soft)


def limits_within(descriptors: int) -> ConnectionLimits:
    """The limits for a process that may have so many files open.

    >>> limits_within(128)
    ConnectionLimits(max_open=48, header_timeout_s=10.0, accepted_at_once=4, open=set())
    """
    spare = max(2, descriptors - RESERVED_DESCRIPTORS)
    at_once = max(1, min(MAX_ACCEPTED_AT_ONCE, spare // (4 * ROUNDS)))
    max_open = max(1, min(MAX_CONNECTIONS, spare - ROUNDS * at_once))
    return ConnectionLimits(max_open, accepted_at_once=at_once)


def limited_protocol(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol with limits."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class LimitedProtocol(H11Protocol):
        """One connection."""

        deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            has_room = limits.has_room
            limits.open.add(self)
            if not has_room:
                transport.write(BUSY)
                transport.close()
                return
            self._start_deadline()

        def connection_lost(self, exc: Exception | None) -> None:
            limits.open.discard(self)
            self._end_deadline()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._end_deadline()
            elif self.deadline is None:
                self._start_deadline()

        def _start_deadline(self) -> None:
            self.deadline = self.loop.call_later(limits.header_timeout_s, self._expire)

        def _end_deadline(self) -> None:
            if self.deadline is not None:
                self.deadline.cancel()
                self.deadline = None

        def _expire(self) -> None:
            self.transport.close()

    return LimitedProtocol
