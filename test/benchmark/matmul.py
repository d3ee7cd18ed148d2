"""Square matrix products in float32."""

from __future__ import annotations

from functools import partial

from test.benchmark.measure import Benchmark, jitted_ms, random_tensors, torch_ms


def ours(size: int) -> float:
    return jitted_ms(lambda a, b: a @ b, *random_tensors((size, size), (size, size)))


def theirs(size: int) -> float:
    return torch_ms(lambda a, b: a @ b, (size, size), (size, size))


BENCHMARKS = [
    Benchmark(
        f"matmul {size}",
        partial(ours, size),
        partial(theirs, size),
        2 * size**3 / 1e9,
        small=partial(ours, 64),
    )
    for size in (1024, 2048)
]
