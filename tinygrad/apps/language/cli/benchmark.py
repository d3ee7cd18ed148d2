"""The throughput of a model: prefill, and decoding at several batch sizes.

Input: a loaded model. Output: lines of figures, in tokens per second, after a warm-up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tinygrad.apps.language.generation.generate import LanguageModel
from tinygrad.apps.language.generation.sampling import Sampler, Sampling

PROMPT_TOKENS = 512


def benchmark(model: LanguageModel, count: int, batches: tuple[int, ...]) -> Iterator[str]:
    """Time the prefill of a prompt, and decoding `count` tokens at each of the batch sizes."""
    room = model.max_context - count
    if room < 1:
        raise ValueError(
            f"--benchmark {count} does not fit a context of {model.max_context}; "
            "raise --max-context"
        )
    # different tokens, as a mixture of experts would route equal ones alike
    prompt = [number * 7919 % model.vocab_size for number in range(min(PROMPT_TOKENS, room))]
    yield f"first prompt, with compilation: {_prefill_s(model, prompt):.2f} s"
    elapsed_s = _prefill_s(model, prompt)
    speed = len(prompt) / elapsed_s
    yield f"prefill {speed:8.1f} tokens/s (a prompt of {len(prompt)}, {elapsed_s:.3f} s)"
    for batch in batches:
        elapsed_s = _decode_s(model, prompt[:16], count, batch)
        speed = batch * count / elapsed_s
        each = elapsed_s / count * 1e3
        yield f"decode  {speed:8.1f} tokens/s (batch size {batch}, {each:.1f} ms a step)"


def _prefill_s(model: LanguageModel, prompt: list[int]) -> float:
    """Seconds to compute the logits after a prompt."""
    cache = model.new_cache()
    started = time.perf_counter()
    model.prefill(prompt, cache).numpy()
    return time.perf_counter() - started


def _decode_s(model: LanguageModel, prompt: list[int], count: int, batch: int) -> float:
    """Seconds for `count` decode steps of `batch` sequences, with sampling."""
    caches = [model.new_cache() for _ in range(batch)]
    sampler = Sampler(Sampling())
    for cache in caches:
        model.prefill(prompt, cache)
    tokens = [prompt[-1]] * batch
    started = 0.0
    # the first steps compile and capture
    for step in range(-3, count):
        if step == 0:
            started = time.perf_counter()
        logits = model.decode(tokens, caches)
        tokens = [sampler(logits[row], []).token for row in range(batch)]
    return time.perf_counter() - started
