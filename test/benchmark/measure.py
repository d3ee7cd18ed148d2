"""A benchmark as a value, and medians of several runs."""

from __future__ import annotations

import contextlib
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from tinygrad import Device, GlobalCounters, Tensor, TinyJit, dtypes
from tinygrad.dtype import DType

HAS_TORCH = importlib.util.find_spec("torch") is not None


@dataclass(frozen=True)
class Benchmark:
    """One line of the table. `ours` and `torch` return measured milliseconds, `peer` those of
    something else that is compared with.

    With `work`, in GFLOP, or `nbytes`, what has to be read and written, the table shows rates too,
    with `memory` the megabytes that it returns. `arithmetic` is "f32", "tf32" or "bf16": what the
    work is bounded by on a GPU. `small` is `ours` at a size that runs once in a second or so; None
    if `ours` does. With `whole`, a benchmark measures all of its line (a `results.Result`) itself.
    """

    name: str
    ours: Callable[[], float]
    torch: Callable[[], float] | None = None
    work: float | None = None
    memory: Callable[[], float] | None = None
    nbytes: int | None = None
    arithmetic: str = "f32"
    peer: Callable[[], float] | None = None
    small: Callable[[], float] | None = None
    whole: Callable[[], Any] | None = None


_runs_once = ContextVar("runs once", default=False)


@contextlib.contextmanager
def once() -> Iterator[None]:
    """In the block, `median_ms` runs a function once: to see that a benchmark runs at all."""
    before = _runs_once.set(True)
    try:
        yield
    finally:
        _runs_once.reset(before)


def median_ms(
    function: Callable[[], object],
    repeats: int = 7,
    warmup: int = 3,
    *,
    batch: int = 1,
    wait: Callable[[], object] = lambda: None,
) -> float:
    """The median time of `function` in ms, after `warmup` unmeasured runs.

    A run is `batch` calls, for which `wait` waits.
    """
    times: list[float] = []
    if _runs_once.get():
        warmup, repeats, batch = 0, 1, 1
    for run in range(warmup + repeats):
        start = time.perf_counter()
        for _ in range(batch):
            function()
        wait()
        if run >= warmup:
            times.append((time.perf_counter() - start) * 1e3 / batch)
    return statistics.median(times)


def synchronize(result: Tensor) -> None:
    """Waits until the devices of `result` are idle."""
    devices = (result.device,) if isinstance(result.device, str) else result.device
    for device in devices:
        Device[device].synchronize()


def jitted_ms(
    function: Callable[..., Tensor], *inputs: Tensor, repeats: int = 7, batch: int = 1
) -> float:
    """The median time of a replayed step in ms."""
    step = TinyJit(lambda *tensors: function(*tensors).realize())
    for _ in range(3):
        result = step(*inputs)
    return median_ms(lambda: step(*inputs), repeats, batch=batch, wait=lambda: synchronize(result))


def peak_mb(function: Callable[..., list[Tensor]], *inputs: Tensor) -> float:
    """The megabytes in use at the same time while the results are realized, besides the inputs."""
    results = function(*inputs)
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    Tensor.realize(*results)
    return (GlobalCounters.mem_peak - before) / 1e6


def has_torch() -> bool:
    """Whether torch is installed and can use the devices of the default kind."""
    if not HAS_TORCH:
        return False
    import torch

    kind = Device.DEFAULT.partition(":")[0]
    return kind == "CPU" or (kind == "CUDA" and torch.cuda.is_available())


@contextlib.contextmanager
def torch_device() -> Iterator[None]:
    """Tensors of torch are made on the default kind of device."""
    import torch

    with torch.device("cpu" if Device.DEFAULT.startswith("CPU") else "cuda"):
        yield


def torch_wait() -> None:
    """Waits for torch's kernels."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def torch_ms(
    function: Callable[..., Any],
    *shapes: tuple[int, ...],
    repeats: int = 7,
    batch: int = 1,
    dtype: str = "float32",
) -> float:
    """The median time in ms of a function of random torch tensors, without gradients."""
    import torch

    inputs = [torch.randn(*shape).to(getattr(torch, dtype)) for shape in shapes]
    with torch.no_grad():
        return median_ms(lambda: function(*inputs), repeats, batch=batch, wait=torch_wait)


def random_tensors(*shapes: tuple[int, ...], dtype: DType = dtypes.float32) -> list[Tensor]:
    """Realized random inputs."""
    tensors = [Tensor.randn(*shape).cast(dtype) for shape in shapes]
    Tensor.realize(*tensors)
    return tensors
