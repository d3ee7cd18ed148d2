"""Continuous batching: requests get their own tokens, slots are freed, prefixes are reused."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator

import pytest

from test.llm.fake_model import END, FakeModel, checksum, replies_for_ever
from tinygrad.apps.language.generation.engine import (
    Engine,
    EngineClosedError,
    Finished,
    FinishReason,
    GenerationRequest,
    GenerationTask,
    QueueFullError,
)
from tinygrad.apps.language.generation.sampling import Generated, Sampling

TIMEOUT_S = 120
ENDLESS = replies_for_ever("x")
# of sequences that only a test ends
NO_LIMIT = 1 << 40


@pytest.fixture
def start() -> Iterator[Callable[..., Engine]]:
    """Starts engines, and closes them after the test."""
    engines: list[Engine] = []

    def starting(model: FakeModel, **options: int) -> Engine:
        engines.append(Engine(model, **options))
        return engines[-1]

    yield starting
    for engine in engines:
        engine.close()


class Asked:
    """A request and its output."""

    def __init__(self, engine: Engine, prompt: str, max_tokens: int = 100) -> None:
        self.events: queue.SimpleQueue[Generated | Finished] = queue.SimpleQueue()
        tokens = list(prompt.encode())
        request = GenerationRequest(tokens, Sampling(), max_tokens, frozenset([END]))
        self.generation: GenerationTask = engine.submit(request, self.events.put)

    def next(self) -> Generated | Finished:
        return self.events.get(timeout=TIMEOUT_S)

    def result(self) -> tuple[str, Finished]:
        """The rest of the text, and the finish reason."""
        text = b""
        while isinstance(event := self.next(), Generated):
            text += bytes([event.token])
        assert self.events.empty()
        return text.decode(), event


def all_at_once(engine: Engine, prompts: Iterable[str], max_tokens: int = 100) -> list[Asked]:
    """Requests that the engine sees together, however slowly this thread runs."""
    with engine._changed:
        return [Asked(engine, prompt, max_tokens) for prompt in prompts]


def test_batched_sequences_get_their_own_tokens(start: Callable[..., Engine]) -> None:
    model = FakeModel()
    engine = start(model, max_running=4)
    prompts = [f"prompt {number} " * (number % 7 + 1) for number in range(40)]
    asked = all_at_once(engine, prompts)
    for prompt, one in zip(prompts, asked, strict=True):
        text, finished = one.result()
        assert (text, finished.reason) == (checksum(prompt.encode()), FinishReason.STOP)
    assert max(model.batches) == 4
    assert len(model.caches) == 4
    assert engine.load == (0, 0)


def test_a_length_ends_a_sequence(start: Callable[..., Engine]) -> None:
    engine = start(FakeModel(ENDLESS))
    assert Asked(engine, "a", max_tokens=3).result() == ("xxx", Finished(FinishReason.LENGTH))


def test_a_full_context_ends_a_sequence(start: Callable[..., Engine]) -> None:
    model = FakeModel(ENDLESS, max_context=10)
    engine = start(model)
    text, finished = Asked(engine, "12345678").result()
    assert (text, finished.reason) == ("xxx", FinishReason.LENGTH)
    text, finished = Asked(engine, "1234567890").result()
    assert (text, finished.reason) == ("x", FinishReason.LENGTH)
    with pytest.raises(
        ValueError, match="11 tokens, and the context of the model 10 tokens; shorten it$"
    ):
        Asked(engine, "12345678901")
    model.trained = 20
    with pytest.raises(ValueError, match="give a larger --max-context: the model has 20$"):
        Asked(engine, "12345678901")
    with pytest.raises(ValueError, match="no tokens to continue"):
        Asked(engine, "")


def test_a_cached_prefix_is_not_computed_again(start: Callable[..., Engine]) -> None:
    model = FakeModel()
    engine = start(model, max_running=2)
    first, second = "first " * 30, "second " * 30
    for conversation in (first, second):
        Asked(engine, conversation).result()
    model.read.clear()
    for conversation in (first, second):
        longer = conversation + checksum(conversation.encode()) + " and then"
        text, finished = Asked(engine, longer).result()
        assert text == checksum(longer.encode())
        # the last token of the reply was not in the cache
        assert finished.cached_tokens == len(longer) - len("N and then") + 1
    assert model.read == [len(" and then")] * 2
    assert len(model.caches) == 2


def test_a_shared_system_prompt_does_not_replace_a_conversation(
    start: Callable[..., Engine],
) -> None:
    model = FakeModel()
    engine = start(model, max_running=3)
    system = "be brief. "
    Asked(engine, system + "a" * 100).result()
    Asked(engine, system + "b" * 100).result()
    _, finished = Asked(engine, system + "a" * 100).result()
    assert finished.cached_tokens == 109


def test_conversations_that_share_a_system_prompt_read_it_once(
    start: Callable[..., Engine],
) -> None:
    model = FakeModel()
    engine = start(model, max_running=2, slots=3)
    conversations = [f"{'be brief. ' * 20}{name * 20}" for name in "abc"]
    for turn in range(3):
        for number, conversation in enumerate(conversations):
            model.read.clear()
            text, _ = Asked(engine, conversation).result()
            assert text == checksum(conversation.encode())
            if turn or number:
                assert sum(model.read) <= 31
            conversations[number] = conversation + text + str(turn) * 20


@pytest.mark.parametrize("memory", [1 << 20, 600, 0])
def test_a_slot_that_another_sequence_takes_keeps_its_content_in_host_memory(
    start: Callable[..., Engine], memory: int
) -> None:
    model = FakeModel()
    engine = start(model, max_running=1, spilled_bytes=memory)
    shared = "be brief. " * 20
    conversations = [shared + name * 20 for name in "abc"]
    reads: list[list[int]] = [[] for _ in conversations]
    for turn in range(4):
        for number, conversation in enumerate(conversations):
            model.read.clear()
            text, finished = Asked(engine, conversation).result()
            assert text == checksum(conversation.encode())
            assert finished.cached_tokens == len(conversation) - sum(model.read)
            assert engine.spilled_bytes <= memory
            reads[number].append(sum(model.read))
            conversations[number] = conversation + text + str(turn) * 20
    # a reply of up to 9 tokens, whose last one was not in the cache, and the message after it
    flat = [count for turns in reads for count in turns[1:] if count <= 21]
    if memory > 1000:
        assert len(flat) == 9
        assert all(turns[0] <= 20 for turns in reads[1:])
        # 220 to 310 tokens of 4 bytes each; the blocks of the shared prefix are there once
        blocks = [len(text) // 64 + 1 for text in conversations]
        assert engine.spilled_bytes <= 4 * 64 * (sum(blocks) - 2 * (len(shared) // 64))
        copied = sum(cache.copied for cache in model.caches)
        assert copied <= 3 + 3 * 4 * 2
    else:
        assert not flat


def test_several_replies_read_their_prompt_once(start: Callable[..., Engine]) -> None:
    model = FakeModel()
    engine = start(model, max_running=4)
    prompt = "a long prompt " * 20
    asked = all_at_once(engine, [prompt] * 4)
    assert {one.result()[0] for one in asked} == {checksum(prompt.encode())}
    assert sum(model.read) == len(prompt) + 3


def test_replicas_have_equal_load(start: Callable[..., Engine]) -> None:
    groups: list[list[int]] = []

    class Pair(FakeModel):
        def new_cache(self):
            cache = super().new_cache()
            cache.replica = len(self.caches) // 3
            return cache

        def decode(self, tokens, caches):
            groups.append([cache.replica for cache in caches])
            return super().decode(tokens, caches)

    engine = start(Pair(), max_running=2, slots=4)
    for letter in "abcd":
        Asked(engine, letter * 20).result()
    groups.clear()
    # of slots without a prefix of a prompt, the two least recently used are in one replica
    asked = all_at_once(engine, ["x" * 200, "y" * 200])
    assert [one.result()[0] for one in asked] == [checksum(b"x" * 200), checksum(b"y" * 200)]
    assert [0, 1] in groups and [0, 0] not in groups


def test_a_long_prompt_does_not_block_other_sequences(start: Callable[..., Engine]) -> None:
    events: list[str] = []

    class Noting(FakeModel):
        def prefill(self, tokens, cache):
            events.append("read")
            return super().prefill(tokens, cache)

        def decode(self, tokens, caches):
            events.append("write")
            return super().decode(tokens, caches)

    engine = start(Noting(ENDLESS, max_context=4096))
    writing, reading = all_at_once(engine, ["a", "b" * 2000], max_tokens=40)
    assert reading.result()[0] == writing.result()[0] == "x" * 40
    # after the first prompt
    parts = "".join(event[0] for event in events)[1:].strip("w")
    assert parts.count("r") == 32
    assert "rr" not in parts


def test_a_cancelled_sequence_frees_its_slot(start: Callable[..., Engine]) -> None:
    engine = start(FakeModel(ENDLESS, max_context=NO_LIMIT, step_s=0.001), max_running=1)
    first, second = Asked(engine, "a", NO_LIMIT), Asked(engine, "b", 2)
    first.next()
    first.generation.cancel()
    assert first.result()[1].reason == FinishReason.CANCELLED
    assert second.result()[0] == "xx"


def test_a_cancelled_waiting_request_never_runs(start: Callable[..., Engine]) -> None:
    model = FakeModel(ENDLESS, max_context=NO_LIMIT, step_s=0.001)
    engine = start(model, max_running=1, max_waiting=1)
    first = Asked(engine, "a", NO_LIMIT)
    first.next()
    second = Asked(engine, "b")
    with pytest.raises(QueueFullError, match="1 requests are waiting already; try again later"):
        Asked(engine, "c")
    second.generation.cancel()
    assert second.result() == ("", Finished(FinishReason.CANCELLED))
    Asked(engine, "d")  # a slot is free again
    first.generation.cancel()


def test_a_failing_step_fails_only_its_own_sequences(start: Callable[..., Engine]) -> None:
    model = FakeModel()
    engine = start(model, max_running=1)
    model.fails = RuntimeError("out of memory")
    text, finished = Asked(engine, "a").result()
    assert (text, finished.reason, str(finished.error)) == ("", FinishReason.ERROR, "out of memory")
    assert Asked(engine, "a").result()[0] == checksum(b"a")


def test_a_receiver_may_be_gone(start: Callable[..., Engine]) -> None:
    engine = start(FakeModel(), max_running=1)

    def deliver(event: Generated | Finished) -> None:
        raise RuntimeError("the loop is closed")

    engine.submit(GenerationRequest([1], Sampling(), 9), deliver)
    assert Asked(engine, "a").result()[0] == checksum(b"a")


def test_a_closed_engine_fails_its_requests(start: Callable[..., Engine]) -> None:
    engine = start(FakeModel(ENDLESS, max_context=NO_LIMIT, step_s=0.001), max_running=1)
    running, waiting = Asked(engine, "a", NO_LIMIT), Asked(engine, "b")
    running.next()
    engine.close()
    for one in (running, waiting):
        finished = one.result()[1]
        assert isinstance(finished.error, EngineClosedError)
    with pytest.raises(EngineClosedError, match="shutting down"):
        Asked(engine, "c")
