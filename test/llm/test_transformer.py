"""Models of every family against numpy: whole sequences, prompts in chunks, tokens one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from test.llm.reference import Reference
from test.llm.tiny import RECIPES, VOCAB, write_model
from tinygrad import Tensor
from tinygrad.apps.language.transformer import Transformer

# sums of some hundred products in float32, layer after layer
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


def tokens_of(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, length).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def llama(folder: Path) -> tuple[Transformer, Reference]:
    path = write_model(folder / "llama.gguf", "llama")
    return Transformer.from_gguf(path)[0], Reference(path)


@pytest.mark.parametrize("architecture", RECIPES)
def test_every_family_has_the_logits_of_the_reference(architecture: str, folder: Path):
    path = write_model(folder / f"{architecture}.gguf", architecture)
    model, metadata = Transformer.from_gguf(path)
    tokens = tokens_of(23)
    expected = Reference(path).logits(tokens)
    assert metadata["general.architecture"] == architecture
    np.testing.assert_allclose(model(Tensor([tokens])).numpy()[0], expected, **CLOSE)
    cache = model.new_cache()
    # a prompt of one chunk, then tokens through an eager step, a capture and replays
    np.testing.assert_allclose(model.prefill(tokens[:18], cache).numpy(), expected[17], **CLOSE)
    for i in range(18, 23):
        logits = model.decode([tokens[i]], [cache])
        np.testing.assert_allclose(logits.numpy()[0], expected[i], **CLOSE)
    assert cache.tokens == tokens
