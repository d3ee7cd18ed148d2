"""What one rank does without the others: read memory of its own devices.

Input: tensors in memory. Output: their values, on the host. Invariant: nothing that the others
would have to do as well happens, as a message or a schedule: both raise an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tinygrad.device import Buffer, RemoteBuffer
from tinygrad.execution.wire import RemoteMessage, entered_wire
from tinygrad.ranks.steps import RanksError

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


class _AloneWire:
    """The wire of a rank that does something alone."""

    def start(self, messages: Sequence[RemoteMessage]) -> Any:
        """Raises RanksError."""
        raise RanksError(f"a message from {messages[0].source} in alone(); send it outside")

    def prepare(self, messages: Sequence[RemoteMessage]) -> Any:
        """Raises RanksError."""
        return self.start(messages)

    def join(self, tickets: Sequence[Any]) -> Any:
        """Nothing was prepared."""

    def start_again(self, ticket: Any) -> None:
        """Nothing was prepared: the note of a replay raises RanksError."""

    def wait(self, ticket: Any) -> None:
        """Nothing was started."""

    def broadcast(self, buffer: Buffer) -> Array:
        """The content of memory of this rank. Raises RanksError for that of another one."""
        if isinstance(buffer, RemoteBuffer):
            raise RanksError(
                f"alone() reads memory of this rank, not {buffer!r} of another one; read it "
                "outside, on all ranks together"
            )
        return buffer.numpy()

    def tag(self) -> int:
        """There are no messages."""
        return 0

    def note(self, digest: bytes, what: str, tag: int | None = None) -> None:
        """Raises RanksError: the others would have to do it as well."""
        raise RanksError(
            f"{what} in alone(), which reads what is in memory; realize the tensor before, and "
            "read the shards of this rank as x.shards[number].numpy()"
        )

    def gather(self, value: Any) -> list[Any]:
        """Raises RanksError: the others do not answer."""
        raise RanksError("alone() gathers nothing, and saves no file of all ranks; do it outside")

    def beside(self) -> _AloneWire:
        """Itself, which gathers nothing."""
        return self


@contextmanager
def alone() -> Iterator[None]:
    """Let this rank read without the others what is in the memory of its devices, as `x.numpy()`
    or, of a sharded tensor, `x.shards[number].numpy()`. Computing, and reading what another rank
    has, raises RanksError. It does nothing in a single process.

        value = loss.realize()
        if tinygrad.ranks.rank() == 0:
            with tinygrad.ranks.alone():
                print(value.item())
    """
    with entered_wire(_AloneWire()):
        yield
