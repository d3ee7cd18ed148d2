"""A report of the devices of this machine: found or not, what to install, and a check of each.

The check computes a product, a reduction and copies, compares them with the host, and measures
their speed in a second or so. It is a first look, not a benchmark.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygrad.device import Device, DeviceError
from tinygrad.dtype import dtypes
from tinygrad.tensor import Tensor
from tinygrad.text import drop_output, highlighted

PRODUCT_SIZE = 512
COPY_BYTES = 64 << 20
REPEATS = 3
DRY_RUNS = frozenset({"NULL"})
"""Kinds that compute nothing."""
# sums of so many products of small integers are exact in float32
MAX_INTEGER = 8


@dataclass(frozen=True)
class Check:
    """What was computed, whether the result is right, and its speed."""

    name: str
    is_right: bool
    speed: str

    def __str__(self) -> str:
        state = highlighted("ok", "green") if self.is_right else highlighted("WRONG", "red")
        return f"{self.name:12s} {state:5s}  {self.speed}"


def main(arguments: Sequence[str]) -> int:
    """Prints the report. Returns 1 if a device computes wrong values or one asked for is missing.

    The arguments name the devices to check; without any, they are all that are found.
    """
    parser = argparse.ArgumentParser(prog="python -m tinygrad.device", description=__doc__)
    parser.add_argument(
        "devices", nargs="*", help="devices to check, such as CUDA:1 (default: all)"
    )
    parser.add_argument(
        "--size", type=int, default=PRODUCT_SIZE, help="rows of the product (default: %(default)s)"
    )
    parser.add_argument(
        "--bytes", type=int, default=COPY_BYTES, help="bytes that are copied (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    names = options.devices or _all_names()
    try:
        states = [_report(name, options.size, options.bytes) for name in names]
        print(f"default device: {Device.DEFAULT}; DEV=NAME chooses another", flush=True)
    except BrokenPipeError:
        drop_output()
        return 1
    return int(False in states or (bool(options.devices) and None in states))


def _all_names() -> list[str]:
    """The devices of each kind; the kind alone where there are none."""
    names: list[str] = []
    for kind in Device.known():
        try:
            count = Device.count(kind)
        except DeviceError:
            count = 1  # opening it says why it is missing
        names += [f"{kind}:{number}" if number else kind for number in range(count)]
    return [name for name in names if name != "DISK"]


def _report(name: str, size: int, nbytes: int) -> bool | None:
    """Prints the state of a device. Returns whether it computes right, None if it is missing."""
    try:
        opened = Device[name]
    except DeviceError as error:
        print(f"{name:8s} {highlighted('not found', 'yellow')}: {error}")
        return None
    print(f"{name:8s} {opened.describe()}")
    if not opened.runs_kernels or name in DRY_RUNS:
        return True
    checks = check_device(name, size, nbytes)
    for check in checks:
        print(f"{'':8s} {check}")
    return all(check.is_right for check in checks)


def check_device(name: str, size: int = PRODUCT_SIZE, nbytes: int = COPY_BYTES) -> list[Check]:
    """Computes on a device, and compares with the host."""
    try:
        return [_product(name, size), _sum(name, nbytes), *_copies(name, nbytes)]
    except Exception as error:  # whatever it is, the other devices are reported
        return [Check("stopped", False, f"{type(error).__name__}: {error}")]


def _product(name: str, size: int) -> Check:
    rng = np.random.default_rng(0)
    shape = (2, size, size)
    a, b = rng.integers(-MAX_INTEGER, MAX_INTEGER, shape).astype(np.float32)
    x, y = (Tensor(value, device=name).realize() for value in (a, b))

    def product() -> Tensor:
        return (x @ y).realize()

    found, elapsed = _timed(name, product)
    is_right = np.array_equal(found.numpy(), a @ b)
    return Check("product", is_right, f"{2 * size**3 / elapsed * 1e-9:,.0f} GFLOP/s, float32")


def _sum(name: str, nbytes: int) -> Check:
    values = np.arange(nbytes // 4, dtype=np.int32)
    x = Tensor(values, device=name).realize()
    found, elapsed = _timed(name, lambda: x.sum(dtype=dtypes.int64).realize())
    is_right = found.item() == int(values.sum(dtype=np.int64))
    return Check("reduction", is_right, f"{_rate(nbytes, elapsed)} of memory read")


def _copies(name: str, nbytes: int) -> list[Check]:
    values = np.random.default_rng(1).integers(0, 1 << 30, nbytes // 4, np.int32)
    x: Tensor
    x, upload = _timed(name, lambda: Tensor(values).to(name).realize())

    def changed() -> Tensor:
        return (x + 1).realize()

    copy, inside = _timed(name, changed)
    found, download = _timed(name, copy.numpy)
    is_right = np.array_equal(found, values + 1)
    return [
        Check("copy", is_right, f"{_rate(2 * nbytes, inside)} of memory read and written"),
        Check("host", is_right, f"{_rate(nbytes, upload)} in, {_rate(nbytes, download)} out"),
    ]


def _timed(name: str, run: Callable[[], Any]) -> tuple[Any, float]:
    """The result of the last of several runs, and the seconds of the fastest."""
    times = []
    for _ in range(1 + REPEATS):
        Device[name].synchronize()
        start = time.perf_counter()
        result = run()
        Device[name].synchronize()
        times.append(time.perf_counter() - start)
    # the first one compiles
    return result, min(times[1:])


def _rate(nbytes: int, elapsed: float) -> str:
    return f"{nbytes / elapsed * 1e-9:,.1f} GB/s"
