"""Causal attention of (1, 8, 512, 64): batch, heads, sequence, dim."""

from __future__ import annotations

from test.benchmark.measure import Benchmark, jitted_ms, random_tensors, torch_ms

SHAPES = ((1, 8, 512, 64),) * 3


def ours() -> float:
    return jitted_ms(
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        *random_tensors(*SHAPES),
    )


def theirs() -> float:
    import torch

    attend = torch.nn.functional.scaled_dot_product_attention
    return torch_ms(lambda q, k, v: attend(q, k, v, is_causal=True), *SHAPES)


BENCHMARKS = [Benchmark("attention causal 512", ours, theirs)]
