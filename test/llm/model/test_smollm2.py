"""A real model, SmolLM2-135M in Q4_1, against the numpy reference on the same file."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from test.devices import device_names
from test.llm.reference import Reference
from tinygrad import Tensor
from tinygrad.apps.language.files.catalogue import CATALOGUE
from tinygrad.apps.language.model.transformer import Transformer
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer

pytestmark = pytest.mark.slow

NEW_TOKENS = 16
PROMPTS = (
    "The capital of France is",
    "Once upon a time",
    "def fibonacci(n):",
    "Water boils at",
    "1, 2, 3, 4,",
    "The quick brown fox",
    "In the beginning",
    "My favourite food is",
    "To be, or not to be,",
    "The largest planet of the solar system",
    "import numpy as",
    "She opened the door and",
    "Der Hund ist",
    "E = mc",
    "The meaning of life",
    "Dear Sir or Madam,",
    "Ingredients: flour, sugar,",
    "<html>\n<head>",
    "Photosynthesis is",
    "On Monday we",
)


@pytest.fixture(scope="module")
def file() -> Any:
    return CATALOGUE["smollm2:135m"].path()


@pytest.fixture(scope="module")
def prompts(file: Any) -> list[list[int]]:
    _, metadata = Transformer.from_gguf(file, max_context=8)
    tokenizer = SimpleTokenizer.from_gguf_kv(metadata)
    return [tokenizer.encode(text) for text in PROMPTS]


@pytest.fixture(scope="module")
def expected(file: Any, prompts: list[list[int]]) -> list[tuple[list[int], Any]]:
    """The tokens that the model generates, and the reference's logits before each of them."""
    model, _ = Transformer.from_gguf(file, max_context=128)
    generated = [
        [x.token for x in itertools.islice(model.generate(prompt), NEW_TOKENS)]
        for prompt in prompts
    ]
    sequences = [(a + b)[:-1] for a, b in zip(prompts, generated, strict=True)]
    logits = Reference(file).logits_of(sequences)
    return [(tokens, x[-NEW_TOKENS:]) for tokens, x in zip(generated, logits, strict=True)]


def assert_close(found: Any, logits: Any) -> None:
    """Checks logits within a thousandth of the largest one."""
    assert np.abs(found - logits).max() <= 1e-3 * np.abs(logits).max()


def test_greedy_tokens_equal_the_reference(expected: list[tuple[list[int], Any]]):
    assert len(expected) == 20
    for tokens, logits in expected:
        assert tokens == logits.argmax(-1).tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_logits_equal_the_reference_on_several_devices(
    file: Any, prompts: list[list[int]], expected: list[tuple[list[int], Any]], count: int
):
    devices = device_names(count) if count > 1 else None
    model, _ = Transformer.from_gguf(file, max_context=128, devices=devices)
    cache = model.new_cache()
    for prompt, (tokens, logits) in zip(prompts, expected, strict=True):
        found = model.prefill(prompt, cache).numpy()
        assert_close(found, logits[0])
        # captured steps from the first prompt on
        for number, token in enumerate(tokens[:-1], 1):
            assert token == found.argmax()
            found = model.decode([token], [cache])[0].numpy()
            assert_close(found, logits[number])
        assert found.argmax() == tokens[-1]


def test_whole_sequences_have_the_logits_of_the_reference(
    file: Any, prompts: list[list[int]], expected: list[tuple[list[int], Any]]
):
    model, _ = Transformer.from_gguf(file, max_context=128)
    tokens, logits = expected[0]
    sequence = (prompts[0] + tokens)[:-1]
    found = model(Tensor([sequence])).numpy()[0]
    assert_close(found[len(prompts[0]) - 1 :], logits)
