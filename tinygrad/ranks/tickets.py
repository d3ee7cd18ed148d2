"""Tickets: messages that were started, or prepared, with their memory and MPI's requests.

Input: messages. Output: tickets that a wire starts and waits for. Invariant: memory that MPI cannot
access, as that of a GPU, is copied to and from staging memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinygrad.device import Buffer, Device
from tinygrad.execution.wire import RemoteMessage


class Ticket:
    """Messages, the memory of each, and their requests. Memory that MPI cannot access is staged in
    `bytearray`s.
    """

    def __init__(self, messages: Sequence[RemoteMessage]) -> None:
        # first, since a ticket whose memory cannot be allocated is freed too
        self.requests: list[Any] = []
        self.messages = messages
        self.memory = [_memory(message.buffer) for message in messages]
        self.what = f"{len(messages)} messages"
        self.staged = [
            (message, memory)
            for message, memory in zip(messages, self.memory, strict=True)
            if isinstance(memory, bytearray)
        ]

    def fill(self) -> None:
        """Copy what is sent to its staging memory."""
        for message, memory in self.staged:
            if message.is_sent:
                message.buffer.copyout(memoryview(memory))

    def empty(self) -> None:
        """Copy what was received from its staging memory."""
        for message, memory in self.staged:
            if not message.is_sent:
                message.buffer.copyin(memoryview(memory))


class Prepared(Ticket):
    """A ticket with persistent requests, which are freed with it."""

    def free(self) -> None:
        """Free the requests."""
        for request in self.requests:
            request.Free()
        self.requests = []

    def __del__(self) -> None:
        self.free()


class Joined(Ticket):
    """Prepared tickets whose messages start, or are waited for, together."""

    def __init__(self, parts: Sequence[Prepared]) -> None:
        super().__init__(())
        self.parts = parts
        self.what = f"{sum(len(x.messages) for x in parts)} messages"
        self.staged = [x for part in parts for x in part.staged]


def _memory(buffer: Buffer) -> memoryview | bytearray:
    if Device[buffer.device].allocator.addressable:
        return buffer.ensure_allocated().as_memoryview()
    return bytearray(buffer.nbytes)
