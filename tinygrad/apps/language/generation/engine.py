"""Continuous batching: one thread owns the model and steps all running sequences together.

Input: `GenerationRequest`s from any thread, in a bounded queue. Output: for each, tokens as they
are generated, then one `Finished`, passed to the callback of the request. Invariants: only this
thread touches the model; a request gets the tokens of its own sequence; one that is cancelled, or
fails, frees its slot; a prefix of a prompt that a slot has in its KV cache is not computed again;
and a cache is overwritten only if its sequence is continued, or no unused one is left, and then
its content is kept in host memory.
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
from typing import TypeVar

from tinygrad.apps.language.generation.generate import LanguageModel, check_tokens
from tinygrad.apps.language.generation.grammar import Grammar, GrammarError
from tinygrad.apps.language.generation.kv_cache import (
    ContextOverflowError,
    KVCache,
    common_prefix,
    prompt_overflow,
)
from tinygrad.apps.language.generation.prefix_store import PrefixStore
from tinygrad.apps.language.generation.sampling import (
    Generated,
    Logits,
    Sampler,
    Sampling,
)

# tokens of a prompt that are prefilled before the other sequences get their next token, and before
# other requests are looked at if there are no other sequences
PREFILL_TOKENS, PREFILL_TOKENS_ALONE = 64, 256
# fewer tokens are computed again rather than copied from the cache of another sequence
COPIED_TOKENS = 16

T = TypeVar("T")

log = logging.getLogger(__name__)


class QueueFullError(RuntimeError):
    """The queue of the engine is full."""


class EngineClosedError(RuntimeError):
    """The engine was closed."""


class FinishReason(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True)
class GenerationRequest:
    """A prompt, sampling parameters, and when to stop: before one of `end_ids`, or at a length.

    With a `grammar`, a sequence also ends when nothing more can follow. Before `min_tokens`, it
    goes on where it can; it never has `barred_ids`. With `scores_prompt`, the tokens of the prompt
    after the first are delivered too, so its prefix is computed again.
    """

    tokens: Sequence[int]
    sampling: Sampling
    max_tokens: int
    end_ids: frozenset[int] = frozenset()
    grammar: Grammar | None = None
    scores_prompt: bool = False
    min_tokens: int = 0
    barred_ids: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Finished:
    """The end of a sequence; `cached_tokens` of its prompt were in a KV cache already."""

    reason: FinishReason
    cached_tokens: int = 0
    error: Exception | None = None


Deliver = Callable[[Generated | Finished], None]


class Slot:
    """The KV cache for one sequence, which still holds the last one."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self.is_free = True

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """The length of the longest common prefix with the sequence in the cache."""
        return common_prefix(self.cache.tokens, tokens)


class GenerationTask:
    """A request in the queue or in a slot; `cancel` ends it."""

    def __init__(self, request: GenerationRequest, deliver: Deliver) -> None:
        self.request = request
        self.cancelled = False
        self._deliver = deliver
        constraint = request.grammar.start() if request.grammar else None
        self._sampler = Sampler(request.sampling, constraint)
        # the prompt, or what was scored of it, then what was generated
        self.tokens = list(request.tokens[: 1 if request.scores_prompt else None])
        self.generated = 0
        # whether the prompt, or its first token, is not in the cache yet
        self.is_prefilling = True
        self.cached_tokens = 0
        self.slot: Slot | None = None
        self.has_started = self.has_ended = False

    def cancel(self) -> None:
        """End the sequence at the next step; may be called from any thread, and more than once."""
        self.cancelled = True

    def end(self, reason: FinishReason, error: Exception | None = None) -> None:
        """Free the slot and deliver `Finished`."""
        if self.slot is not None:
            self.slot.is_free = True
            self.slot = None
        self.has_ended = True
        self._send(Finished(reason, self.cached_tokens, error))

    def sample(self, logits: Logits) -> FinishReason | None:
        """Sample the next token from logits (vocab,); returns the reason if it is the last."""
        self.is_prefilling = False
        if len(self.tokens) < len(self.request.tokens):
            given = self.request.tokens[len(self.tokens)]
            self.tokens.append(given)
            self._send(self._sampler.score(logits, given))
            return None
        if not self.request.max_tokens:
            return FinishReason.LENGTH
        barred = self.request.barred_ids
        if self.generated < self.request.min_tokens:
            barred |= self.request.end_ids
        sampled = self._sampler(logits, self.tokens, len(self.request.tokens), barred)
        if sampled.token in self.request.end_ids:
            return FinishReason.STOP
        self.tokens.append(sampled.token)
        self.generated += 1
        self._send(sampled)
        if self._sampler.is_complete:
            return FinishReason.STOP
        return FinishReason.LENGTH if self.generated >= self.request.max_tokens else None

    def _send(self, event: Generated | Finished) -> None:
        try:
            self._deliver(event)
        except Exception:
            # the receiver is gone, such as a closed event loop; other sequences go on
            log.exception("a result could not be delivered")
            self.cancelled = True


class Engine:
    """Runs up to `max_running` requests at once, and queues `max_waiting` more in order.

    `slots` is the number of sequences, running or ended, whose KV caches are kept for reuse, by
    default `max_running`. Those of others are kept in up to `spilled_bytes` of host memory. The
    thread starts at once; `close` ends it.
    """

    def __init__(
        self,
        model: LanguageModel,
        max_running: int = 4,
        max_waiting: int = 64,
        slots: int | None = None,
        spilled_bytes: int = 0,
    ) -> None:
        if min(max_running, max_waiting, max_running if slots is None else slots) < 1:
            raise ValueError("max_running, max_waiting and slots must be 1 or more")
        self.model = model
        self.max_running, self.max_waiting = max_running, max_waiting
        self.max_slots = max(max_running, slots or 0)
        # least recently used first
        self._slots: list[Slot] = []
        self._spilled = PrefixStore(spilled_bytes)
        self._waiting: deque[GenerationTask] = deque()
        self._running: list[GenerationTask] = []
        self._changed = threading.Condition()
        self._closed = False
        # the thread sees the settings of the one that starts it
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: GenerationRequest, deliver: Deliver) -> GenerationTask:
        """Queue a request; `deliver` is called on the engine's thread.

        Raises ValueError for a prompt that is not valid or too long, QueueFullError,
        EngineClosedError.
        """
        self.check(request)
        task = GenerationTask(request, deliver)
        with self._changed:
            if self._closed:
                raise EngineClosedError("the server is shutting down")
            waiting = sum(not other.cancelled for other in self._waiting)
            if waiting >= self.max_waiting:
                raise QueueFullError(f"{waiting} requests are waiting already; try again later")
            self._waiting.append(task)
            self._changed.notify()
        return task

    def check(self, request: GenerationRequest) -> None:
        """Raise ValueError for a prompt that is not valid or too long."""
        check_tokens(request.tokens, self.model.vocab_size)
        count, limit = len(request.tokens), self.model.max_context
        if count > limit:
            raise ContextOverflowError(
                prompt_overflow(f"{count} tokens", limit, self.model.trained_context)
            )

    @property
    def load(self) -> tuple[int, int]:
        """The numbers of running and of waiting requests."""
        with self._changed:
            running = sum(not task.has_ended for task in self._running)
            return running, sum(not task.cancelled for task in self._waiting)

    @property
    def cache_use(self) -> tuple[int, int]:
        """The number of tokens in the KV caches, and how many they can hold."""
        caches = [slot.cache for slot in tuple(self._slots)]
        return sum(len(cache.tokens) for cache in caches), sum(cache.capacity for cache in caches)

    @property
    def spilled_bytes(self) -> int:
        """The host memory for KV caches that have no slot."""
        return self._spilled.nbytes

    def close(self) -> None:
        """End the thread after its current step; unfinished requests fail."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    # ---- on the engine's thread ----

    def _run(self) -> None:
        while self._has_work():
            self._admit()
            self._step()
        with self._changed:
            left = [*self._running, *self._waiting]
            self._waiting.clear()
        self._end(left, EngineClosedError("the server is shutting down"))

    def _has_work(self) -> bool:
        """Wait for a request; returns False once the engine is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting or self._running)
            return not self._closed

    def _admit(self) -> None:
        """Give slots to the requests at the front of the queue."""
        with self._changed:
            cancelled = [task for task in self._waiting if task.cancelled]
            self._waiting = deque(task for task in self._waiting if not task.cancelled)
            count = min(self.max_running - len(self._running), len(self._waiting))
            admitted = [self._waiting.popleft() for _ in range(count)]
            self._running += admitted
        for task in cancelled:
            task.end(FinishReason.CANCELLED)
        for task in admitted:
            self._guard([task], partial(self._take_slot, task))

    def _take_slot(self, task: GenerationTask) -> None:
        slot = self._slot_for(task.tokens)
        slot.is_free = False
        task.slot = slot

    def _slot_for(self, tokens: Sequence[int]) -> Slot:
        """The slot whose sequence a prompt continues, or a new or least recently used one."""
        free = [slot for slot in self._slots if slot.is_free]
        # of equal slots, one of the replica with the lower load
        busy = Counter(slot.cache.replica for slot in self._slots if not slot.is_free)
        best = max(
            (slot for slot in free if slot.common_prefix(tokens) == len(slot.cache.tokens)),
            key=lambda slot: (len(slot.cache.tokens), -busy[slot.cache.replica]),
            default=None,
        )
        if best is None or not best.cache.tokens:
            # any other sequence, as one that shares its system prompt, may be continued later
            if len(self._slots) < self.max_slots:
                self._slots.append(Slot(self.model.new_cache()))
                return self._slots[-1]
            best = min(free, key=lambda slot: busy[slot.cache.replica])
            self._spilled.add(best.cache)
        self._slots.remove(best)
        self._slots.append(best)
        return best

    def _take_prefix(self, task: GenerationTask, slot: Slot) -> None:
        """Copy the longest known prefix of a prompt into its slot, before it is prefilled."""
        if task.request.scores_prompt:
            slot.cache.tokens.clear()
            return
        # the last token is always computed, for its logits
        prompt = task.tokens[:-1]
        others = [other for other in self._slots if other.cache.replica == slot.cache.replica]
        source = max(others, key=lambda other: other.common_prefix(prompt))
        count = source.common_prefix(prompt)
        own, spilled = slot.common_prefix(prompt), self._spilled.find(prompt)[1]
        if max(count, spilled) >= own + COPIED_TOKENS:
            if count >= spilled:
                slot.cache.copy_prefix(source.cache, count)
            else:
                self._spilled.restore(prompt, slot.cache)
        task.cached_tokens = slot.common_prefix(prompt)

    def _step(self) -> None:
        """Prefill one chunk in each replica, and decode one token for each other sequence."""
        for task in self._running:
            if task.slot and task.cancelled:
                task.end(FinishReason.CANCELLED)
        running = [task for task in self._running if task.slot]
        decoding = [task for task in running if not task.is_prefilling]
        tokens = PREFILL_TOKENS if decoding else PREFILL_TOKENS_ALONE
        self._prefill((task for task in running if task.is_prefilling), tokens)
        decoding = [task for task in decoding if not self._ended_by_context(task)]
        if decoding:
            self._guard(decoding, partial(self._decode, decoding))
        with self._changed:
            self._running = [task for task in running if task.slot]

    def _prefill(self, prefilling: Iterable[GenerationTask], count: int) -> None:
        """Compute up to `count` tokens of the first prompt of each replica."""
        first: dict[int, GenerationTask] = {}
        for task in prefilling:
            assert task.slot is not None
            first.setdefault(task.slot.cache.replica, task)
        # all replicas start before the logits of the first are waited for
        started = [
            self._guard([task], partial(self._prefill_chunk, task, count))
            for task in first.values()
        ]
        for task, logits in zip(first.values(), started, strict=True):
            if logits is not None:
                self._advance(task, logits)

    def _prefill_chunk(self, task: GenerationTask, count: int) -> Logits | None:
        """The logits after the prompt if this chunk is its last, else None."""
        slot, tokens = task.slot, task.tokens
        assert slot is not None
        if not task.has_started:
            task.has_started = True
            self._take_prefix(task, slot)
        end = min(slot.common_prefix(tokens[:-1]) + count, len(tokens))
        logits = self.model.prefill(tokens[:end], slot.cache)
        return logits if end == len(tokens) else None

    def _ended_by_context(self, task: GenerationTask) -> bool:
        slot = task.slot
        assert slot is not None
        if len(slot.cache.tokens) < slot.cache.capacity:
            return False
        task.end(FinishReason.LENGTH)
        return True

    def _decode(self, tasks: list[GenerationTask]) -> None:
        caches = [task.slot.cache for task in tasks if task.slot]
        last = [task.tokens[-1] for task in tasks]
        logits = self.model.decode(last, caches)
        for row, task in enumerate(tasks):
            self._advance(task, logits[row])

    def _advance(self, task: GenerationTask, logits: Logits) -> None:
        self._guard([task], partial(self._sample, task, logits))

    def _sample(self, task: GenerationTask, logits: Logits) -> None:
        try:
            reason = task.sample(logits)
        except GrammarError as error:
            # the grammar is not trusted; the model and its cache are valid
            task.end(FinishReason.ERROR, error)
            return
        if reason is not None:
            task.end(reason)

    def _guard(self, tasks: list[GenerationTask], action: Callable[[], T]) -> T | None:
        """Run an action for some sequences; if it raises, these fail and no others."""
        try:
            return action()
        except Exception as error:
            log.exception("a step of the model failed")
            self._end(tasks, error)
            return None

    def _end(self, tasks: Sequence[GenerationTask], error: Exception) -> None:
        for task in tasks:
            if task.slot is not None:
                # the content of the cache is unknown
                task.slot.cache.tokens.clear()
            task.end(FinishReason.ERROR, error)
