"""Messages between processes: the interface of a transport.

Input: messages of which this process has one end. Output: sent bytes, and received memory.
Invariant: all processes start the messages between two devices in one order, so the n-th that one
sends is the n-th that the other receives.
"""

from __future__ import annotations

import contextvars
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tinygrad.device import Buffer, DeviceError, RemoteBuffer
from tinygrad.dtype import to_numpy_dtype

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


class RemoteMessage(NamedTuple):
    """A message between two devices: `buffer` is its local end, memory of `source` if `is_sent`,
    else of `destination`.
    """

    source: str
    destination: str
    buffer: Buffer
    is_sent: bool

    @property
    def nbytes(self) -> int:
        """The size of the message in bytes."""
        return self.buffer.nbytes


class Wire(Protocol):
    """Sends and receives the messages of one round."""

    def start(self, messages: Sequence[RemoteMessage]) -> Any:
        """Start to send and to receive; returns a ticket. The memory must not be written, and that
        of received messages not be read, until `wait`.
        """

    def prepare(self, messages: Sequence[RemoteMessage]) -> Any:
        """A ticket for messages that are started again and again, by `start_again`."""

    def join(self, tickets: Sequence[Any]) -> Any:
        """One ticket for the messages of several prepared ones, in order."""

    def start_again(self, ticket: Any) -> None:
        """Start the messages of a prepared ticket."""

    def wait(self, ticket: Any) -> None:
        """Wait until the messages of a ticket are sent and received."""

    def broadcast(self, buffer: Buffer) -> Array:
        """The content of a buffer, in every process. The one that has it sends it to the others."""

    def tag(self) -> int:
        """A number that follows from everything noted before, so it is equal in all processes."""

    def note(self, digest: bytes, what: str, tag: int | None = None) -> None:
        """Note the next step of all processes: its digest, equal in all of them, and a description.

        Messages are tagged by all digests so far or, with `tag`, by this number of 15 bits, until
        something else is noted.
        """

    def gather(self, value: Any) -> list[Any]:
        """The value of each process, in their order, in every process."""

    def beside(self) -> Wire:
        """A wire for another thread, which may gather while this thread uses this wire."""


class NoWire:
    """The wire of a process that has not joined others."""

    def start(self, messages: Sequence[RemoteMessage]) -> Any:
        """Raises DeviceError: there is no other process."""
        first = messages[0]
        raise DeviceError(
            f"the message from {first.source} to {first.destination} has an end in another "
            "process, and there is no wire to it; use `with SimulatedWire():` to count messages"
        )

    def prepare(self, messages: Sequence[RemoteMessage]) -> Any:
        """Raises DeviceError: there is no other process."""
        return self.start(messages)

    def join(self, tickets: Sequence[Any]) -> Any:
        """Nothing was prepared."""

    def start_again(self, ticket: Any) -> None:
        """Nothing was prepared."""

    def wait(self, ticket: Any) -> None:
        """Nothing was started."""

    def broadcast(self, buffer: Buffer) -> Array:
        """The content of a buffer of this process. Raises DeviceError for that of another one."""
        return buffer.numpy()

    def tag(self) -> int:
        """There are no messages."""
        return 0

    def note(self, digest: bytes, what: str, tag: int | None = None) -> None:
        """There is no other process to agree with."""

    def gather(self, value: Any) -> list[Any]:
        """The value of this process."""
        return [value]

    def beside(self) -> Wire:
        """Itself."""
        return self


@dataclass
class SimulatedWire(NoWire):
    """Counts messages and sends nothing: one process of a program that runs alone.

    `sent` and `received` have, for each pair of devices, the bytes of its messages in order.

    >>> with SimulatedWire() as wire:
    ...     wire.sent
    {}
    """

    sent: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    received: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def start(self, messages: Sequence[RemoteMessage]) -> Any:
        """Count messages."""
        for message in messages:
            counts = self.sent if message.is_sent else self.received
            counts.setdefault((message.source, message.destination), []).append(message.nbytes)
        return None

    def prepare(self, messages: Sequence[RemoteMessage]) -> Any:
        """The messages themselves."""
        return messages

    def join(self, tickets: Sequence[Any]) -> Any:
        """All of their messages."""
        return [message for messages in tickets for message in messages]

    def start_again(self, ticket: Any) -> None:
        """Count messages."""
        self.start(ticket)

    def broadcast(self, buffer: Buffer) -> Array:
        """The content of a buffer of this process, zeros for that of another one."""
        import numpy as np

        if isinstance(buffer, RemoteBuffer):
            return np.zeros(buffer.size, to_numpy_dtype(buffer.dtype))
        return buffer.numpy()

    def unmatched(self, others: Sequence[SimulatedWire]) -> Counter[tuple[str, str]]:
        """The pairs of devices between which the messages of several processes, in order, do not
        match one to one, each with the number of messages.
        """
        wires = [self, *others]
        sent = {pair: sizes for wire in wires for pair, sizes in wire.sent.items()}
        received = {pair: sizes for wire in wires for pair, sizes in wire.received.items()}
        pairs = sent.keys() | received.keys()
        return Counter(
            {
                pair: len(sent.get(pair, ())) + len(received.get(pair, ()))
                for pair in pairs
                if sent.get(pair) != received.get(pair)
            }
        )

    def __enter__(self) -> SimulatedWire:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _entered.set(_entered.get()[:-1])


# the wires of the `with` blocks that this thread has entered
_entered: contextvars.ContextVar[tuple[Wire, ...]] = contextvars.ContextVar("wire", default=())


class _Process:
    wire: Wire = NoWire()


def current_wire() -> Wire:
    """The wire by which this thread sends messages to other processes."""
    entered = _entered.get()
    return entered[-1] if entered else _Process.wire


@contextmanager
def entered_wire(wire: Wire) -> Iterator[None]:
    """Let this be the wire of this thread in a `with` block."""
    token = _entered.set((*_entered.get(), wire))
    try:
        yield
    finally:
        _entered.reset(token)


def set_wire(wire: Wire) -> None:
    """Let this be the wire of the process, outside of `with` blocks."""
    _Process.wire = wire
