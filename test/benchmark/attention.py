"""Causal attention of (1, 8, length, 64), batch, heads, sequence and dim, and its gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

from test.benchmark.measure import (
    Benchmark,
    jitted_ms,
    median_ms,
    peak_mb,
    random_tensors,
    torch_ms,
    torch_wait,
)
from tinygrad import Tensor, TinyJit


def shapes(length: int) -> tuple[tuple[int, ...], ...]:
    return ((1, 8, length, 64),) * 3


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.scaled_dot_product_attention(k, v, is_causal=True)


def step(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """The result, and the gradients of the sum of its squares."""
    for x in (q, k, v):
        x.requires_grad = True
    result = attend(q, k, v)
    return [result, *result.square().sum().gradient(q, k, v)]


def ours(length: int, repeats: int) -> float:
    return jitted_ms(attend, *random_tensors(*shapes(length)), repeats=repeats)


def theirs(length: int, repeats: int) -> float:
    import torch

    function = torch.nn.functional.scaled_dot_product_attention
    return torch_ms(
        lambda q, k, v: function(q, k, v, is_causal=True), *shapes(length), repeats=repeats
    )


def our_step(length: int, repeats: int) -> float:
    inputs = random_tensors(*shapes(length))
    captured = TinyJit(lambda *tensors: Tensor.realize(*step(*tensors)))
    return median_ms(lambda: captured(*inputs), repeats=repeats)


def their_step(length: int, repeats: int) -> float:
    import torch

    function = torch.nn.functional.scaled_dot_product_attention
    inputs: list[Any] = [torch.randn(*shape, requires_grad=True) for shape in shapes(length)]

    def run() -> None:
        result = function(*inputs, is_causal=True)
        torch.autograd.grad(result.square().sum(), inputs)

    return median_ms(run, repeats=repeats, wait=torch_wait)


def memory(length: int, with_gradients: bool) -> float:
    function = step if with_gradients else lambda *tensors: [attend(*tensors)]
    return peak_mb(function, *random_tensors(*shapes(length)))


BENCHMARKS = [
    Benchmark(
        f"attention causal {length}",
        partial(ours, length, repeats),
        partial(theirs, length, repeats),
        memory=partial(memory, length, False),
        small=partial(ours, 256, 1),
    )
    for length, repeats in ((512, 7), (8192, 3))
] + [
    Benchmark(
        "attention causal 4096 with gradients",
        partial(our_step, 4096, 3),
        partial(their_step, 4096, 3),
        memory=partial(memory, 4096, True),
        small=partial(our_step, 256, 1),
    )
]
