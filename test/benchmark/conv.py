"""A 3x3 convolution, (32, 64, 32, 32) to the same size, in float32."""

from __future__ import annotations

from test.benchmark.measure import Benchmark, jitted_ms, random_tensors, torch_ms

BATCH, CHANNELS, SIZE, KERNEL = 32, 64, 32, 3
SHAPES = ((BATCH, CHANNELS, SIZE, SIZE), (CHANNELS, CHANNELS, KERNEL, KERNEL))
GFLOP = 2 * BATCH * CHANNELS**2 * SIZE**2 * KERNEL**2 / 1e9


def ours() -> float:
    return jitted_ms(lambda x, w: x.conv2d(w, padding=1), *random_tensors(*SHAPES))


def theirs() -> float:
    import torch

    return torch_ms(lambda x, w: torch.nn.functional.conv2d(x, w, padding=1), *SHAPES)


BENCHMARKS = [Benchmark("conv 3x3 64", ours, theirs, GFLOP)]
