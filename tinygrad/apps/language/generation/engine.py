"""Many sequences on one model: a thread that owns the model steps all of them together.

In: `Request`s from any thread, up to a bound. Out: for each, tokens as they come, then one
`Finished`, given to the function that came with it. What stays true: only this thread touches the
model; a request is answered by its own tokens; one that is cancelled, or fails, leaves its slot to
the next; and what a slot still holds of a prompt is not read again.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol, TypeVar

from tinygrad.apps.language.generation.generate import LanguageModel, check_tokens
from tinygrad.apps.language.generation.grammar import Grammar
from tinygrad.apps.language.generation.kv_cache import ContextOverflowError, KVCache
from tinygrad.apps.language.generation.sampling import Generated, Sampler, Sampling
from tinygrad.tensor import Tensor

# of a prompt, so many are read before others get their next token
PREFILL_TOKENS = 64

T = TypeVar("T")

log = logging.getLogger(__name__)


class Model(LanguageModel, Protocol):
    """What an engine asks of a model; `Transformer` has it."""

    max_context: int


class QueueFullError(RuntimeError):
    """There are as many requests waiting as the engine takes."""


class EngineClosedError(RuntimeError):
    """The engine was closed."""


class Reason(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True)
class Request:
    """A prompt, and where the text after it ends: before one of `end_ids`, or at a length.

    A text that must follow a `grammar` ends also when nothing more can follow.
    """

    tokens: Sequence[int]
    sampling: Sampling
    max_tokens: int
    end_ids: frozenset[int] = frozenset()
    grammar: Grammar | None = None


@dataclass(frozen=True)
class Finished:
    """The end of a sequence. Of its prompt, `cached_tokens` had been read before."""

    reason: Reason
    cached_tokens: int = 0
    error: Exception | None = None


Deliver = Callable[[Generated | Finished], None]


class Slot:
    """Room for one sequence, with what the last one left."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self.is_free = True

    def common(self, tokens: Sequence[int]) -> int:
        """How many of the first tokens are those that the slot holds."""
        count = 0
        for mine, theirs in zip(self.cache.tokens, tokens):
            if mine != theirs:
                break
            count += 1
        return count


class Generation:
    """A request that is answered; `cancel` ends it."""

    def __init__(self, request: Request, deliver: Deliver) -> None:
        self.request = request
        self.cancelled = False
        self._deliver = deliver
        constraint = request.grammar.start() if request.grammar else None
        self._sampler = Sampler(request.sampling, constraint)
        # of the prompt, then of what follows it
        self.tokens = list(request.tokens)
        self.made = 0
        self.cached_tokens = 0
        self.slot: Slot | None = None
        self.has_ended = False

    def cancel(self) -> None:
        """Ends the sequence at the next step; may be called from any thread, and twice."""
        self.cancelled = True

    @property
    def is_reading(self) -> bool:
        """Whether the prompt has not been read to its end."""
        return self.made == 0

    def end(self, reason: Reason, error: Exception | None = None) -> None:
        """Leaves the slot, and says so to who asked."""
        if self.slot is not None:
            self.slot.is_free = True
            self.slot = None
        self.has_ended = True
        self._send(Finished(reason, self.cached_tokens, error))

    def draw(self, logits: Tensor) -> Reason | None:
        """Takes the next token from logits (vocab,); the reason if it is the last."""
        found = self._sampler(logits, self.tokens)
        if found.token in self.request.end_ids:
            return Reason.STOP
        self.tokens.append(found.token)
        self.made += 1
        self._send(found)
        if self._sampler.is_complete:
            return Reason.STOP
        return Reason.LENGTH if self.made >= self.request.max_tokens else None

    def _send(self, event: Generated | Finished) -> None:
        try:
            self._deliver(event)
        except Exception:
            # who asked is gone, such as an event loop that was closed; others must not suffer
            log.exception("a result could not be delivered")
            self.cancelled = True


class Engine:
    """Answers requests, `max_running` at once and `max_waiting` more in the order they came.

    `slots` is how many sequences, running or ended, are kept to be continued; `max_running` if it
    is not given. The thread starts at once; `close` ends it.
    """

    def __init__(
        self, model: Model, max_running: int = 4, max_waiting: int = 64, slots: int | None = None
    ) -> None:
        if min(max_running, max_waiting, max_running if slots is None else slots) < 1:
            raise ValueError("max_running, max_waiting and slots must be 1 or more")
        self.model = model
        self.max_running, self.max_waiting = max_running, max_waiting
        self.max_slots = max(max_running, slots or 0)
        # the least recently used first
        self._slots: list[Slot] = []
        self._waiting: deque[Generation] = deque()
        self._running: list[Generation] = []
        self._changed = threading.Condition()
        self._closed = False
        # the thread sees the settings of the one that starts it
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request, deliver: Deliver) -> Generation:
        """Puts a request in the queue; `deliver` is called on the engine's thread.

        Raises ValueError for a prompt that the model cannot take, QueueFullError,
        EngineClosedError.
        """
        self.check(request)
        generation = Generation(request, deliver)
        with self._changed:
            if self._closed:
                raise EngineClosedError("the server is shutting down")
            waiting = sum(not other.cancelled for other in self._waiting)
            if waiting >= self.max_waiting:
                raise QueueFullError(f"{waiting} requests are waiting already; try again later")
            self._waiting.append(generation)
            self._changed.notify()
        return generation

    def check(self, request: Request) -> None:
        """Raises ValueError if the model cannot take the prompt."""
        check_tokens(request.tokens, self.model.vocab_size)
        count, most = len(request.tokens), self.model.max_context
        if count > most:
            raise ContextOverflowError(
                f"the prompt has {count} tokens, and the context of the model {most}; shorten it"
            )

    @property
    def load(self) -> tuple[int, int]:
        """How many requests are running, and how many wait."""
        with self._changed:
            running = sum(not one.has_ended for one in self._running)
            return running, len(self._waiting)

    def close(self) -> None:
        """Ends the thread after the step that it is in; requests that are not answered fail."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    # *** on the engine's thread ***

    def _run(self) -> None:
        while self._has_work():
            self._admit()
            self._step()
        with self._changed:
            left = [*self._running, *self._waiting]
            self._waiting.clear()
        self._end(left, EngineClosedError("the server is shutting down"))

    def _has_work(self) -> bool:
        """Waits for a request; False when the engine was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting or self._running)
            return not self._closed

    def _admit(self) -> None:
        """Gives slots to those who wait the longest."""
        with self._changed:
            gone = [waiting for waiting in self._waiting if waiting.cancelled]
            self._waiting = deque(one for one in self._waiting if not one.cancelled)
            count = min(self.max_running - len(self._running), len(self._waiting))
            admitted = [self._waiting.popleft() for _ in range(count)]
            self._running += admitted
        for generation in gone:
            generation.end(Reason.CANCELLED)
        for generation in admitted:
            self._guarded([generation], partial(self._take_slot, generation))

    def _take_slot(self, generation: Generation) -> None:
        slot = self._slot_for(generation.tokens)
        slot.is_free = False
        generation.slot = slot
        # the last token is read always, for the logits after it
        generation.cached_tokens = slot.common(generation.tokens[:-1])

    def _slot_for(self, tokens: Sequence[int]) -> Slot:
        """The slot that holds most of the prompt, or one whose loss matters least."""
        free = [slot for slot in self._slots if slot.is_free]
        # of slots that are as good, one of the replica that has less to do
        busy = Counter(slot.cache.group for slot in self._slots if not slot.is_free)
        best = max(
            free, key=lambda slot: (slot.common(tokens), -busy[slot.cache.group]), default=None
        )
        # a conversation that only starts alike, as by a system prompt, may yet go on
        if best is None or 2 * best.common(tokens) < len(best.cache.tokens):
            if len(self._slots) < self.max_slots:
                self._slots.append(Slot(self.model.new_cache()))
                return self._slots[-1]
            best = min(free, key=lambda slot: busy[slot.cache.group])
        self._slots.remove(best)
        self._slots.append(best)
        return best

    def _step(self) -> None:
        """One part of a prompt in each replica, and one token for each sequence that is written."""
        for generation in [one for one in self._running if one.slot and one.cancelled]:
            generation.end(Reason.CANCELLED)
        running = [one for one in self._running if one.slot]
        writing = [one for one in running if not one.is_reading]
        self._read(one for one in running if one.is_reading)
        writing = [one for one in writing if not self._ended_by_context(one)]
        if writing:
            self._guarded(writing, partial(self._write, writing))
        with self._changed:
            self._running = [one for one in running if one.slot]

    def _read(self, reading: Iterable[Generation]) -> None:
        """A part of the first prompt of each replica."""
        first: dict[int, Generation] = {}
        for generation in reading:
            assert generation.slot is not None
            first.setdefault(generation.slot.cache.group, generation)
        # all have started before the logits of one are waited for
        found = [self._guarded([one], partial(self._read_part, one)) for one in first.values()]
        for generation, logits in zip(first.values(), found, strict=True):
            if logits is not None:
                self._advance(generation, logits)

    def _read_part(self, generation: Generation) -> Tensor | None:
        """The logits after a prompt, if this part is its last."""
        slot, tokens = generation.slot, generation.tokens
        assert slot is not None
        end = min(slot.common(tokens[:-1]) + PREFILL_TOKENS, len(tokens))
        logits = self.model.prefill(tokens[:end], slot.cache)
        return logits if end == len(tokens) else None

    def _ended_by_context(self, generation: Generation) -> bool:
        slot = generation.slot
        assert slot is not None
        if len(slot.cache.tokens) < slot.cache.capacity:
            return False
        generation.end(Reason.LENGTH)
        return True

    def _write(self, generations: list[Generation]) -> None:
        caches = [generation.slot.cache for generation in generations if generation.slot]
        last = [generation.tokens[-1] for generation in generations]
        logits = self.model.decode(last, caches)
        for row, generation in enumerate(generations):
            self._advance(generation, logits[row])

    def _advance(self, generation: Generation, logits: Tensor) -> None:
        self._guarded([generation], partial(self._draw, generation, logits))

    def _draw(self, generation: Generation, logits: Tensor) -> None:
        reason = generation.draw(logits)
        if reason is not None:
            generation.end(reason)

    def _guarded(self, generations: list[Generation], action: Callable[[], T]) -> T | None:
        """Does something for some sequences, which fail alone if it fails."""
        try:
            return action()
        except Exception as error:
            log.exception("a step of the model failed")
            self._end(generations, error)
            return None

    def _end(self, generations: Sequence[Generation], error: Exception) -> None:
        for generation in generations:
            if generation.slot is not None:
                # nobody knows what the cache holds now
                generation.slot.cache.tokens.clear()
            generation.end(Reason.ERROR, error)
