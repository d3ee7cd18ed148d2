"""Predicted times of programs on an H100, from their operations, bytes and occupancy.

`python -m test.benchmark.roofline [START OF NAME ...]`. Nothing runs: kernels are generated for the
machine, and each is bounded by the slowest of its memory traffic, its arithmetic and its launch.
A bound is not a forecast: what a kernel reaches of it depends on latencies that only a run shows.
Occupancy is exact where NVRTC is installed, which counts registers; it is left out elsewhere.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from test import nvrtc
from test.gpu_programs import PROGRAMS, GPUProgram
from tinygrad.codegen.analysis import resources
from tinygrad.codegen.analysis.resources import Resources
from tinygrad.renderer import ProgramSpec
from tinygrad.renderer.gpu_targets import nvidia_target
from tinygrad.renderer.target import Target


@dataclass(frozen=True)
class Machine:
    """What a GPU does at most. Rates are a second."""

    target: Target
    bytes: float
    flops: float
    """Float32 operations of the threads."""
    matrix_flops: dict[str, float]
    """Operations by matrix instructions, by patterns of their names."""
    launch_s: float
    """The time from one kernel of a graph to the next."""

    def rate(self, arithmetic: str) -> float:
        """The operations of "f32", "tf32" or "bf16"."""
        names = {"tf32": "wgmma_m64n256k8_tf32", "bf16": "wgmma_m64n256k16_bf16"}
        return self.rate_of(names[arithmetic]) if arithmetic in names else self.flops

    def rate_of(self, text: str) -> float:
        """The operations by the instructions of a text."""
        rates = (rate for name, rate in self.matrix_flops.items() if re.search(name, text))
        return next(rates, self.flops)


# the data sheet of the H100 SXM; mma.sync was measured to reach about 0.62 of the rate of wgmma,
# which the data sheet gives (Luo et al. 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU")
MMA_SYNC = 0.62
H100 = Machine(
    target=nvidia_target("sm_90a", units=132),
    bytes=3.35e12,
    flops=66.9e12,
    matrix_flops={
        r"wgmma_\w+k16": 989e12,
        r"wgmma_\w+k8_tf32": 494e12,
        r"\bmma_m16n8k16": 989e12 * MMA_SYNC,
        r"\bmma_m16n8k8_tf32": 494e12 * MMA_SYNC,
    },
    launch_s=1.5e-6,
)
MACHINES = {H100.target.architecture: H100}
"""The machines that are known, by their architecture."""


@dataclass(frozen=True)
class Bound:
    """Lower bounds of the time of a kernel in seconds, and the occupancy if it is known."""

    kernel: ProgramSpec
    memory_s: float
    arithmetic_s: float
    launch_s: float
    occupancy: float | None

    @property
    def seconds(self) -> float:
        """The bound: the slowest of all."""
        return max(self.memory_s, self.arithmetic_s, self.launch_s)

    @property
    def by(self) -> str:
        """What bounds the kernel."""
        times = {
            self.memory_s: "memory",
            self.arithmetic_s: "arithmetic",
            self.launch_s: "launch",
        }
        return times[self.seconds]


def bound(kernel: ProgramSpec, machine: Machine) -> Bound:
    """The bound of one kernel."""
    estimates = kernel.estimates
    flops, memory = estimates.flops, estimates.memory_bytes
    assert isinstance(flops, int) and isinstance(memory, int), "the sizes are known"
    rate = machine.rate_of(kernel.source)
    # blocks that do not fill the multiprocessors leave some idle
    blocks, _ = kernel.launch.blocks()
    units = machine.target.units
    busy = min(1.0, blocks / units) if blocks < units else blocks / (-(-blocks // units) * units)
    return Bound(
        kernel,
        memory / machine.bytes,
        flops / (rate * busy),
        machine.launch_s,
        occupancy(kernel, machine),
    )


def occupancy(kernel: ProgramSpec, machine: Machine) -> float | None:
    """The share of a multiprocessor's threads that can be resident, or None without NVRTC."""
    if nvrtc.why_not():
        return None
    compiled = nvrtc.compile_for(machine.target.architecture, kernel.source)
    _, threads = kernel.launch.blocks()
    needed = Resources(threads, compiled.registers, compiled.shared + kernel.launch.shared)
    return resources.occupancy(needed, machine.target)


def predict(program: GPUProgram, machine: Machine = H100) -> list[Bound]:
    """The bounds of the kernels of a program."""
    return [bound(kernel, machine) for kernel in program.kernels(machine.target)]


def line(program: GPUProgram, bounds: list[Bound]) -> str:
    """A line of the table."""
    flops = sum(float(str(x.kernel.estimates.flops)) for x in bounds)
    memory = sum(float(str(x.kernel.estimates.memory_bytes)) for x in bounds)
    seconds = sum(x.seconds for x in bounds)
    longest = max(bounds, key=lambda x: x.seconds)
    share = "" if longest.occupancy is None else f"{longest.occupancy:6.0%}"
    return (
        f"{program.name:36} {len(bounds):4} {flops / 1e9:10.2f} {memory / 1e6:10.2f} "
        f"{seconds * 1e6:10.1f} {flops / seconds / 1e12:8.1f} {memory / seconds / 1e12:8.2f} "
        f"{longest.by:>10} {share}"
    )


def main(names: list[str]) -> None:
    heads = ("kernels", "GFLOP", "MB", "us", "TFLOP/s", "TB/s", "bound by", "occupancy")
    print(f"{'program':33} " + " ".join(f"{x:>9}" for x in heads))
    for program in PROGRAMS:
        if not names or program.name.startswith(tuple(names)):
            print(line(program, predict(program)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
