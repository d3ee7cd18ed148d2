"""Runs the kernels on a device, real or emulated, and compares what they computed."""

from __future__ import annotations

import numpy as np

from test.hardware.intrinsics import Check
from tinygrad.device import Buffer, Device
from tinygrad.dtype import dtypes
from tinygrad.renderer.target import LaunchShape


def run(check: Check, device: str) -> np.ndarray:
    """What a kernel computes on a device."""
    opened = Device[device]
    program = opened.runtime("check", opened.compile(check.source))
    buffers = []
    for array in (np.zeros_like(check.out), *check.inputs):
        buffer = Buffer(device, array.nbytes, dtypes.uint8).allocate()
        buffer.copyin(memoryview(array).cast("B"))
        buffers.append(buffer)
    program(*buffers, launch=LaunchShape(check.blocks, check.threads, check.shared, check.maps))
    found = np.empty_like(check.out)
    buffers[0].copyout(memoryview(found).cast("B"))
    return found


def differences(check: Check, found: np.ndarray, expected: np.ndarray) -> str:
    """Where two results differ in a bit; empty if nowhere. NaN is one value."""
    differs = found.view(f"u{found.itemsize}") != expected.view(f"u{found.itemsize}")
    differs &= ~(_is_nan(check, found) & _is_nan(check, expected))
    places = np.flatnonzero(differs)
    if not len(places):
        return ""
    first = places[0]
    return (
        f"{len(places)} of {found.size} differ, first at {first}: "
        f"{found.flat[first]!r}, emulated {expected.flat[first]!r}"
    )


def _is_nan(check: Check, values: np.ndarray) -> np.ndarray:
    """Which elements are NaN, in the format that the check computes."""
    if check.name.startswith("half of"):
        return np.isnan(values.view(np.float16))
    if check.name.startswith("bfloat16 of"):
        return np.isnan((values.astype(np.uint32) << 16).view(np.float32))
    if check.name.startswith("TF32 of"):
        return np.isnan(values.view(np.float32))
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
