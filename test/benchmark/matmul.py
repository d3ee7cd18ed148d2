"""Square matrix products: in float32, and of narrower numbers, which matrix instructions compute.

The products of int8 numbers are added in int32, those of others in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from test.benchmark.measure import Benchmark, jitted_ms, random_tensors, torch_ms
from tinygrad import Tensor, dtypes

NARROW = ("bfloat16", "float16", "int8")


def ours(size: int, dtype: str = "float32") -> float:
    inputs = random_tensors((size, size), (size, size), dtype=getattr(dtypes, dtype))
    return jitted_ms(_product(dtype), *inputs)


def _product(dtype: str) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda a, b: a.matmul(b, dtype=dtypes.int32 if dtype == "int8" else None)


def theirs(size: int, dtype: str = "float32") -> float:
    def product(a: Any, b: Any) -> Any:
        import torch

        return torch._int_mm(a, b) if dtype == "int8" else a @ b

    return torch_ms(product, (size, size), (size, size), dtype=dtype)


BENCHMARKS = [
    Benchmark(
        f"matmul {size}" if dtype == "float32" else f"matmul {size} {dtype}",
        partial(ours, size, dtype),
        partial(theirs, size, dtype),
        2 * size**3 / 1e9,
        small=partial(ours, 64, dtype),
    )
    for sizes, dtype in (((1024, 2048), "float32"), *(((1024, 4096), x) for x in NARROW))
    for size in sizes
]
