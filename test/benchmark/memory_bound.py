"""Memory-bound operations on (4096, 4096): along rows, along columns, matrix-vector products."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from test.benchmark.measure import Benchmark, jitted_ms, random_tensors, torch_ms
from tinygrad import Tensor

SHAPE = (4096, 4096)


def torch_layernorm(x: Any) -> Any:
    import torch

    return torch.nn.functional.layer_norm(x, SHAPE[-1:])


OPERATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "softmax": (lambda x: x.softmax(-1), lambda x: x.softmax(-1)),
    "layernorm": (lambda x: x.layernorm(), torch_layernorm),
    "sum": (lambda x: x.sum(), lambda x: x.sum()),
    "sum of columns": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "vector by matrix": (lambda x: x[0] @ x, lambda x: x[0] @ x),
    "topk 8": (lambda x: x.topk(8)[0], lambda x: x.topk(8)[0]),
}


def ours(name: str) -> float:
    return jitted_ms(OPERATIONS[name][0], *random_tensors(SHAPE))


def theirs(name: str) -> float:
    return torch_ms(OPERATIONS[name][1], SHAPE)


BENCHMARKS = [
    Benchmark(f"{name} 4096", partial(ours, name), partial(theirs, name)) for name in OPERATIONS
]
