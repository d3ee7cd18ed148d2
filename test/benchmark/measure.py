"""A benchmark as a value, and medians of several runs."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinygrad import Device, GlobalCounters, Tensor, TinyJit

HAS_TORCH = importlib.util.find_spec("torch") is not None


@dataclass(frozen=True)
class Benchmark:
    """One line of the table. `ours` and `torch` return measured milliseconds.

    With `work`, in GFLOP, the table shows rates too, with `memory` the megabytes that it returns.
    """

    name: str
    ours: Callable[[], float]
    torch: Callable[[], float] | None = None
    work: float | None = None
    memory: Callable[[], float] | None = None


def median_ms(function: Callable[[], object], repeats: int = 7, warmup: int = 3) -> float:
    """The median time of `function` in ms, after `warmup` unmeasured runs."""
    times: list[float] = []
    for run in range(warmup + repeats):
        start = time.perf_counter()
        function()
        if run >= warmup:
            times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def synchronize(result: Tensor) -> None:
    """Waits until the devices of `result` are idle."""
    devices = (result.device,) if isinstance(result.device, str) else result.device
    for device in devices:
        Device[device].synchronize()


def jitted_ms(function: Callable[..., Tensor], *inputs: Tensor, repeats: int = 7) -> float:
    """The median time of a replayed step in ms."""
    step = TinyJit(lambda *tensors: function(*tensors).realize())
    return median_ms(lambda: synchronize(step(*inputs)), repeats=repeats)


def peak_mb(function: Callable[..., list[Tensor]], *inputs: Tensor) -> float:
    """The megabytes in use at the same time while the results are realized, besides the inputs."""
    results = function(*inputs)
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    Tensor.realize(*results)
    return (GlobalCounters.mem_peak - before) / 1e6


def torch_ms(function: Callable[..., Any], *shapes: tuple[int, ...], repeats: int = 7) -> float:
    """The median time in ms of a function of random torch tensors, without gradients."""
    import torch

    inputs = [torch.randn(*shape) for shape in shapes]
    with torch.no_grad():
        return median_ms(lambda: function(*inputs), repeats=repeats)


def random_tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    """Realized random inputs."""
    tensors = [Tensor.randn(*shape) for shape in shapes]
    Tensor.realize(*tensors)
    return tensors
