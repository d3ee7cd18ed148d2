"""What GPUs are made for, at sizes that keep a large one busy. Names start with "gpu".

Memory-bound operations read and write more than the caches hold; products and attention are in the
dtypes of training. SMALL_BENCHMARKS are the same at sizes that an emulated GPU runs in seconds:
they show that the benchmarks run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from test.benchmark import llm, mnist_step
from test.benchmark.measure import (
    Benchmark,
    jitted_ms,
    median_ms,
    random_tensors,
    synchronize,
    torch_ms,
)
from tinygrad import Tensor, dtypes
from tinygrad.dtype import DType
from tinygrad.settings import Context

BATCH = 10
"""Calls of a run: a launch is issued while the one before it runs."""
LLM_BYTES = 98_000_000
"""The weights of SmolLM2-135M in Q4_1, which each token reads."""


@dataclass(frozen=True)
class Sizes:
    """How large the benchmarks are."""

    rows: int = 16384
    columns: int = 4096
    product: int = 4096
    bf16_product: int = 8192
    heads: int = 64
    length: int = 2048
    images: int = 512


FULL, SMALL = Sizes(), Sizes(64, 64, 32, 64, 2, 64, 8)


def torch_layernorm(x: Any) -> Any:
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[-1:])


# what they compute by us and by torch, and whether the result is as large as the argument
MEMORY_BOUND: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any], bool]] = {
    "copy": (lambda x: x + 1, lambda x: x + 1, True),
    "softmax": (lambda x: x.softmax(-1), lambda x: x.softmax(-1), True),
    "layernorm": (lambda x: x.layernorm(), torch_layernorm, True),
    "sum": (lambda x: x.sum(), lambda x: x.sum(), False),
    "sum of rows": (lambda x: x.sum(1), lambda x: x.sum(1), False),
    "sum of columns": (lambda x: x.sum(0), lambda x: x.sum(0), False),
    "transpose": (lambda x: x.T.contiguous(), lambda x: x.T.contiguous(), True),
}


def memory_bound(name: str, sizes: Sizes) -> Benchmark:
    """An operation on a float32 matrix."""
    ours, theirs, keeps_size = MEMORY_BOUND[name]
    shape = (sizes.rows, sizes.columns)
    return Benchmark(
        f"gpu {name} {sizes.rows}x{sizes.columns}",
        lambda: jitted_ms(ours, *random_tensors(shape), batch=BATCH),
        lambda: torch_ms(theirs, shape, batch=BATCH),
        nbytes=4 * sizes.rows * sizes.columns * (1 + keeps_size),
    )


def product(size: int, dtype: DType, arithmetic: str) -> Benchmark:
    """A square matrix product; with "tf32" of float32 rounded to it, by torch as well."""
    shapes = (size, size), (size, size)
    is_tf32 = arithmetic == "tf32"

    def ours() -> float:
        with Context(ALLOW_TF32=int(is_tf32)):
            inputs = random_tensors(*shapes, dtype=dtype)
            return jitted_ms(lambda a, b: a @ b, *inputs, batch=BATCH)

    def theirs() -> float:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = is_tf32
        return torch_ms(lambda a, b: a @ b, *shapes, batch=BATCH, dtype=dtype_name(dtype))

    work = 2 * size**3 / 1e9
    return Benchmark(f"gpu product {size} {arithmetic}", ours, theirs, work, arithmetic=arithmetic)


def dtype_name(dtype: DType) -> str:
    """The name of a dtype in torch."""
    return {dtypes.float32: "float32", dtypes.bfloat16: "bfloat16"}[dtype]


def attention(sizes: Sizes, dtype: DType, arithmetic: str) -> Benchmark:
    """Attention of heads of 64 values."""
    shapes = ((1, sizes.heads, sizes.length, 64),) * 3

    def ours() -> float:
        inputs = random_tensors(*shapes, dtype=dtype)
        return jitted_ms(Tensor.scaled_dot_product_attention, *inputs, batch=BATCH)

    def theirs() -> float:
        import torch

        function = torch.nn.functional.scaled_dot_product_attention
        return torch_ms(function, *shapes, batch=BATCH, dtype=dtype_name(dtype))

    work = 4 * sizes.heads * sizes.length**2 * 64 / 1e9
    name = f"gpu attention {sizes.length}x64 {arithmetic}"
    return Benchmark(name, ours, theirs, work, arithmetic=arithmetic)


def training(sizes: Sizes) -> Benchmark:
    """A step of the MNIST network, its loss read by the host."""

    def ours() -> float:
        step = mnist_step.training_step(batch=sizes.images)
        return median_ms(lambda: synchronize(step()), repeats=5)

    def theirs() -> float:
        return median_ms(mnist_step.torch_training_step(sizes.images), repeats=5)

    return Benchmark(f"gpu mnist step, batch {sizes.images}", ours, theirs)


def benchmarks(sizes: Sizes) -> list[Benchmark]:
    """The benchmarks at some sizes, those that matter most first."""
    bf16 = dtypes.bfloat16
    return [
        memory_bound("copy", sizes),
        product(sizes.bf16_product, bf16, "bf16"),
        memory_bound("softmax", sizes),
        attention(sizes, bf16, "bf16"),
        training(sizes),
        product(sizes.product, dtypes.float32, "f32"),
        product(sizes.product, dtypes.float32, "tf32"),
        *(memory_bound(name, sizes) for name in MEMORY_BOUND if name not in ("copy", "softmax")),
        attention(sizes, dtypes.float32, "f32"),
    ]


DECODING = Benchmark("gpu llm decode", lambda: llm.decode_s(1) * 1e3, nbytes=LLM_BYTES)
BENCHMARKS = [*benchmarks(FULL), DECODING]
SMALL_BENCHMARKS = benchmarks(SMALL)
