"""Planning: a training step of a small transformer on 4 devices, one of 70 billion parameters on
64, both with Adam, and the latter's gradients alone with 80 GB per device.

CPU time, since nothing runs in parallel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from test.benchmark.measure import Benchmark
from test.models.grouped import GroupedTransformer
from tinygrad import Mesh, P, Tensor, dtypes, nn
from tinygrad.planner import plan


def gradients(model: Any, tokens: Tensor, targets: Tensor) -> list[Tensor]:
    """The loss, and the gradients."""
    loss = model(tokens).sparse_categorical_crossentropy(targets)
    return [loss, *loss.gradient(*nn.state.get_parameters(model))]


def training_step(model: Any, optimizer: Any, tokens: Tensor, targets: Tensor) -> list[Tensor]:
    """The loss, and all tensors that the optimizer updates."""
    with Tensor.train():
        loss = model(tokens).sparse_categorical_crossentropy(targets).backward()
        updates = optimizer.schedule_step()
        optimizer.zero_grad()
        return [loss, *updates]


def planned(
    model: Callable[[], GroupedTransformer],
    mesh: Mesh,
    batch: tuple[int, int],
    limit: int | None,
    *,
    trains: bool,
    fixed: Mapping[str, P] | None = None,
) -> Callable[[], float]:
    """A benchmark of the CPU time of planning, in ms."""

    def measure() -> float:
        made = model()
        tokens, targets = (Tensor.empty(*batch, dtype=dtypes.int, device="NULL") for _ in range(2))
        inputs = {"model": made, "tokens": tokens, "targets": targets}
        if trains:
            inputs["optimizer"] = nn.optim.Adam(nn.state.get_parameters(made))
        start = time.process_time()
        plan(training_step if trains else gradients, inputs, mesh, memory_limit=limit, fixed=fixed)
        return (time.process_time() - start) * 1e3

    return measure


def small() -> GroupedTransformer:
    """12 layers."""
    return GroupedTransformer(32000, 768, 12, 12, 4, 2048)


def large() -> GroupedTransformer:
    """80 layers, 70 billion parameters."""
    return GroupedTransformer(128256, 8192, 80, 64, 8, 28672)


FOUR = Mesh((2, 2), ("dp", "tp"), tuple(f"NULL:{i}" for i in range(4)))
# most choices of the small model are made, so that the rest is tried in seconds
SMALL_FIXED = {"tokens": P("dp"), "targets": P("dp"), "model.tokens": P(), "model.out": P()}
SMALL_LIMIT = 60 * 10**6


def tiny() -> GroupedTransformer:
    """3 layers."""
    return GroupedTransformer(512, 64, 3, 4, 2, 128)


def benchmark(
    name: str,
    model: Callable[[], GroupedTransformer],
    mesh: Mesh,
    batch: tuple[int, int],
    limit: int | None,
    *,
    trains: bool,
) -> Benchmark:
    """A benchmark, and a plan of a small model on the same mesh, with and without a limit too."""
    return Benchmark(
        name,
        planned(model, mesh, batch, limit, trains=trains),
        small=planned(tiny, mesh, (8, 32), limit and SMALL_LIMIT, trains=trains, fixed=SMALL_FIXED),
    )


MANY = Mesh((8, 8), ("dp", "tp"), tuple(f"NULL:{i}" for i in range(64)))
LIMIT = 80 * 10**9

BENCHMARKS = [
    benchmark("plan gradients, 12 layers", small, FOUR, (32, 512), None, trains=False),
    benchmark("plan step, 12 layers", small, FOUR, (32, 512), None, trains=True),
    benchmark("plan gradients, 70B, 80 GB", large, MANY, (64, 512), LIMIT, trains=False),
    benchmark("plan step, 70B, 80 GB", large, MANY, (64, 512), LIMIT, trains=True),
]
