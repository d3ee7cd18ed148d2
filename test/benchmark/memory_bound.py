"""Memory-bound operations on (4096, 4096): along rows, along columns, matrix-vector products; and
those of rows on (1024, 1024).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from test.benchmark.measure import Benchmark, jitted_ms, random_tensors, torch_ms
from tinygrad import Tensor

SHAPE = (4096, 4096)
SMALL_SHAPE = (1024, 1024)


def torch_layernorm(x: Any) -> Any:
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def torch_pad(x: Any) -> Any:
    import torch

    return torch.nn.functional.pad(x, (0, 0, 2048, 2048))


OPERATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "softmax": (lambda x: x.softmax(-1), lambda x: x.softmax(-1)),
    "layernorm": (lambda x: x.layernorm(), torch_layernorm),
    "pad rows": (lambda x: x.pad(((2048, 2048), (0, 0))), torch_pad),
    "sine": (lambda x: x.sin(), lambda x: x.sin()),
    "tangent": (lambda x: x.tan(), lambda x: x.tan()),
    "sum": (lambda x: x.sum(), lambda x: x.sum()),
    "sum of columns": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "vector by matrix": (lambda x: x[0] @ x, lambda x: x[0] @ x),
    "topk 8": (lambda x: x.topk(8)[0], lambda x: x.topk(8)[0]),
    "topk 50 of few rows": (
        lambda x: x.reshape(128, -1).topk(50)[0],
        lambda x: x.reshape(128, -1).topk(50)[0],
    ),
}


def ours(name: str, shape: tuple[int, ...]) -> float:
    return jitted_ms(OPERATIONS[name][0], *random_tensors(shape))


def theirs(name: str, shape: tuple[int, ...]) -> float:
    return torch_ms(OPERATIONS[name][1], shape)


CASES = [
    *((name, SHAPE) for name in OPERATIONS),
    *((name, SMALL_SHAPE) for name in ("softmax", "layernorm")),
]
BENCHMARKS = [
    Benchmark(f"{name} {shape[0]}", partial(ours, name, shape), partial(theirs, name, shape))
    for name, shape in CASES
]
