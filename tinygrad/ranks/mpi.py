"""Messages by MPI, and the check that all ranks do the same.

Input: the messages of a round, and digests of what all ranks plan. Output: sent bytes and received
memory. Invariant: the tag of a message follows from all digests so far, so messages of programs
that diverged never match. A rank that waits for long sends its last steps to the others; a rank
that receives steps other than its own raises an error with the lines of both.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.device import Buffer, RemoteBuffer
from tinygrad.dtype import to_numpy_dtype
from tinygrad.execution.wire import RemoteMessage
from tinygrad.ranks.beside import BesideWire
from tinygrad.ranks.steps import (
    RanksError,
    Step,
    describe_divergence,
    describe_rank,
    digest_number,
    line_of_main_thread,
    new_step,
    next_digest,
)
from tinygrad.ranks.tickets import Joined, Prepared, Ticket
from tinygrad.settings import RANKS_TIMEOUT
from tinygrad.sharding import Rank
from tinygrad.uop.user_line import find_user_line, find_user_place

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

TAGS = 1 << 15
"""Tags are below this; MPI has at least as many."""
KEPT_STEPS = 100
"""The number of last steps that a rank remembers, and tells the others."""
POLLS = 256
"""The number of polls of a wait between checks of the clock and of what other ranks sent."""
MIN_PAUSE_S, MAX_PAUSE_S = 2e-5, 0.01
"""Limits of the pause between two checks in `listen`, an eighth of the time waited so far."""
YIELD_POLLS = 32
"""The number of polls after which a wait lets other threads of its core run."""
HARD_LIMIT = 30
"""A wait ends with an error after this many times `RANKS_TIMEOUT`."""
REPLAY_FRAMES = 2
"""The calls of this package between a replay, whose steps alone have a tag, and `note`."""
GARBAGE_STEPS = 100
"""The interval, in steps, of collections of young cyclic garbage, the same on all ranks. Which
tensors are alive decides what is computed, so Python must not collect by itself."""
OLD_GARBAGE_STEPS = 2000
"""The interval of full collections, in steps other than replays: one takes a tenth of a second."""


class MpiWire:
    """The wire between the ranks of an MPI launcher."""

    def __init__(self, mpi: Any, rank: Rank) -> None:
        self.rank = rank
        self._mpi = mpi
        self._test, self._start_all = mpi.Request.Testall, mpi.Prequest.Startall
        self._messages, self._control = mpi.COMM_WORLD.Dup(), mpi.COMM_WORLD.Dup()
        self._values = mpi.COMM_WORLD.Dup()
        self._beside = BesideWire(mpi.COMM_WORLD.Dup())
        self._has_threads: bool = mpi.Query_thread() == mpi.THREAD_MULTIPLE
        self.history: deque[Step] = deque([Step(0, 1, "the start", "?")], KEPT_STEPS)
        self.while_waiting: Callable[[], None] = lambda: None
        self._fixed_tag: int | None = None
        # steps that are no replays, since all garbage was collected
        self._planned = 0
        self._prepared: weakref.WeakSet[Prepared] = weakref.WeakSet()
        self._joined: weakref.WeakSet[Joined] = weakref.WeakSet()
        # what each other rank sent last: its line, or nothing if it waits
        self._lines: dict[int, str] = {}
        # requests of sent reports, kept alive until the end
        self._reports: list[Any] = []
        self._waits, self._is_over = False, threading.Event()
        self._watcher = threading.Thread(target=self._answer, daemon=True)
        if self._has_threads:
            self._watcher.start()

    # ---- the wire ----

    def note(self, digest: bytes, what: str, tag: int | None = None) -> None:
        """All ranks do this next."""
        history = self.history
        last = history[-1]
        found = next_digest(last.digest, digest)
        place = find_user_place(sys._getframe(0 if tag is None else REPLAY_FRAMES))
        history.append(new_step((last.number + 1, found, what, place)))
        self._fixed_tag = tag
        if tag is None:
            self._planned += 1
            if self._planned >= OLD_GARBAGE_STEPS:
                self._planned = 0
                gc.collect()
                return
        if last.number % GARBAGE_STEPS == 0:
            gc.collect(1)

    def start(self, messages: Sequence[RemoteMessage]) -> Ticket:
        """Start to receive and to send."""
        ticket = Ticket(messages)
        ticket.fill()
        self._request(ticket, self._messages.Irecv, self._messages.Isend)
        return ticket

    def prepare(self, messages: Sequence[RemoteMessage]) -> Prepared:
        """Persistent requests, with the tag of the step in which they are started first."""
        ticket = Prepared(messages)
        self._prepared.add(ticket)
        return ticket

    def join(self, tickets: Sequence[Prepared]) -> Joined:
        """One ticket for the messages of several prepared ones."""
        ticket = Joined(tickets)
        self._joined.add(ticket)
        return ticket

    def start_again(self, ticket: Prepared | Joined) -> None:
        """Start the messages of a prepared ticket once more."""
        requests = ticket.requests or self._requests_of(ticket)
        if ticket.staged:
            ticket.fill()
        self._start_all(requests)

    def wait(self, ticket: Ticket) -> None:
        """Wait for the messages of a ticket. Raises RanksError if they do not come."""
        requests = ticket.requests or self._requests_of(ticket)
        if not self._test(requests):
            self._wait(requests, ticket.what)
        if ticket.staged:
            ticket.empty()

    def _requests_of(self, ticket: Ticket) -> list[Any]:
        """The persistent requests of a ticket, which are made if there are none yet."""
        if isinstance(ticket, Joined):
            ticket.requests = [
                x for part in ticket.parts for x in part.requests or self._requests_of(part)
            ]
        else:
            self._request(ticket, self._messages.Recv_init, self._messages.Send_init)
        return ticket.requests

    def _request(
        self, ticket: Ticket, receive: Callable[..., Any], send: Callable[..., Any]
    ) -> None:
        """Request the messages of a ticket, what is received first."""
        tag, owner, byte = self.tag(), self.rank.owner, self._mpi.BYTE
        ends = [*zip(ticket.messages, ticket.memory, strict=True)]
        ticket.requests = [
            receive([memory, byte], owner(message.source), tag)
            for message, memory in ends
            if not message.is_sent
        ] + [
            send([memory, byte], owner(message.destination), tag)
            for message, memory in ends
            if message.is_sent
        ]

    def broadcast(self, buffer: Buffer) -> Array:
        """The content of a buffer, sent by its owner to all others."""
        import numpy as np

        owner, dtype = self.rank.owner(buffer.device), to_numpy_dtype(buffer.dtype)
        self.note(f"read {buffer.nbytes} {owner}".encode(), f"reading {buffer.nbytes} bytes")
        is_mine = not isinstance(buffer, RemoteBuffer)
        content = buffer.numpy() if is_mine else np.empty(buffer.size, dtype)
        memory, tag = [content.view(np.uint8), self._mpi.BYTE], self.tag()
        others = [other for other in range(self.rank.size) if other != owner]
        requests = (
            [self._messages.Isend(memory, other, tag) for other in others]
            if is_mine
            else [self._messages.Irecv(memory, owner, tag)]
        )
        self._wait(requests, f"{buffer.nbytes} bytes read from rank {owner}")
        return content

    def gather(self, value: Any) -> list[Any]:
        """The value of each rank, on all ranks."""
        import numpy as np

        self.note(b"gather", "gathering a value of each rank")
        own = np.frombuffer(pickle.dumps(value), np.uint8)
        counts = [np.empty(1, np.int64) for _ in range(self.rank.size)]
        self._swap(np.array([own.size]), counts)
        contents = [np.empty(int(count[0]), np.uint8) for count in counts]
        self._swap(own, contents)
        return [pickle.loads(content.tobytes()) for content in contents]

    def beside(self) -> BesideWire:
        """A wire for another thread. Raises RanksError if MPI serves only one."""
        if not self._has_threads:
            raise RanksError(
                "async_save needs an MPI library that serves several threads, and this one does "
                "not offer MPI_THREAD_MULTIPLE; use safe_save"
            )
        return self._beside

    def _swap(self, own: Array, found: list[Array]) -> None:
        """Send an array to all others, and receive theirs."""
        tag, byte = self.tag(), self._mpi.BYTE
        found[self.rank.number] = own
        others = [other for other in range(self.rank.size) if other != self.rank.number]
        requests = [
            self._messages.Irecv([found[other].view("u1"), byte], other, tag) for other in others
        ] + [self._messages.Isend([own.view("u1"), byte], other, tag) for other in others]
        self._wait(requests, "a value of each rank")

    def tell(self, value: Any) -> None:
        """Send a value from this rank, rank 0, to all others."""
        import numpy as np

        content = pickle.dumps(value)
        self._note_told(content)
        memory = [np.frombuffer(content, np.uint8), self._mpi.BYTE]
        others = range(1, self.rank.size)
        self._wait([self._values.Isend(memory, other, 0) for other in others], "a told value")

    def listen(self) -> Any:
        """The next value that rank 0 tells. Polls for it less and less often, as MPI's own wait
        keeps a core busy.
        """
        status, start = self._mpi.Status(), time.monotonic()
        while not self._values.iprobe(0, 0, status):
            waited_s = time.monotonic() - start
            time.sleep(min(max(waited_s / 8, MIN_PAUSE_S), MAX_PAUSE_S))
        content = bytearray(status.Get_count(self._mpi.BYTE))
        self._values.Recv([content, self._mpi.BYTE], 0, 0)
        self._note_told(bytes(content))
        return pickle.loads(content)

    def _note_told(self, content: bytes) -> None:
        self.note(b"told" + content, "what rank 0 tells")

    def restart(self, number: int, digest: bytes) -> None:
        """Restart the history of all ranks together, at this number of a step, after they diverged.
        Messages that were sent before are never received afterwards.
        """
        self._messages, self._control = self._messages.Dup(), self._control.Dup()
        self._free_requests()
        self._lines.clear()
        self.history.clear()
        self.history.append(Step(number, digest_number(digest), "a new start", find_user_line()))

    def leave(self) -> None:
        """Wait for all ranks to end, so that none ends while another needs it. Raises RanksError if
        they did not do the same, also since the last message.
        """
        import numpy as np

        self.note(b"end", "the end of the program")
        what = "the end of all ranks"
        own = np.array([self.history[-1].digest])
        found = np.empty((self.rank.size, 1), own.dtype)
        self._wait([self._messages.Iallgather(own, found)], what)
        if (found != own).any():
            self._find_divergence(what)
        self._free_requests()
        self._is_over.set()
        if self._watcher.is_alive():
            # the thread must not call MPI after it was finalized
            self._watcher.join()

    def _free_requests(self) -> None:
        for ticket in list(self._prepared):
            ticket.free()
        for joined in list(self._joined):
            joined.requests = []

    def tag(self) -> int:
        """The tag of messages of the last step."""
        if self._fixed_tag is not None:
            return self._fixed_tag
        return self.history[-1].digest % TAGS

    # ---- waiting ----

    def _find_divergence(self, what: str) -> None:
        """Raise RanksError about steps that differ from those of another rank, which does this
        too.
        """
        self._tell("")
        start = time.monotonic()
        while (waited_s := time.monotonic() - start) < RANKS_TIMEOUT.value * HARD_LIMIT:
            self._listen(what)
            os.sched_yield()
        raise RanksError(self._no_answer(what, waited_s))

    def _wait(self, requests: list[Any], what: str) -> None:
        """Poll requests; now and then, check the clock and what other ranks sent."""
        test, polls, reports = self._test, 0, 0
        start = time.monotonic()
        self._waits = True
        try:
            while not test(requests):
                polls += 1
                if not polls % YIELD_POLLS:
                    os.sched_yield()
                if not polls % POLLS:
                    reports = self._check_others(what, time.monotonic() - start, reports)
        finally:
            self._waits = False

    def _check_others(self, what: str, waited_s: float, reports: int) -> int:
        """Listen to the others, and tell them what this rank does after each `RANKS_TIMEOUT`.
        Returns the number of `reports` so far. Raises RanksError.
        """
        self._listen(what)
        self.while_waiting()
        if waited_s > RANKS_TIMEOUT.value * (1 + reports):
            reports += 1
            self._tell("")
        if waited_s > RANKS_TIMEOUT.value * HARD_LIMIT:
            raise RanksError(self._no_answer(what, waited_s))
        return reports

    def _tell(self, line: str) -> None:
        """Tell all other ranks the last steps of this one, and its line if it does not wait."""
        told = self.rank.number, line, [x.told() for x in self.history]
        others = (other for other in range(self.rank.size) if other != self.rank.number)
        self._reports += [self._control.isend(told, other, 0) for other in others]

    def _listen(self, what: str) -> None:
        """Compare the steps that other ranks tell with those of this one."""
        while self._control.iprobe():
            other, line, told = self._control.recv()
            own = {step.number: step for step in self.history}
            for step in (Step(*x) for x in told):
                mine = own.get(step.number)
                if mine is not None and mine.digest != step.digest:
                    # the other one waits too, and must learn of it
                    self._tell("")
                    raise RanksError(describe_divergence(self.rank.number, mine, other, step, what))
            if line and not self._lines.get(other):
                where = f"{what} at {self.history[-1].line}; rank {other} is at {line}"
                print(f"rank {self.rank.number} waits for {where}", file=sys.stderr, flush=True)
            self._lines[other] = line

    def _answer(self) -> None:
        """Tell the ranks that wait where this one is, while it does not listen itself."""
        while not self._is_over.wait(max(0.1, RANKS_TIMEOUT.value / 2)):
            if not self._waits and self._control.iprobe():
                self._tell(line_of_main_thread())

    def _no_answer(self, what: str, waited_s: float) -> str:
        step = self.history[-1]
        others = (other for other in range(self.rank.size) if other != self.rank.number)
        states = (describe_rank(other, self._lines.get(other)) for other in others)
        return (
            f"rank {self.rank.number} waited {waited_s:.0f} s for {what}, in {step.what} at "
            f"{step.line}; {', '.join(states)}. Let all ranks do the same, and set RANKS_TIMEOUT "
            "to more seconds if one has more to do than others"
        )
