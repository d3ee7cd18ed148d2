"""Small vocabularies for tests, trained by the `tokenizers` package, which is also the oracle."""

from __future__ import annotations

from typing import Any

import pytest

from tinygrad.apps.language.tokenizer.encoders import bytes_of_spelling

TEXT = (
    """The quick brown fox jumps over the lazy dog, and that's what they'll do: 12 times in 2024!
Das Mädchen aß süße Äpfel; она читает книгу; 日本語の文章です。 naïve café — “quotes” … 😀👍🏽
def double(number):\n    return number * 2  # twice\r\n\tIT'S THEIRS, WE'VE GOT 1234567 OF THEM.
"""
    * 3
)
CONTROL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")

# GPT-2's characters for bytes; those from U+0100 represent unprintable bytes
SPELLING = {bytes_of_spelling(chr(code)): chr(code) for code in range(0x144)}


def spelling_of_bytes(data: bytes) -> str:
    """Bytes in GPT-2's encoding as characters."""
    return "".join(SPELLING[bytes([byte])] for byte in data)


BYTES_AS_TOKENS = {
    "model": "gpt2",
    "tokens": [*(spelling_of_bytes(bytes([byte])) for byte in range(256)), "th", "<|end|>"],
    "token_type": [1] * 257 + [3],
    "merges": ["t h"],
    "eos_token_id": 257,
}
"""A vocabulary of all bytes, one merge and a token that ends texts."""


def trained(sentence_piece: bool, pre_tokenizer: Any = None, size: int = 700) -> Any:
    """A `tokenizers.Tokenizer` trained on `TEXT`."""
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

    if sentence_piece:
        tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
        initial = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=initial)
    else:
        tokenizer = tokenizers.Tokenizer(models.BPE())
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        steps = [pre_tokenizer, byte_level] if pre_tokenizer else [byte_level]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=list(CONTROL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


def metadata_of(tokenizer: Any, pre: str | None) -> dict[str, Any]:
    """The metadata of a GGUF file with that vocabulary; SentencePiece if `pre` is None."""
    import json

    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    if pre is None:
        place = {left + right: -float(number) for number, (left, right) in enumerate(merges)}
        types = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
        scores = [place.get(token, -1e6) for token in tokens]
        special = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
        values = {"model": "llama", "tokens": tokens, "token_type": types, "scores": scores}
    else:
        types = [3 if token in CONTROL else 1 for token in tokens]
        special = {"eos_token_id": vocabulary["<|im_end|>"]}
        joined = [f"{left} {right}" for left, right in merges]
        values = {"model": "gpt2", "tokens": tokens, "token_type": types, "merges": joined}
        values["pre"] = pre
    return {f"tokenizer.ggml.{key}": value for key, value in (values | special).items()}
