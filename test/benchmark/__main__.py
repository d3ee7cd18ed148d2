"""Runs the benchmarks whose names start with one of the arguments, or all of them."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

from test.benchmark.measure import HAS_TORCH, Benchmark


def all_benchmarks() -> Iterator[Benchmark]:
    """All benchmarks of this folder: the lists named BENCHMARKS in its files."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name != "__main__":
            loaded = importlib.import_module(f"test.benchmark.{module.name}")
            yield from getattr(loaded, "BENCHMARKS", [])


def line(benchmark: Benchmark) -> str:
    """Runs a benchmark; returns its name, our time, torch's, the ratio of the two, and our rate
    and memory.
    """
    ours = benchmark.ours()
    cells = [f"{benchmark.name:44}", f"{ours:12.2f}"]
    if benchmark.torch is None or not HAS_TORCH:
        cells += [f"{'':12}", f"{'':8}"]
    else:
        theirs = benchmark.torch()
        cells += [f"{theirs:12.2f}", f"{ours / theirs:8.2f}"]
    if benchmark.work is not None:
        cells.append(f"{benchmark.work / ours * 1e3:8.1f} GFLOP/s")
    if benchmark.memory is not None:
        cells.append(f"{benchmark.memory():8.1f} MB")
    return " ".join(cells).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m test.benchmark", description=__doc__)
    parser.add_argument("names", nargs="*", help="the start of a benchmark's name")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    arguments = parser.parse_args()
    chosen = [
        benchmark
        for benchmark in all_benchmarks()
        if not arguments.names or benchmark.name.startswith(tuple(arguments.names))
    ]
    if not chosen:
        parser.error(f"no benchmark starts with {' or '.join(arguments.names)}; try --list")
    if arguments.list:
        print("\n".join(benchmark.name for benchmark in chosen))
        return
    print(f"{'benchmark':44} {'ours, ms':>12} {'torch, ms':>12} {'ratio':>8}")
    for benchmark in chosen:
        print(line(benchmark), flush=True)


if __name__ == "__main__":
    main()
