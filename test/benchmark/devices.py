"""Scheduling time of a transformer's training step against the number of devices (weak scaling).

Eight devices should take at most 1.3 times as long as two.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from test.benchmark.measure import Benchmark
from test.models.parallel import data_parallel, tensor_parallel
from tinygrad import Tensor
from tinygrad.settings import Context

REPEATS = 5


def schedule_ms(
    step: Callable[..., list[Tensor]], count: int, repeats: int = REPEATS, text: bool = True
) -> float:
    """The minimum CPU time in ms to schedule a step for NULL devices."""
    times: list[float] = []
    for _ in range(repeats):
        first, *rest = step([f"NULL:{i}" for i in range(count)], text=text)
        gc.collect()
        start = time.process_time()
        with Context(SCHEDULE_CACHE=0):
            first.schedule(*rest)
        times.append((time.process_time() - start) * 1e3)
    return min(times)


def _benchmark(name: str, step: Callable[..., list[Tensor]], count: int) -> Benchmark:
    return Benchmark(
        f"schedule, {name}, {count} devices",
        lambda: schedule_ms(step, count),
        small=lambda: schedule_ms(step, count, 1, text=False),
    )


BENCHMARKS = [
    _benchmark(name, step, count)
    for name, step in (("data parallel", data_parallel), ("tensor parallel", tensor_parallel))
    for count in (2, 4, 8)
]
