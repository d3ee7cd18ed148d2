"""A model on the devices of several ranks: rank 0 leads, and the others follow its calls.

Input: the model of each rank, over devices of all. Output: a `LanguageModel` on rank 0, which tells
the others each call with its arguments before it makes it. Invariants: all ranks make the same
calls in one order, and keep the same values alive between them; rank 0 alone reads logits, samples
and talks to users; without calls, followers sleep.
"""

from __future__ import annotations

import gc
import itertools
import signal
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tinygrad import ranks
from tinygrad.apps.language.generation.generate import check_step, check_tokens
from tinygrad.apps.language.generation.kv_cache import HostBlock, KVCache
from tinygrad.apps.language.generation.sampling import Logits
from tinygrad.apps.language.model.replicas import Replicas
from tinygrad.apps.language.model.transformer import Transformer
from tinygrad.tensor import Tensor

# new objects after which the ranks collect cyclic garbage together, though no model call is made
GARBAGE_OBJECTS = 100_000
GARBAGE_INTERVAL_S = 5.0


class _Calls:
    """The calls of the model that every rank makes. KV caches and blocks of them go by numbers."""

    def __init__(self, model: Transformer | Replicas) -> None:
        self.model = model
        models = model.models if isinstance(model, Replicas) else (model,)
        self.home = models[0].layout.first
        self.caches: dict[int, KVCache] = {}
        self.blocks: dict[int, HostBlock] = {}
        # of the last step of each replica: what is alive is the same on all ranks
        self.logits: deque[Sequence[Tensor]] = deque(maxlen=len(models))

    def new_cache(self, number: int) -> KVCache:
        self.caches[number] = self.model.new_cache()
        return self.caches[number]

    def prefill(self, tokens: list[int], number: int, kept: int) -> Sequence[Tensor]:
        """The logits after tokens, the first `kept` of which are in the cache."""
        cache = self.caches[number]
        cache.tokens = tokens[:kept]
        return self._on_rank_0([self.model.prefill(tokens, cache)])

    def decode(self, tokens: list[int], numbers: list[int]) -> Sequence[Tensor]:
        """The logits of each cache."""
        found = self.model.decode(tokens, [self.caches[number] for number in numbers])
        return self._on_rank_0([found[row] for row in range(len(tokens))])

    def copy_prefix(self, number: int, source: int, count: int) -> None:
        self.caches[number].copy_prefix(self.caches[source], count)

    def copy_block(self, number: int, start: int, block: int) -> HostBlock:
        self.blocks[block] = self.caches[number].copy_block(start)
        return self.blocks[block]

    def write_block(self, number: int, start: int, block: int) -> None:
        self.caches[number].write_block(start, self.blocks[block])

    def drop_cache(self, number: int) -> None:
        del self.caches[number]

    def drop_block(self, block: int) -> None:
        del self.blocks[block]

    def collect_garbage(self) -> None:
        gc.collect()

    def _on_rank_0(self, rows: Sequence[Tensor]) -> Sequence[Tensor]:
        """Logits in memory of rank 0."""
        moved = [row if row.device == self.home else row.to(self.home).realize() for row in rows]
        self.logits.append(moved)
        return moved


class _LeaderLogits:
    """Logits in memory of this rank, until a later step."""

    def __init__(self, logits: Tensor) -> None:
        self._logits = weakref.ref(logits)

    def numpy(self) -> Any:
        """A copy, read without the other ranks."""
        logits = self._logits()
        assert logits is not None, "logits of a step are read before later steps"
        with ranks.alone():
            return logits.numpy()


class _LeaderBlock(HostBlock):
    """A block of a KV cache, which has a number on all ranks."""

    def __init__(self, block: HostBlock, number: int) -> None:
        super().__init__(block.memory)
        self.number = number


class _LeaderCache(KVCache):
    """A KV cache of all ranks, which has a number."""

    def __init__(self, leader: Leader, cache: KVCache, number: int) -> None:
        super().__init__(cache.memory, cache.capacity, replica=cache.replica)
        self.leader, self.number = leader, number

    def copy_prefix(self, source: KVCache, count: int) -> None:
        assert isinstance(source, _LeaderCache)
        self.leader.call("copy_prefix", self.number, source.number, count)
        self.tokens = source.tokens[:count]

    def copy_block(self, start: int) -> HostBlock:
        return self.leader.new_block(self.number, start)

    def write_block(self, start: int, block: HostBlock) -> None:
        assert isinstance(block, _LeaderBlock)
        self.leader.call("write_block", self.number, start, block.number)


class Leader:
    """The model of rank 0, a `LanguageModel` whose calls the other ranks follow.

    A call that fails ends all ranks, as it is unknown how far the others came.
    """

    def __init__(self, model: Transformer | Replicas) -> None:
        self.vocab_size, self.max_context = model.vocab_size, model.max_context
        self.trained_context = model.trained_context
        self._calls = _Calls(model)
        self._numbers = itertools.count()
        # calls that drop what nothing refers to any more, made before the next call
        self._dropped: deque[tuple[str, int]] = deque()
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        threading.Thread(target=self._collect_garbage, daemon=True).start()

    def new_cache(self) -> KVCache:
        """An empty KV cache for one sequence."""
        number = next(self._numbers)
        cache = _LeaderCache(self, self.call("new_cache", number), number)
        weakref.finalize(cache, self._dropped.append, ("drop_cache", number))
        return cache

    def new_block(self, cache: int, start: int) -> HostBlock:
        """A block of a cache, in host memory of this rank."""
        number = next(self._numbers)
        block = _LeaderBlock(self.call("copy_block", cache, start, number), number)
        weakref.finalize(block, self._dropped.append, ("drop_block", number))
        return block

    def prefill(self, tokens: Sequence[int], cache: KVCache) -> Logits:
        """Make the cache hold these tokens; returns the logits after the last, until the next step.

        Raises as `Transformer.prefill`.
        """
        assert isinstance(cache, _LeaderCache)
        tokens = check_tokens(tokens, self.vocab_size)
        cache.check_fits(len(tokens))
        kept = cache.keep_prefix(tokens[:-1])
        (logits,) = self.call("prefill", tokens, cache.number, kept)
        cache.tokens = list(tokens)
        return _LeaderLogits(logits)

    def decode(self, tokens: Sequence[int], caches: Sequence[KVCache]) -> Sequence[Logits]:
        """Add one token to each cache; returns the logits of each, valid until the next step.

        Raises as `Transformer.decode`.
        """
        tokens = check_step(tokens, caches, self.vocab_size)
        numbers = [cache.number for cache in caches if isinstance(cache, _LeaderCache)]
        found = self.call("decode", tokens, numbers)
        for token, cache in zip(tokens, caches, strict=True):
            cache.tokens.append(token)
        return [_LeaderLogits(logits) for logits in found]

    def call(self, name: str, *arguments: Any) -> Any:
        """Make a call of `_Calls` on all ranks; returns its result on this one."""
        with self._lock:
            while self._dropped:
                self._make(*self._dropped.popleft())
            return self._make(name, *arguments)

    def close(self) -> None:
        """Let the other ranks return from `follow`."""
        with self._lock:
            self._is_closed.set()
            ranks.tell(None)

    def _make(self, name: str, *arguments: Any) -> Any:
        try:
            ranks.tell((name, arguments))
            return getattr(self._calls, name)(*arguments)
        except BaseException:
            # ends all ranks, from any thread
            sys.excepthook(*sys.exc_info())
            raise

    def _collect_garbage(self) -> None:
        """Collect the garbage of requests that do not reach the model: Python does not by itself in
        a process that has joined others.
        """
        while not self._is_closed.wait(GARBAGE_INTERVAL_S):
            if gc.get_count()[0] < GARBAGE_OBJECTS:
                continue
            with self._lock:
                if not self._is_closed.is_set():
                    self._make("collect_garbage")


@contextmanager
def leading(model: Transformer | Replicas) -> Iterator[Leader]:
    """Lead the other ranks, which are in `follow`, in a `with` block."""
    leader = Leader(model)
    # the followers ignore it, so this rank must not be ended by it before it has told them
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield leader
    finally:
        leader.close()
        signal.signal(signal.SIGTERM, before)


def follow(model: Transformer | Replicas) -> None:
    """Make the calls that rank 0 makes, until it closes its model.

    Signals that the launcher sends to all ranks are for rank 0, which ends what it does first.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    calls = _Calls(model)
    while (told := ranks.listen()) is not None:
        name, arguments = told
        getattr(calls, name)(*arguments)
