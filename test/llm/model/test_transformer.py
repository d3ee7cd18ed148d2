"""Models of every family against numpy: whole sequences, chunked prefill, and decoding."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from test.devices import device_names
from test.llm.reference import Reference
from test.llm.tiny_models import CONTEXT, RECIPES, VOCAB, write_model
from tinygrad import Context, Device, GlobalCounters, Tensor
from tinygrad.apps.language.generation.engine import Engine, Finished, GenerationRequest
from tinygrad.apps.language.generation.kv_cache import ContextOverflowError, KVCache
from tinygrad.apps.language.generation.sampling import Generated, Sampling
from tinygrad.apps.language.model import limits
from tinygrad.apps.language.model.config import UnsupportedModelError, read_config
from tinygrad.apps.language.model.transformer import PREFILL_CHUNK, Transformer
from tinygrad.dtype import DType, dtypes
from tinygrad.execution.realize import compiled_kernels
from tinygrad.nn.state import FileFormatError

# sums of hundreds of products in float32, layer after layer
CLOSE: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-4}
LONG = 2 * PREFILL_CHUNK + 22


def tokens_of(length: int, seed: int = 0) -> list[int]:
    found: list[int] = np.random.default_rng(seed).integers(0, VOCAB, length).tolist()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def path(folder: Path) -> Path:
    return write_model(folder / "model.gguf", "llama")


@pytest.fixture(scope="module")
def loaded(path: Path) -> Iterator[Transformer]:
    model, _ = Transformer.from_gguf(path)
    yield model


@pytest.fixture(scope="module")
def expected(path: Path) -> Any:
    """The logits at each position of `tokens_of(LONG)`."""
    return Reference(path).logits(tokens_of(LONG))


# ---- families ----


# families whose kernels take long to compile, and have much in common with others
SLOW_FAMILIES = {"qwen2", "qwen3moe", "gemma", "gemma2", "gemma3", "olmoe", "phi3", "phi3, long"}
FAMILIES = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW_FAMILIES else [])
    for name in RECIPES
]


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_family_has_the_logits_of_the_reference(architecture: str, folder: Path):
    path = write_model(folder / f"{architecture}.gguf", architecture)
    model, metadata = Transformer.from_gguf(path)
    tokens = tokens_of(23)
    expected = Reference(path).logits(tokens)
    assert metadata["general.architecture"] == architecture.partition(",")[0]
    np.testing.assert_allclose(model(Tensor([tokens])).numpy()[0], expected, **CLOSE)
    cache = model.new_cache()
    # a prompt of one chunk, then tokens through an eager step, a capture and replays
    np.testing.assert_allclose(model.prefill(tokens[:18], cache).numpy(), expected[17], **CLOSE)
    for i in range(18, 23):
        logits = model.decode([tokens[i]], [cache])
        np.testing.assert_allclose(logits.numpy()[0], expected[i], **CLOSE)
    assert cache.tokens == tokens


def test_a_batch_of_sequences_has_the_logits_of_each(loaded: Transformer, path: Path):
    batch = [tokens_of(9, seed) for seed in range(3)]
    found = loaded(Tensor(batch)).numpy()
    reference = Reference(path)
    np.testing.assert_allclose(found, [reference.logits(tokens) for tokens in batch], **CLOSE)


# ---- chunked prefill and the KV cache ----


def test_a_prompt_of_several_chunks(loaded: Transformer, expected: Any):
    cache = loaded.new_cache()
    logits = loaded.prefill(tokens_of(LONG), cache)
    np.testing.assert_allclose(logits.numpy(), expected[-1], **CLOSE)
    assert cache.tokens == tokens_of(LONG)


@pytest.mark.parametrize(
    "dtype", [dtypes.float16, pytest.param(dtypes.bfloat16, marks=pytest.mark.slow)]
)
def test_a_cache_of_half_precision_is_half_as_large(path: Path, expected: Any, dtype: DType):
    model, _ = Transformer.from_gguf(path, cache_dtype=dtype)
    cache, tokens = model.new_cache(), tokens_of(70)
    assert (cache.memory.dtype, 2 * cache.memory.nbytes()) == (dtype, 4 * cache.memory.numel())
    found = [model.prefill(tokens[:68], cache).numpy()]
    found += [model.decode([token], [cache])[0].numpy() for token in tokens[68:]]
    # keys and values are rounded once; logits are sums of hundreds of their products
    error = 2.0 ** -dtypes.finfo(dtype)[1] * np.abs(expected).max()
    np.testing.assert_allclose(found, expected[67:70], atol=4 * error)


def test_the_default_cache_is_of_half_precision_unless_models_are_exact(path: Path):
    for exact, dtype in ((0, dtypes.float16), (1, dtypes.float32)):
        with Context(LLM_EXACT=exact):
            model, _ = Transformer.from_gguf(path, max_context=20)
        assert model.new_cache().memory.dtype == dtype


def computed_positions(model: Transformer, tokens: list[int], cache: KVCache) -> list[int]:
    """The positions whose keys and values `prefill` computes."""
    cache.memory.assign(cache.memory.full_like(float("nan"))).realize()
    model.prefill(tokens, cache).realize()
    # those of the first layer depend on one token each
    first_layer = np.isfinite(cache.memory[0].numpy()).all(axis=(0, 1, 3))
    return np.flatnonzero(first_layer[: len(tokens)]).tolist()


def test_only_tokens_outside_the_cache_are_computed(loaded: Transformer, expected: Any):
    tokens, cache = tokens_of(LONG), loaded.new_cache()
    other = [*tokens[:90], 1, 2, 3]
    kept = 91 if tokens[90] == 1 else 90
    loaded.prefill(other, cache)
    logits = loaded.prefill(tokens, cache)
    np.testing.assert_allclose(logits.numpy(), expected[-1], **CLOSE)
    # all of it is cached, yet its logits are needed
    logits = loaded.prefill(tokens[:70], cache)
    np.testing.assert_allclose(logits.numpy(), expected[69], **CLOSE)
    assert cache.tokens == tokens[:70]
    loaded.prefill(other, cache)
    assert computed_positions(loaded, tokens, cache) == list(range(kept, LONG))
    assert computed_positions(loaded, tokens[:70], cache) == [69]


def test_one_capture_serves_all_positions(loaded: Transformer, expected: Any):
    tokens, cache = tokens_of(LONG), loaded.new_cache()
    loaded.prefill(tokens, cache)
    for _ in range(3):
        loaded.decode([1], [cache])
    captures = {key: step.captured for key, step in loaded.steps.items()}
    assert set(captures) >= {(1, 1), (1, PREFILL_CHUNK)}
    before, kernels = len(compiled_kernels), GlobalCounters.kernel_count
    other = loaded.new_cache()
    loaded.prefill(tokens[:100], other)
    for i in range(100, 110):
        logits = loaded.decode([tokens[i]], [other])
    np.testing.assert_allclose(logits.numpy()[0], expected[109], **CLOSE)
    assert {key: step.captured for key, step in loaded.steps.items()} == captures
    assert len(compiled_kernels) == before
    assert GlobalCounters.kernel_count > kernels


@pytest.mark.slow
def test_kernels_are_the_same_in_all_layers_and_captured_at_once(folder: Path):
    # gemma 3 has two kinds of layers; the model has seven layers
    path = write_model(folder / "gemma3.gguf", "gemma3", seed=1)
    model, _ = Transformer.from_gguf(path)
    cache = model.new_cache()
    compiled_kernels.clear()
    model.decode([1], [cache]).realize()
    assert len(compiled_kernels) < 45
    (step,) = model.steps.values()
    captured = step.captured
    assert captured is not None
    compiled_kernels.clear()
    model.decode([1], [cache]).realize()
    assert not compiled_kernels and step.captured is captured


# ---- batches of sequences ----


@pytest.mark.slow
def test_sequences_of_different_lengths_are_decoded_together(loaded: Transformer, expected: Any):
    tokens = tokens_of(LONG)
    starts = [3, 40, 77]
    caches = [loaded.new_cache() for _ in starts]
    for start, cache in zip(starts, caches, strict=True):
        loaded.prefill(tokens[:start], cache)
    for step in range(4):
        logits = loaded.decode([tokens[start + step] for start in starts], caches).numpy()
        for row, start in enumerate(starts):
            np.testing.assert_allclose(logits[row], expected[start + step], **CLOSE)
    assert [len(cache.tokens) for cache in caches] == [start + 4 for start in starts]
    # in any order, and others may join
    logits = loaded.decode([tokens[44], tokens[7]], [caches[1], caches[0]]).numpy()
    np.testing.assert_allclose(logits, expected[[44, 7]], **CLOSE)


# ---- generation ----


def test_generated_tokens_are_the_greedy_tokens_of_the_reference(loaded: Transformer, path: Path):
    prompt = tokens_of(12)
    found = list(itertools.islice(loaded.generate(prompt, Sampling(logprobs=3)), 20))
    tokens = prompt + [x.token for x in found]
    logits = Reference(path).logits(tokens[:-1])[len(prompt) - 1 :].astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    assert [x.token for x in found] == logits.argmax(-1).tolist()
    np.testing.assert_allclose([x.logprob for x in found], logprobs.max(-1), atol=1e-4)
    for x, row in zip(found, logprobs, strict=True):
        assert x.top is not None
        assert [token for token, _ in x.top] == np.argsort(-row)[:3].tolist()


def test_a_cache_is_reused_after_its_iterator_was_dropped(loaded: Transformer):
    prompt, cache = tokens_of(12), loaded.new_cache()
    whole = [x.token for x in itertools.islice(loaded.generate(prompt), 9)]
    first = [x.token for x in itertools.islice(loaded.generate(prompt, cache=cache), 4)]
    assert first == whole[:4]
    assert cache.tokens == prompt + whole[:3]
    later = loaded.generate(prompt + whole[:4], cache=cache)
    assert [x.token for x in itertools.islice(later, 5)] == whole[4:]


def test_a_prefix_is_copied_from_another_cache(loaded: Transformer):
    tokens, source, cache = tokens_of(LONG), loaded.new_cache(), loaded.new_cache()
    expected = loaded.prefill(tokens, source).numpy()
    for count in (LONG - 1, 20):
        cache.copy_prefix(source, count)
        assert cache.tokens == tokens[:count]
        np.testing.assert_allclose(loaded.prefill(tokens, cache).numpy(), expected, **CLOSE)
    # the source is as it was
    assert source.tokens == tokens
    np.testing.assert_allclose(loaded.prefill(tokens, source).numpy(), expected, **CLOSE)


def test_a_full_context_is_an_error(path: Path):
    model, _ = Transformer.from_gguf(path, max_context=20)
    cache = model.new_cache()
    found = model.generate(tokens_of(15), cache=cache)
    for _ in range(6):
        next(found)
    with pytest.raises(ContextOverflowError, match="21 tokens is longer than the context .* 20"):
        next(found)
    assert len(cache.tokens) == 20
    with pytest.raises(ContextOverflowError, match="a larger max_context"):
        model.generate(tokens_of(21))
    with pytest.raises(ContextOverflowError):
        model.prefill(tokens_of(21), cache)
    other = model.new_cache()
    with pytest.raises(ContextOverflowError):
        model.decode([1, 2], [other, cache])
    assert other.tokens == [] and len(cache.tokens) == 20


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16])
def test_a_context_that_no_memory_holds_is_an_error_that_names_the_limit(
    path: Path, monkeypatch: pytest.MonkeyPatch, count: int, dtype: DType
):
    devices = device_names(count)
    model, _ = Transformer.from_gguf(path, 20, devices, dtype)
    memory = model.new_cache().memory
    # that of a GPU is not the host's
    on_host = Device[devices[0]].allocator.addressable
    cache_bytes = on_host * memory.nbytes() // int(memory.shape[3])
    most = 10**9 // (cache_bytes + 8 * model.config.rope.dim)
    monkeypatch.setattr(limits, "memory_limit", lambda: 10**9)
    for context in (most + 1, 10**21):
        expected = f"a context of {context} tokens needs .* GB .*; give .* at most {most}$"
        with pytest.raises(MemoryError, match=expected):
            Transformer.from_gguf(path, context, devices, dtype)
    limits.check_context(model.config, model.layout, most, dtype)


def test_the_default_context_is_that_of_the_model(loaded: Transformer):
    assert loaded.max_context == loaded.trained_context == CONTEXT
    assert loaded.new_cache().capacity == CONTEXT


@pytest.mark.parametrize("count", [1, 2])
def test_the_default_context_is_shorter_where_memory_is_short(
    path: Path, monkeypatch: pytest.MonkeyPatch, count: int
):
    devices = device_names(count)
    model, _ = Transformer.from_gguf(path, 20, devices)
    cache = model.new_cache().memory
    token_bytes = cache.nbytes() // int(cache.shape[3]) // count
    # three sequences of half of the context in half of the memory
    tokens = 2 * 3 * CONTEXT // 2
    memory = tokens * (count * token_bytes + 8 * model.config.rope.dim)
    monkeypatch.setattr(limits, "memory_limit", lambda: memory)
    allocator = Device[devices[0]].allocator
    if not allocator.addressable:
        monkeypatch.setattr(type(allocator), "limit", lambda _: tokens * token_bytes)
    model, _ = Transformer.from_gguf(path, devices=devices, sequences=3)
    assert (model.max_context, model.trained_context) == (CONTEXT // 2, CONTEXT)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [([], "there are no tokens"), ([0, VOCAB], "70 is not a token"), ([-1], "-1 is not a token")],
)
def test_unknown_tokens_are_errors(loaded: Transformer, tokens: list[int], message: str):
    with pytest.raises(ValueError, match=message):
        loaded.generate(tokens)
    with pytest.raises(ValueError, match=message):
        loaded.prefill(tokens, loaded.new_cache())


def test_decode_takes_one_token_for_each_cache(loaded: Transformer):
    with pytest.raises(ValueError, match="decode of 2 tokens and 1 caches"):
        loaded.decode([1, 2], [loaded.new_cache()])


# ---- files ----


def test_weights_stay_in_the_file(folder: Path):
    # a file that nothing has read before
    path = write_model(folder / "mapped.gguf", "llama", seed=1)
    before = GlobalCounters.mem_used
    model, _ = Transformer.from_gguf(path, max_context=32)
    # the tables of cosines and sines, and the vectors of five norms
    rotary = 2 * (32 + PREFILL_CHUNK) * 16 * 4
    assert GlobalCounters.mem_used - before <= rotary + 5 * model.config.dim * 4


@pytest.mark.slow
def test_a_file_in_memory_is_a_model_too(path: Path, loaded: Transformer):
    model, _ = Transformer.from_gguf(Tensor(path.read_bytes()))
    tokens = Tensor([tokens_of(5)])
    np.testing.assert_array_equal(model(tokens).numpy(), loaded(tokens).numpy())


def test_a_file_without_a_weight_is_an_error(folder: Path):
    gguf = pytest.importorskip("gguf")
    path = folder / "lacking.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key in ("block_count", "context_length", "embedding_length", "feed_forward_length"):
        writer.add_uint32(f"llama.{key}", 32)
    writer.add_uint32("llama.attention.head_count", 2)
    writer.add_tensor("token_embd.weight", np.zeros((5, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(FileFormatError, match=r"the file has no weight blk\.0\.attn_q\.weight"):
        Transformer.from_gguf(path)


@pytest.mark.slow
def test_a_model_split_into_several_files_is_the_same_model(
    folder: Path, path: Path, loaded: Transformer
):
    write_model(folder / "split.gguf", "llama", weights_per_file=10)
    files = sorted(folder.glob("split-*.gguf"))
    assert len(files) == 3
    tokens = Tensor([tokens_of(20)])
    whole = loaded(tokens).numpy()
    for devices in (None, device_names(2)):
        model, metadata = Transformer.from_gguf(files[1], devices=devices)
        assert metadata["split.tensors.count"] == 21
        np.testing.assert_allclose(model(tokens).numpy(), whole, **CLOSE)
    with pytest.raises(FileFormatError, match="a model of 3 files, of which 1 are there"):
        Transformer.from_gguf(Tensor(files[0].read_bytes()))
    files[2].write_bytes(files[1].read_bytes())
    with pytest.raises(FileFormatError, match="21 weights in 3 files, .*not of one model"):
        Transformer.from_gguf(files[0])


def test_an_unknown_architecture_is_an_error_that_names_the_known_ones(folder: Path):
    gguf = pytest.importorskip("gguf")
    path = folder / "unknown.gguf"
    writer = gguf.GGUFWriter(path, "cuneiform")
    writer.add_tensor("token_embd.weight", np.zeros((5, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match="'cuneiform' are not supported.*qwen3moe"):
        Transformer.from_gguf(path)


@pytest.mark.parametrize(
    ("keys", "factor"),
    [
        ({}, 1.0),
        ({"rope.scale_linear": 4.0}, 4.0),
        ({"rope.scaling.factor": 4.0}, 4.0),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, 4.0),
        ({"rope.scaling.factor": 2.0, "rope.scale_linear": 4.0}, 2.0),
        ({"rope.scaling.type": "none", "rope.scale_linear": 4.0}, 1.0),
    ],
)
def test_positions_are_scaled_by_the_keys_of_new_and_old_files(keys: Any, factor: float):
    sizes = {"block_count": 2, "context_length": 64, "embedding_length": 8}
    sizes |= {"feed_forward_length": 16, "attention.head_count": 2}
    metadata = {f"llama.{key}": value for key, value in {**sizes, **keys}.items()}
    assert read_config({"general.architecture": "llama", **metadata}, 100).rope.factor == factor


# ---- the engine with a model ----


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "dtype"),
    [
        (None, dtypes.float32),
        pytest.param(("CPU:0", "CPU:1"), dtypes.float16, marks=pytest.mark.slow),
    ],
)
def test_sequences_continue_from_host_memory_and_prompts_are_scored(
    path: Path, devices: Any, dtype: DType
) -> None:
    model, _ = Transformer.from_gguf(path, devices=devices, cache_dtype=dtype)
    prompts = [tokens_of(90), tokens_of(90, 1)]
    alone = [[found.token for found in itertools.islice(model.generate(x), 6)] for x in prompts]
    engine = Engine(model, max_running=1, spilled_bytes=1 << 24)

    def ask(tokens: list[int], **wanted: Any) -> tuple[list[Generated], Finished]:
        events: SimpleQueue[Any] = SimpleQueue()
        engine.submit(GenerationRequest(tokens, Sampling(logprobs=1), 3, **wanted), events.put)
        found = []
        while isinstance(event := events.get(timeout=240), Generated):
            found.append(event)
        return found, event

    try:
        for turn in range(2):
            for prompt, expected in zip(prompts, alone, strict=True):
                found, finished = ask(prompt + expected[: 3 * turn])
                assert [one.token for one in found] == expected[3 * turn : 3 * turn + 3]
                assert finished.cached_tokens == (92 if turn else 0)
        assert engine.spilled_bytes > 0
        scored, _ = ask(prompts[0], scores_prompt=True)
    finally:
        engine.close()
    logits = model(Tensor([prompts[0]])).numpy()[0].astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    assert [one.token for one in scored] == prompts[0][1:] + alone[0][:3]
    expected = logprobs[range(89), prompts[0][1:]]
    # keys and values of float16 change the third digit
    close = CLOSE if dtype == dtypes.float32 else {"rtol": 2e-2, "atol": 2e-2}
    np.testing.assert_allclose([one.logprob for one in scored[:89]], expected, **close)
    if dtype == dtypes.float32:
        assert [one.top[0][0] for one in scored[:89]] == logits[:89].argmax(-1).tolist()
