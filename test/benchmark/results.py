"""What benchmarks measured: lines of the table, and a file of JSON."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from test.benchmark.measure import Benchmark, has_torch, torch_device
from test.benchmark.roofline import MACHINES, Machine
from tinygrad import Device

PACKAGES = ("tinygrad-sharding", "numpy", "torch", "cuda-bindings", "nvidia-cuda-nvrtc")
CLOCKS = "clocks.sm,clocks.mem,temperature.gpu,power.draw"
CLOCKS_S = 10.0
HEADING = f"{'benchmark':44} {'ours, ms':>12} {'peer, ms':>12} {'ratio':>8}"


@dataclass(frozen=True)
class Result:
    """What one benchmark measured. Rates are ours, a second."""

    name: str
    ours_ms: float
    peer_ms: float | None = None
    """Of torch, or of what the name tells."""
    flops: float | None = None
    bytes: float | None = None
    percent_of_bound: float | None = None
    """Of what the machine does at most, by its data sheet; None if it is not known."""
    memory_mb: float | None = None
    peer_error: str = ""
    """Why the peer has no time, where it failed."""
    clocks: str = ""
    """Clocks, temperature and power of an NVIDIA GPU right after our runs."""
    notes: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times as long as the peer we take."""
        return None if self.peer_ms is None else self.ours_ms / self.peer_ms

    def __str__(self) -> str:
        cells = [f"{self.name:44}", _milliseconds(self.ours_ms)]
        if self.peer_ms is None:
            cells += [f"{'':12}", f"{'':8}"]
        else:
            cells += [_milliseconds(self.peer_ms), f"{self.ratio:8.2f}"]
        if self.flops is not None:
            cells.append(f"{self.flops / 1e9:8.1f} GFLOP/s")
        if self.bytes is not None:
            cells.append(f"{self.bytes / 1e9:8.1f} GB/s")
        if self.percent_of_bound is not None:
            cells.append(f"{self.percent_of_bound:5.1f}%")
        if self.memory_mb is not None:
            cells.append(f"{self.memory_mb:8.1f} MB")
        if self.notes:
            cells.append(self.notes)
        if self.peer_error:
            cells.append(f"peer failed: {self.peer_error}")
        return " ".join(cells).rstrip()


def _milliseconds(found: float | None) -> str:
    """A cell with at least three digits of a time."""
    return "" if found is None else f"{found:12.2f}" if found >= 1 else f"{found:12.4f}"


def measure(benchmark: Benchmark) -> Result:
    """Runs a benchmark, and its peer: torch's form of it where torch can use the device."""
    if benchmark.whole is not None:
        found = benchmark.whole()
        assert isinstance(found, Result), found
        return found
    ours, clocks = benchmark.ours(), read_clocks()
    theirs, error = None, ""
    try:
        if benchmark.peer is not None:
            theirs = benchmark.peer()
        if benchmark.torch is not None and has_torch():
            with torch_device():
                theirs = benchmark.torch()
    except Exception as raised:  # ours is known all the same
        error = f"{type(raised).__name__}: {raised}"
    per_s = 1e3 / ours
    machine = MACHINES.get(Device[Device.DEFAULT].target.architecture)
    return Result(
        benchmark.name,
        ours,
        theirs,
        None if benchmark.work is None else benchmark.work * 1e9 * per_s,
        None if benchmark.nbytes is None else benchmark.nbytes * per_s,
        None if machine is None else percent_of_bound(benchmark, machine, ours / 1e3),
        None if benchmark.memory is None else benchmark.memory(),
        error,
        clocks,
    )


def read_clocks() -> str:
    """What nvidia-smi says of a CUDA device; empty for others, and without it."""
    if not Device.DEFAULT.startswith("CUDA") or shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", f"--query-gpu={CLOCKS}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CLOCKS_S)
    return done.stdout.partition("\n")[0]


def percent_of_bound(benchmark: Benchmark, machine: Machine, seconds: float) -> float | None:
    """The shortest time that the machine allows as a percentage of the measured one."""
    times = []
    if benchmark.nbytes is not None:
        times.append(benchmark.nbytes / machine.bytes)
    if benchmark.work is not None:
        times.append(benchmark.work * 1e9 / machine.rate(benchmark.arithmetic))
    return 100 * max(times) / seconds if times else None


def environment() -> dict[str, Any]:
    """The device, and the versions of what ran on it."""
    device = Device[Device.DEFAULT]
    found: dict[str, Any] = {
        "device": f"{Device.DEFAULT}: {device.describe()}",
        "architecture": device.target.architecture,
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "arguments": sys.argv[1:],
    }
    if Device.DEFAULT.startswith("CUDA"):
        from cuda.bindings import driver

        found["driver"] = int(driver.cuDriverGetVersion()[1])
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def write(
    path: Path,
    machine: dict[str, Any],
    results: Sequence[Result],
    failed: dict[str, str],
    skipped: Sequence[str],
) -> None:
    """Writes all results; a reader sees the file before or after, never half of it."""
    content = {
        "environment": machine,
        "results": [asdict(result) | {"ratio": result.ratio} for result in results],
        "failed": failed,
        "skipped": list(skipped),
    }
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(content, indent=2) + "\n")
    aside.replace(path)
