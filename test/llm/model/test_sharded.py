"""Language models on several devices: logits equal those on one device; bytes of communication."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from test.devices import device_names
from test.llm.reference import Reference
from test.llm.tiny_models import DIM, HEAD_DIM, HEADS, LAYERS, VOCAB, write_model
from tinygrad import Device, Mesh, Tensor
from tinygrad.apps.language.generation.engine import Engine, GenerationRequest
from tinygrad.apps.language.generation.sampling import Sampling
from tinygrad.apps.language.model.config import read_config
from tinygrad.apps.language.model.feed_forward import hidden_blocks
from tinygrad.apps.language.model.layouts import ModelLayout
from tinygrad.apps.language.model.replicas import Replicas, load_model
from tinygrad.apps.language.model.transformer import Transformer
from tinygrad.apps.language.model.weights import WeightFile
from tinygrad.execution import CommTrace
from tinygrad.sharding import Sharding, ShardingError

CLOSE: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-4}
DEVICES = device_names(6)
TOKENS: list[int] = np.random.default_rng(0).integers(0, VOCAB, 20).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def model_of(folder: Path, architecture: str) -> tuple[Path, Any]:
    path = folder / f"{architecture}.gguf"
    if not path.exists():
        write_model(path, architecture)
    return path, Reference(path).logits(TOKENS)


# three key heads over two and four devices do not divide, nor do the five blocks of the hidden
# vector, nor the vocabulary of 70 over three and four; gemma has one key head
@pytest.mark.sample(8, values=False)
@pytest.mark.parametrize(
    ("architecture", "count"),
    [
        ("llama", 2),
        ("llama", 3),
        ("llama", 4),
        ("qwen2", 3),
        ("olmoe", 2),
        ("phi3", 2),
        ("gemma", 2),
    ],
)
def test_a_sharded_model_has_the_logits_of_the_reference(
    folder: Path, architecture: str, count: int
):
    path, expected = model_of(folder, architecture)
    model, _ = Transformer.from_gguf(path, devices=DEVICES[:count])
    cache = model.new_cache()
    np.testing.assert_allclose(model.prefill(TOKENS[:15], cache).numpy(), expected[14], **CLOSE)
    for i in range(15, 20):
        logits = model.decode([TOKENS[i]], [cache])
        np.testing.assert_allclose(logits.numpy()[0], expected[i], **CLOSE)


@pytest.mark.parametrize("architecture", ["llama", "qwen3moe"])
def test_more_devices_than_heads_or_blocks_of_hidden_vectors_are_an_error_at_once(
    folder: Path, architecture: str
):
    path = write_model(folder / f"{architecture}.gguf", architecture)
    file = WeightFile(path, ModelLayout(None))
    config = read_config(file.metadata, file.shape("token_embd.weight")[0])
    limit = max(config.heads, hidden_blocks(file, 0))
    for devices in (
        device_names(999),
        Mesh((2, limit + 1), ("dp", "tp"), device_names(2 * limit + 2)),
    ):
        expected = f"devices are too many .* over {limit} devices"
        with pytest.raises(ShardingError, match=expected):
            load_model(path, devices=devices)
    model, _ = load_model(path, devices=device_names(limit))
    assert isinstance(model, Transformer) and model.layout.shard_count == limit


@pytest.mark.slow
def test_heads_that_cut_blocks_are_gathered(folder: Path, monkeypatch: pytest.MonkeyPatch):
    path, expected = model_of(folder, "llama")
    # then no unit of heads, of 64 columns, consists of whole blocks
    monkeypatch.setattr(WeightFile, "elements_per_block", lambda self, name: 96)
    model, _ = Transformer.from_gguf(path, devices=DEVICES[:2])
    logits = model.prefill(TOKENS[:4], model.new_cache())
    np.testing.assert_allclose(logits.numpy(), expected[3], **CLOSE)
    np.testing.assert_allclose(model(Tensor([TOKENS])).numpy()[0], expected, **CLOSE)


@pytest.mark.slow
def test_each_layer_has_two_all_reduces_and_no_other_messages(folder: Path):
    path, _ = model_of(folder, "llama")
    trace = trace_of_a_step(path, 3)
    sums = [record for record in trace.records if record.kind == "all_reduce"]
    # after attention, after the feed-forward network, and for the row of the embedding
    assert len(sums) == 2 * LAYERS + 1
    vectors = 2 * LAYERS * 6 * DIM * 4
    assert sum(record.nbytes for record in sums) - vectors < 6 * DIM * 4
    # the token is received, the logits are sent
    kinds = trace.kinds()
    assert kinds.keys() <= {"all_reduce", "broadcast", "gather"}
    assert kinds["gather"] == (VOCAB - -(-VOCAB // 3)) * 4


def test_heads_that_do_not_divide_reshard_vectors_and_pad_no_weight(folder: Path):
    path, _ = model_of(folder, "llama")
    model, _ = Transformer.from_gguf(path, devices=DEVICES[:2])
    attention, heads = model.layers[0].attention, HEADS * HEAD_DIM
    for part, rows in (
        (attention.query, heads),
        (attention.key, heads // 2),
        (attention.output, DIM),
    ):
        blocks = part.matrix.blocks
        assert isinstance(blocks.device, Sharding) and blocks.device.is_even(blocks.shape)
        assert blocks.shape[0] == rows
    trace = trace_of_a_step(path, 2)
    kinds = trace.kinds()
    assert kinds.pop("all_reduce") <= (LAYERS + 1) * 2 * DIM * 4
    # each device sends its shards of queries, keys, values, the attention of four groups, output
    vectors = heads + heads // 2 + heads // 2 + 4 * heads // 3 + DIM
    assert sum(kinds.values()) <= (LAYERS * vectors + VOCAB) * 4


def trace_of_a_step(path: Path, count: int) -> CommTrace:
    model, _ = Transformer.from_gguf(path, devices=DEVICES[:count])
    cache = model.new_cache()
    model.decode([1], [cache]).realize()
    with CommTrace() as trace:
        model.decode([2], [cache]).realize()
    return trace


def test_each_device_has_its_shard_of_the_weights_and_the_cache(folder: Path):
    path, _ = model_of(folder, "llama")
    model, _ = Transformer.from_gguf(path, devices=DEVICES[:2])
    layer = model.layers[0]
    split = {
        "query": layer.attention.query.matrix.blocks,
        "output": layer.attention.output.matrix.values(),
        "embedding": model.embedding.blocks,
        "cache": model.new_cache().memory,
    }
    for name, tensor in split.items():
        assert isinstance(tensor.device, Sharding) and tensor.device.split_axes, name


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 2), (2, 3)])
def test_a_mesh_shards_batches_and_the_model(folder: Path, shape: tuple[int, int]):
    path, _ = model_of(folder, "qwen3")
    mesh = Mesh(shape, ("dp", "tp"), DEVICES[: shape[0] * shape[1]])
    model, _ = Transformer.from_gguf(path, devices=mesh)
    batch = np.random.default_rng(1).integers(0, VOCAB, (4, 9)).tolist()
    logits = model(Tensor(batch))
    assert isinstance(logits.device, Sharding)
    assert logits.device.axes == (0, 2)
    reference = Reference(path)
    expected = [reference.logits(tokens) for tokens in batch]
    np.testing.assert_allclose(logits.numpy(), expected, **CLOSE)
    # one sequence is not sharded
    cache = model.new_cache()
    np.testing.assert_allclose(model.prefill(batch[0], cache).numpy(), expected[0][-1], **CLOSE)


@pytest.mark.slow
def test_a_prefix_of_a_sharded_cache_is_copied_without_communication(folder: Path):
    path, _ = model_of(folder, "llama")
    model, _ = Transformer.from_gguf(path, devices=DEVICES[:2])
    source, cache = model.new_cache(), model.new_cache()
    expected = model.prefill(TOKENS, source).numpy()
    with CommTrace() as trace:
        cache.copy_prefix(source, 5)
    assert not trace.records
    np.testing.assert_allclose(model.prefill(TOKENS, cache).numpy(), expected, **CLOSE)


@pytest.mark.slow
def test_groups_of_devices_share_the_sequences(folder: Path):
    path, _ = model_of(folder, "llama")
    model, _ = load_model(path, devices=Mesh((2, 2), ("dp", "tp"), DEVICES[:4]))
    caches = [model.new_cache() for _ in range(3)]
    reference = Reference(path)
    for number, cache in enumerate(caches):
        logits = model.prefill(TOKENS[number : number + 5], cache)
        expected = reference.logits(TOKENS[number : number + 5])[-1]
        np.testing.assert_allclose(logits.numpy(), expected, **CLOSE)
    with pytest.raises(ValueError, match="decode of 1 tokens and 3 caches"):
        model.decode([1], caches)
    model.decode(TOKENS[5:8], caches)
    with CommTrace() as trace:
        found = [logits.numpy() for logits in model.decode(TOKENS[6:9], caches)]
    expected = [reference.logits(TOKENS[number : number + 7])[-1] for number in range(3)]
    np.testing.assert_allclose(found, expected, **CLOSE)
    # each sequence is in one group, whose devices alone reduce its partial sums
    layouts = [cache.memory.device for cache in caches]
    devices = [layout.devices for layout in layouts if isinstance(layout, Sharding)]
    canonical = tuple(map(Device.canonicalize, DEVICES))
    assert devices == [canonical[:2], canonical[2:4], canonical[:2]]
    sums = [record.source for record in trace.records if record.kind == "all_reduce"]
    assert len(sums) == 2 * (LAYERS + 1)
    assert all((":0-1" in source) != (":2-3" in source) for source in sums)


@pytest.mark.slow
def test_requests_are_distributed_to_groups(folder: Path):
    path, _ = model_of(folder, "llama")
    alone, _ = Transformer.from_gguf(path)
    model, _ = load_model(path, devices=Mesh((2,), ("dp",), DEVICES[:2]))
    assert isinstance(model, Replicas)
    prompts = [TOKENS[at : at + 4] for at in range(6)]
    expected = [[x.token for x in islice(alone.generate(prompt), 12)] for prompt in prompts]
    engine, events = Engine(model, max_running=4), [SimpleQueue[Any]() for _ in prompts]
    try:
        for prompt, queue in zip(prompts, events, strict=True):
            engine.submit(GenerationRequest(prompt, Sampling(), max_tokens=12), queue.put)
        for tokens, queue in zip(expected, events, strict=True):
            assert [queue.get(timeout=240).token for _ in tokens] == tokens
    finally:
        engine.close()
    # two of the four running sequences in each group
    assert all({(1, 1), (2, 1)} == set(replica.steps) for replica in model.models)


def test_a_mesh_of_other_dimensions_is_an_error(folder: Path):
    path, _ = model_of(folder, "llama")
    with pytest.raises(ShardingError, match="the mesh dimensions 'tp' and 'dp', not over Mesh"):
        Transformer.from_gguf(path, devices=Mesh((2,), ("pp",), DEVICES[:2]))
