"""Replay in several processes: native segments between messages.

Input: launches of a capture, some with messages to and from other processes. Output: `run(inputs)`.
Invariant: messages start in the order of the captured items, as early as their memory allows. They
are waited for before the first launch that uses that memory, or at the end. Those that start, or
are waited for, one after the other do so in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, TypeAlias

from tinygrad.device import Buffer
from tinygrad.execution.realize import BufferCopy, ScheduleItem
from tinygrad.execution.wire import RemoteMessage, Wire, current_wire
from tinygrad.jit.inputs import Inputs
from tinygrad.jit.replay.launches import is_remote
from tinygrad.jit.replay.native_replay import NativeReplay
from tinygrad.jit.replay.substitution import Substitution

EARLY_BYTES = 1 << 16
"""Receiving more than this starts between two launches, less of it at the next message."""

_Step: TypeAlias = Callable[[Inputs], None]


class RankReplay:
    """Launches as native segments, between messages that are started and waited for."""

    def __init__(self, launches: list[list[ScheduleItem]], inputs: Inputs) -> None:
        self._inputs = inputs
        self.wire = current_wire()
        # what runs, starts or is waited for, in order
        self._order: list[tuple[str, NativeReplay | _Messages]] = []
        self._segments: list[NativeReplay] = []
        self._messages: list[_Messages] = []
        # launches of the next segment, and messages that start before the next one that does
        self._pending: list[list[ScheduleItem]] = []
        self._delayed: list[_Messages] = []
        flight: list[_Messages] = []
        for launch in launches:
            local = [item for item in launch if not is_remote(item)]
            started = [half for item in launch if is_remote(item) for half in self._halves(item)]
            used = [b for item in launch for b in item.bufs]
            written = [b for item in launch for b in item.written]
            if due := [x for x in flight if x.conflicts(written if x.is_sent else used)]:
                self._wait(due)
                flight = [x for x in flight if x not in due]
            self._start(started)
            flight += started
            if local:
                self._pending.append(local)
        self._wait(flight)
        self._cut()
        self._joined: list[_Joined] = []
        self._steps = self._joined_steps()

    def _halves(self, item: ScheduleItem) -> list[_Messages]:
        """The messages of an item, those of memory of inputs apart, in order."""
        assert isinstance(item, BufferCopy)

        def is_input(message: RemoteMessage) -> bool:
            return (message.buffer.base or message.buffer) in self._inputs.numbers

        found = [
            _Messages(self.wire, item, tuple(messages), self._inputs if moves else None)
            for moves, messages in groupby(item.remote, is_input)
        ]
        self._messages += found
        return found

    def _start(self, messages: list[_Messages]) -> None:
        for x in messages:
            self._delayed.append(x)
            if self._pending and not x.is_sent and x.nbytes <= EARLY_BYTES:
                continue
            self._cut()

    def _wait(self, messages: list[_Messages]) -> None:
        if messages:
            self._cut()
            self._order += [("wait", x) for x in messages]

    def _cut(self) -> None:
        """End a segment. What starts next needs what it computed."""
        if self._pending:
            segment = NativeReplay(self._pending, self._inputs)
            self._segments.append(segment)
            self._order.append(("run", segment))
            self._pending = []
        self._order += [("start", x) for x in self._delayed]
        self._delayed = []

    def _joined_steps(self) -> list[_Step]:
        """What a run calls."""
        steps: list[_Step] = []
        for (what, is_prepared), found in groupby(self._order, _kind):
            parts: list[Any] = [x for _, x in found]
            if is_prepared and len(parts) > 1:
                parts = [_Joined(self.wire, parts)]
                self._joined += parts
            steps += [getattr(x, what) for x in parts]
        return steps

    def accepts(self, inputs: Inputs, wire: Wire | None) -> bool:
        """Whether the buffers of these inputs are aligned as the kernels need it, and the current
        wire is that of the capture.
        """
        if wire is not self.wire:
            return False
        return not inputs.buffers or all(x.accepts(inputs) for x in self._segments)

    def find_memory(self, buffers: Iterable[Buffer]) -> None:
        """Allocate buffers that were freed, for all launches."""
        freed = set(buffers)
        for segment in self._segments:
            segment.find_memory(freed)

    def release(self) -> None:
        """Release the memory of messages; the next run looks it up again."""
        for messages in self._messages:
            messages.release()
        for joined in self._joined:
            joined.release()

    def run(self, inputs: Inputs) -> None:
        """Run all launches with the buffers and values of these inputs."""
        try:
            for step in self._steps:
                step(inputs)
        except BaseException:
            # some are in flight
            self.release()
            raise


class _Messages:
    """Messages that start together: persistent requests, unless they are in memory of `captured`
    inputs, which each call has elsewhere.
    """

    def __init__(
        self,
        wire: Wire,
        item: BufferCopy,
        messages: tuple[RemoteMessage, ...],
        captured: Inputs | None,
    ) -> None:
        self._wire = wire
        self._messages = messages
        self._item = BufferCopy(item.collective, item.number, (), messages)
        self._captured = captured
        self._ticket: Any = None
        self.is_prepared = captured is None
        self.is_sent = messages[0].is_sent
        self.nbytes = sum(x.nbytes for x in messages)

    def conflicts(self, buffers: Iterable[Buffer]) -> bool:
        """Whether items must wait for the messages, which use these buffers, or write them if the
        messages are sent.
        """
        return any(m.buffer.overlaps(b) for m in self._messages for b in buffers)

    def start(self, inputs: Inputs) -> None:
        """Start the messages."""
        if self._captured is not None:
            item = Substitution(self._captured, inputs).item(self._item)
            assert isinstance(item, BufferCopy)
            self._ticket = self._wire.start(item.remote)
            return
        self._wire.start_again(self._ticket or self.ticket())

    def ticket(self) -> Any:
        """The ticket of the persistent requests."""
        if self._ticket is None:
            self._ticket = self._wire.prepare(self._messages)
        return self._ticket

    def wait(self, inputs: Inputs) -> None:
        """Wait for the messages."""
        self._wire.wait(self._ticket)

    def release(self) -> None:
        """Drop the requests, which hold memory."""
        self._ticket = None


class _Joined:
    """Prepared messages that start, or are waited for, in one call."""

    def __init__(self, wire: Wire, parts: list[_Messages]) -> None:
        self._wire = wire
        self._parts = parts
        self._ticket: Any = None

    def start(self, inputs: Inputs) -> None:
        """Start the messages."""
        self._wire.start_again(self._ticket or self.ticket())

    def wait(self, inputs: Inputs) -> None:
        """Wait for the messages."""
        self._wire.wait(self._ticket or self.ticket())

    def release(self) -> None:
        """Drop the requests, which hold memory."""
        self._ticket = None

    def ticket(self) -> Any:
        """The ticket of all persistent requests."""
        if self._ticket is None:
            self._ticket = self._wire.join([x.ticket() for x in self._parts])
        return self._ticket


def _kind(step: tuple[str, NativeReplay | _Messages]) -> tuple[str, bool]:
    """What is done, and whether it is done to prepared messages."""
    what, part = step
    return what, isinstance(part, _Messages) and part.is_prepared
