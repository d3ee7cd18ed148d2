"""Memory-bound operations on (4096, 4096): along rows, along columns, matrix-vector products; those
of rows on (1024, 1024); copies of bfloat16, whose vectors AVX2 does not mask, and what rounds and
selects it; cumulative reductions, also of rows whose length no power of two divides; and a step of
an embedding by gradient descent, which touches the rows of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from test.benchmark.measure import Benchmark, jitted_ms, median_ms, random_tensors, torch_ms
from tinygrad import Tensor, dtypes
from tinygrad.dtype import DType
from tinygrad.nn.optim import SGD

SHAPE = (4096, 4096)
SMALL_SHAPE = (1024, 1024)
ODD_SHAPES = ((1000, 1000), (1001, 1001))


def torch_layernorm(x: Any) -> Any:
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def torch_pad(x: Any) -> Any:
    import torch

    return torch.nn.functional.pad(x, (0, 0, 2048, 2048))


def torch_pad_with_elements(mode: str, x: Any) -> Any:
    import torch

    return torch.nn.functional.pad(x[None], (3, 3, 3, 3), mode=mode)[0]


def torch_nll(x: Any) -> Any:
    import torch

    return torch.nn.functional.nll_loss(x, torch.zeros(len(x), dtype=torch.int64))


def torch_concatenate(x: Any) -> Any:
    import torch

    return torch.cat([x, x[:, :-1]], 1)


def torch_pad_columns(x: Any) -> Any:
    import torch

    return torch.nn.functional.pad(x, (1, 1))


OPERATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "softmax": (lambda x: x.softmax(-1), lambda x: x.softmax(-1)),
    "softmax of columns": (lambda x: x.softmax(0), lambda x: x.softmax(0)),
    "layernorm": (lambda x: x.layernorm(), torch_layernorm),
    "pad rows": (lambda x: x.pad(((2048, 2048), (0, 0))), torch_pad),
    "pad columns": (lambda x: x.pad((None, (1, 1))), torch_pad_columns),
    **{
        f"pad {mode}": (
            partial(Tensor.pad, padding=(3, 3, 3, 3), mode=mode),
            partial(torch_pad_with_elements, mode),
        )
        for mode in ("reflect", "replicate", "circular")
    },
    "roll columns": (lambda x: x.roll(5, 1), lambda x: x.roll(5, 1)),
    "concatenate columns": (lambda x: x.cat(x[:, :-1], dim=1), torch_concatenate),
    "sine": (lambda x: x.sin(), lambda x: x.sin()),
    "tangent": (lambda x: x.tan(), lambda x: x.tan()),
    "absolute value": (lambda x: x.abs(), lambda x: x.abs()),
    "round": (lambda x: x.round(), lambda x: x.round()),
    "copysign": (lambda x: x.copysign(x[0]), lambda x: x.copysign(x[0])),
    "maximum of all": (lambda x: x.max(), lambda x: x.max()),
    "cumsum": (lambda x: x.cumsum(1), lambda x: x.cumsum(1)),
    "cumsum of columns": (lambda x: x.cumsum(0), lambda x: x.cumsum(0)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), lambda x: x.logcumsumexp(1)),
    "sum": (lambda x: x.sum(), lambda x: x.sum()),
    "sum of columns": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "vector by matrix": (lambda x: x[0] @ x, lambda x: x[0] @ x),
    "nll loss": (lambda x: x.nll_loss(Tensor.zeros(len(x), dtype=dtypes.int)), torch_nll),
    "topk 8": (lambda x: x.topk(8)[0], lambda x: x.topk(8)[0]),
    "topk 50 of few rows": (
        lambda x: x.reshape(128, -1).topk(50)[0],
        lambda x: x.reshape(128, -1).topk(50)[0],
    ),
}


def ours(name: str, shape: tuple[int, ...], dtype: DType) -> float:
    return jitted_ms(OPERATIONS[name][0], *random_tensors(shape, dtype=dtype))


def theirs(name: str, shape: tuple[int, ...], dtype: DType) -> float:
    is_narrow = dtype is dtypes.bfloat16
    return torch_ms(OPERATIONS[name][1], shape, dtype="bfloat16" if is_narrow else "float32")


def embedding_step(rows: int, batch: int) -> float:
    """The time of a step of gradient descent of an embedding with rows of 64 elements."""
    (weight,) = random_tensors((rows, 64))
    optimizer = SGD([weight], lr=0.1)
    index = Tensor.randint(batch, high=rows).realize()

    @Tensor.train()
    def step(index: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = weight[index].square().sum().backward()
        return loss.realize(*optimizer.schedule_step())

    return jitted_ms(step, index)


def torch_embedding_step(rows: int, batch: int) -> float:
    import torch

    layer = torch.nn.Embedding(rows, 64, sparse=True)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    index = torch.randint(rows, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        layer(index).square().sum().backward()
        optimizer.step()

    return median_ms(step)


SCANS = ("cumsum", "logcumsumexp")
COPIES = ("pad columns", "concatenate columns")
OF_BFLOAT16 = (*COPIES, "absolute value", "round", "copysign", "maximum of all")
CASES = [
    *((name, SHAPE, dtypes.float32) for name in OPERATIONS if name not in SCANS),
    *((name, SMALL_SHAPE, dtypes.float32) for name in ("softmax", "layernorm")),
    *((name, SMALL_SHAPE, dtypes.bfloat16) for name in OF_BFLOAT16),
    *((name, shape, dtypes.float32) for name in SCANS for shape in (SMALL_SHAPE, *ODD_SHAPES)),
]
BENCHMARKS = [
    Benchmark(
        f"{name} {shape[0]}" + ("" if dtype is dtypes.float32 else " bfloat16"),
        partial(ours, name, shape, dtype),
        partial(theirs, name, shape, dtype),
        small=partial(ours, name, (shape[0] // 8, shape[1] // 8), dtype),
    )
    for name, shape, dtype in CASES
]
BENCHMARKS.append(
    Benchmark(
        "step of an embedding",
        partial(embedding_step, 1_000_000, 8192),
        partial(torch_embedding_step, 1_000_000, 8192),
        small=partial(embedding_step, 1000, 8),
    )
)
