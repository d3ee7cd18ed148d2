"""Planning for many devices: one process's part of a data-parallel training step.

Each figure is of a process of its own: the CPU time of building the graph of the step and planning
it, without compiling or running its kernels, and the memory that the process had at most. `1 of n`
is the part of one device, `all of n` that of all.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from functools import cache

from test.benchmark.measure import Benchmark
from test.models.parallel import SEQ, VOCAB, Mlp, batch, training_step
from test.models.transformer import Transformer
from tinygrad.execution.schedule import create_schedule
from tinygrad.execution.wire import SimulatedWire
from tinygrad.nn.state import get_parameters
from tinygrad.sharding import ALL_DEVICES, LocalDevices, Topology


def measure(count: int, layers: int, *, is_one: bool) -> tuple[float, float]:
    """The milliseconds and megabytes of planning a step on `count` NULL devices, in nodes of 8: of
    an MLP, or a transformer with some layers.
    """
    devices = tuple(f"NULL:{number}" for number in range(count))
    local = LocalDevices.of(devices[-1:]) if is_one else ALL_DEVICES
    with Topology.of_nodes(devices, 8), local, SimulatedWire():
        start = time.process_time()
        model = Transformer(VOCAB, 32, layers, seq=SEQ) if layers else Mlp(32)
        for parameter in get_parameters(model):
            parameter.shard_(devices)
        rows = batch(2 * count, SEQ if layers else 32, text=bool(layers))
        updates = training_step(model, rows.shard(devices, 0))
        create_schedule([x.uop for x in updates])
        elapsed_s = time.process_time() - start
    return elapsed_s * 1e3, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@cache
def in_process(count: int, layers: int, is_one: bool) -> tuple[float, float]:
    """`measure` in a new process."""
    call = f"measure({count}, {layers}, is_one={is_one})"
    program = f"from test.benchmark.ranks import measure; print(*{call})"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    milliseconds, megabytes = map(float, done.stdout.split()[-2:])
    return milliseconds, megabytes


def planning(count: int, layers: int = 0, *, is_one: bool = True) -> Benchmark:
    """A benchmark of planning for `count` devices."""
    model = f"transformer, {layers} layers" if layers else "MLP"
    return Benchmark(
        f"ranks plan {model}, {'1' if is_one else 'all'} of {count}",
        lambda: in_process(count, layers, is_one)[0],
        memory=lambda: in_process(count, layers, is_one)[1],
        small=lambda: measure(2, min(layers, 1), is_one=is_one)[0],
    )


BENCHMARKS = [
    *(planning(count, is_one=False) for count in (8, 64)),
    *(planning(count) for count in (8, 64, 256, 1024)),
    *(planning(count, 24) for count in (8, 1024)),
]
