"""Ranks that follow the model calls of rank 0, here in one process: what it tells is recorded."""

from __future__ import annotations

import gc
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from test.devices import device_names
from test.llm.tiny_models import VOCAB, write_model
from tinygrad import Mesh, ranks
from tinygrad.apps.language.generation.engine import Engine, Finished, GenerationRequest
from tinygrad.apps.language.generation.generate import LanguageModel, generate
from tinygrad.apps.language.generation.kv_cache import ContextOverflowError
from tinygrad.apps.language.generation.sampling import Sampling
from tinygrad.apps.language.model import followers
from tinygrad.apps.language.model.followers import Leader, follow, leading
from tinygrad.apps.language.model.replicas import load_model

# only an engine that hangs takes so long, however busy the machine is
TIMEOUT_S = 240


def replies(model: LanguageModel, groups: int) -> list[tuple[list[int], int]]:
    """The tokens of replies and the number of cached ones of their prompts. A few slots are
    shared by more conversations with one prefix, so blocks are copied to host memory and back.
    """
    random = np.random.default_rng(0)
    shared = random.integers(0, VOCAB, 70).tolist()
    prompts = [shared + random.integers(0, VOCAB, 5 + 20 * at).tolist() for at in range(3)]
    engine = Engine(model, max_running=2, slots=2 * groups, spilled_bytes=1 << 20)
    found = []
    for turn in range(2):
        events = [SimpleQueue[Any]() for _ in prompts]
        with engine._changed:
            # the engine sees all of them at once, so all runs have the same steps
            for at, (prompt, queue) in enumerate(zip(prompts, events, strict=True)):
                sampling = Sampling(temperature=at / 2, seed=turn)
                engine.submit(GenerationRequest(prompt, sampling, max_tokens=6), queue.put)
        for queue in events:
            tokens = []
            while not isinstance(event := queue.get(timeout=TIMEOUT_S), Finished):
                tokens.append(event.token)
            assert event.error is None
            found.append((tokens, event.cached_tokens))
        if not turn:
            prompts += [prompt + tokens for prompt, (tokens, _) in zip(prompts, found, strict=True)]
    engine.close()
    # a cache of its own, which is dropped
    one_by_one = generate(model, prompts[0], Sampling(temperature=1, seed=1))
    return [*found, ([next(one_by_one).token for _ in range(4)], 0)]


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"tp": 1}, {"dp": 2}])
def test_followers_make_the_calls_of_rank_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mesh: dict[str, int]
) -> None:
    path = write_model(tmp_path / "model.gguf", "llama")
    ((name, count),) = mesh.items()
    devices = Mesh((count,), (name,), device_names(count))
    model, other = (load_model(path, devices=devices)[0] for _ in range(2))
    wanted = replies(load_model(path, devices=devices)[0], count)
    told: list[Any] = []
    monkeypatch.setattr(ranks, "tell", told.append)
    with leading(model) as leader:
        assert replies(leader, count) == wanted
        gc.collect()
        led, last = leader._calls, leader.new_cache()
        calls = len(told)
        # a call that is wrong is told to nobody
        with pytest.raises(ValueError, match="not a token"):
            leader.prefill([VOCAB], last)
        with pytest.raises(ContextOverflowError):
            leader.prefill([1] * (leader.max_context + 1), last)
        assert len(told) == calls
    names = [name for name, *_ in told[:-1]]
    assert told[-1] is None
    assert {"copy_prefix", "copy_block", "write_block", "drop_cache", "drop_block"} <= {*names}
    # the caches of the engine and of `generate` are gone, and all blocks
    assert [*led.caches] == [last.number] and not led.blocks

    calls_of_other = followers._Calls(other)
    monkeypatch.setattr(followers, "_Calls", lambda model: calls_of_other)
    monkeypatch.setattr(followers.signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(ranks, "listen", iter(told).__next__)
    follow(other)
    assert [*calls_of_other.caches] == [last.number] and not calls_of_other.blocks
    for mine, theirs in zip(led.logits, calls_of_other.logits, strict=True):
        for one, same in zip(mine, theirs, strict=True):
            assert (one.numpy() == same.numpy()).all()


def test_nobody_tells_a_process_that_is_alone() -> None:
    ranks.tell("a value")
    with pytest.raises(ranks.RanksError, match="listens to nobody"):
        ranks.listen()
    assert ranks.end_all("no other ranks") is None


def test_a_call_that_fails_ends_all_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(write_model(tmp_path / "model.gguf", "llama"))[0]
    ended: list[Any] = []
    monkeypatch.setattr("sys.excepthook", lambda kind, error, traceback: ended.append(error))
    with leading(model) as leader:
        cache = leader.new_cache()
        monkeypatch.setattr(model, "prefill", lambda tokens, cache: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            leader.prefill([1, 2], cache)
    assert [str(error) for error in ended] == ["division by zero"]


def test_garbage_of_requests_is_collected_on_all_ranks_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: SimpleQueue[Any] = SimpleQueue()
    monkeypatch.setattr(ranks, "tell", told.put)
    monkeypatch.setattr(followers, "GARBAGE_INTERVAL_S", 0.01)
    leader = Leader(load_model(write_model(tmp_path / "model.gguf", "llama"))[0])
    gc.disable()
    try:
        kept = [[] for _ in range(2 * followers.GARBAGE_OBJECTS)]
        assert told.get(timeout=TIMEOUT_S) == ("collect_garbage", ())
    finally:
        gc.enable()
        leader.close()
    assert kept and told.get(timeout=TIMEOUT_S) is None
