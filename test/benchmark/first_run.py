"""The first run of unrolled programs: they are built, planned, compiled and run, with no cache.

CPU time, most of it of Python and LLVM.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from test.backend.schedule import unrolled
from test.backend.schedule.kernel_counts import Array, array
from test.benchmark.measure import Benchmark
from tinygrad import Tensor
from tinygrad.nn.optim import Adam
from tinygrad.settings import Context


def first_run(program: unrolled.Program, value: Array, steps: int) -> Callable[[], float]:
    """A benchmark of the CPU time of one run, in ms."""

    def measure() -> float:
        x = Tensor(value).realize()
        with Context(SCHEDULE_CACHE=0, CACHELEVEL=0):
            start = time.process_time()
            program(unrolled.TensorOps, x, steps).realize()
            return (time.process_time() - start) * 1e3

    return measure


def first_step(count: int) -> Callable[[], float]:
    """A benchmark of the CPU time of a first step of Adam with many small parameters, in ms."""

    def measure() -> float:
        parameters = [Tensor(np.ones(4, np.float32)) for _ in range(count)]
        Tensor.realize(*parameters)
        optimizer = Adam(parameters)
        for parameter in parameters:
            parameter.grad = Tensor.ones(4).contiguous()
        with Tensor.train(), Context(SCHEDULE_CACHE=0, CACHELEVEL=0):
            start = time.process_time()
            optimizer.step()
            return (time.process_time() - start) * 1e3

    return measure


def first_sort(length: int) -> Callable[[], float]:
    """A benchmark of the CPU time of the first sort of a length, in ms."""
    random = np.random.default_rng(0)
    return first_run(
        lambda ops, x, steps: x.sort()[0],
        random.standard_normal(length).astype(np.float32),
        1,
    )


def changing_number(steps: int) -> Callable[[], float]:
    """A benchmark of the CPU time of a step whose learning rate is new each time, in ms."""

    def measure() -> float:
        w, gradient = (Tensor(np.ones((64, 64), np.float32)).realize() for _ in range(2))
        rates = np.random.default_rng().uniform(0.1, 0.9, steps + 2)
        for number, rate in enumerate(map(float, rates)):
            if number == 2:
                # the first two are compiled
                start = time.process_time()
            w = (w - rate * gradient).realize()
        return (time.process_time() - start) * 1e3 / steps

    return measure


PROGRAMS: tuple[tuple[str, unrolled.Program, Array, int], ...] = (
    ("diffusion, 9 steps", unrolled.diffusion, array(256), 9),
    ("diffusion, 40 steps", unrolled.diffusion, array(256), 40),
    ("advantages, 256 steps", unrolled.advantages, array(256), 256),
    ("advantages, 512 steps", unrolled.advantages, array(512), 512),
    ("gated recurrence, 64 steps", unrolled.gated_recurrence, array(64, 128), 64),
    ("appends, 16", unrolled.appends, array(1, 8), 16),
    ("life, 4 generations", unrolled.life, unrolled.board(32), 4),
    ("Walsh-Hadamard, 256 points", unrolled.walsh_hadamard, array(256), 8),
    ("chain of 4000", unrolled.long_chain, array(16), 4000),
    ("tanh scan of 1000", unrolled.tanh_scan, array(1000, 16), 1000),
    ("total of 800 sums", unrolled.total_of_sums, array(800, 8), 800),
    ("stack of 1000", unrolled.stacked, array(1000, 4), 1000),
)

BENCHMARKS = [
    *(
        Benchmark(
            f"first run: {name}",
            first_run(program, value, steps),
            small=first_run(program, value[:16], min(steps, 4)),
        )
        for name, program, value, steps in PROGRAMS
    ),
    Benchmark("first run: sort of 1000", first_sort(1000), small=first_sort(300)),
    Benchmark("first run: sort of 100000", first_sort(100_000), small=first_sort(300)),
    Benchmark("a new learning rate", changing_number(200), small=changing_number(5)),
    Benchmark("first run: Adam, 5000 parameters", first_step(5000), small=first_step(50)),
]
