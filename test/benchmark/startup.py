"""Start-up: whole processes, from the start of Python to the end of a program.

Cold: two MNIST training steps with empty caches, so that every kernel is compiled. Warm: the same
again with the caches of the first run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from test.benchmark.measure import Benchmark, median_ms

TWO_STEPS = "from test.benchmark.mnist_step import {0}; step = {0}(); step(); step()"
OURS = TWO_STEPS.format("training_step")
TORCH = TWO_STEPS.format("torch_training_step")


def run_python(program: str, **environment: str) -> None:
    """Runs a program in a new process. Raises CalledProcessError if it fails."""
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | environment)


def cold() -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run_python(OURS, CACHEDIR=folder)
        return (time.perf_counter() - start) * 1e3


def warm() -> float:
    with tempfile.TemporaryDirectory() as folder:
        return median_ms(lambda: run_python(OURS, CACHEDIR=folder), repeats=3, warmup=1)


def torch_start() -> float:
    return median_ms(lambda: run_python(TORCH), repeats=3, warmup=1)


def import_ms(name: str) -> float:
    """The time in ms that importing a package adds to the start of Python."""
    bare = median_ms(lambda: run_python("pass"), warmup=1)
    return median_ms(lambda: run_python(f"import {name}"), warmup=1) - bare


BENCHMARKS = [
    Benchmark("start cold, 2 mnist steps", cold, torch_start),
    Benchmark("start warm, 2 mnist steps", warm, torch_start),
    Benchmark("import", lambda: import_ms("tinygrad"), lambda: import_ms("torch")),
]
