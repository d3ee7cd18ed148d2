"""The check of hardware covers the prelude, compiles, and compares with right values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from test import nvrtc
from test.hardware import intrinsics
from test.hardware.run import differences, run
from tinygrad.renderer.tensor_map import TensorMap


def test_every_definition_of_the_prelude_is_used() -> None:
    assert intrinsics.uncovered() == []


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100a"])
def test_nvrtc_compiles_the_kernels(architecture: str) -> None:
    if reason := nvrtc.why_not():
        pytest.skip(reason)
    for check in intrinsics.checks(architecture):
        assert nvrtc.compile_for(architecture, check.source).spills == 0, check.name


@pytest.mark.slow
def test_a_machine_without_a_gpu_is_no_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "test.hardware"],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.startswith("nothing to check: ") or done.stdout.endswith(" are right\n")


@pytest.mark.slow
def test_the_emulators_values_are_those_of_numpy() -> None:
    pytest.importorskip("cuda.bindings")
    from test.emulator import emulated_cuda
    from test.emulator.compiler import NoCompilerError
    from tinygrad.device import Device

    if Device.DEFAULT == "CUDA" and not emulated_cuda.is_installed():
        pytest.skip("this process uses NVIDIA's driver")
    try:
        emulated_cuda.install()
    except NoCompilerError as error:
        pytest.skip(str(error))
    found = {check.name: run(check, "CUDA") for check in intrinsics.checks()}
    by_name = {check.name: check for check in intrinsics.checks()}
    patterns = np.arange(1 << 16, dtype=np.uint16)
    floats = by_name["half of float32"].inputs[0]
    t, threads = np.arange(32), np.arange(768, dtype=np.uint32)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = {
            "float32 of half": patterns.view(np.float16).astype(np.float32),
            "half of float32": floats.astype(np.float16).view(np.uint16),
            "float32 of bfloat16": (patterns.astype(np.uint32) << 16).view(np.float32),
            "bfloat16 of float32": floats.astype(ml_dtypes.bfloat16).view(np.uint16),
            "TF32 of float32": (floats.view(np.uint32) + 0x1000) & ~np.uint32(0x1FFF),
            "shuffle of 64 bits": (t // 2).astype(np.int64) << 40,
            "dynamic shared memory": (31 - t).astype(np.int32),
            "box of float32 rounded to TF32": _rounded_row_of_boxes(by_name),
            "roles of the threads of a cluster": (
                threads * np.where(threads % 384 < 256, np.uint32(3), np.uint32(2))
            ),
            "constants": np.where(t % 2, np.inf, np.nan).astype(np.float32),
        }
    for name, values in expected.items():
        if name == "TF32 of float32":
            values = np.where(np.isfinite(floats), values, floats.view(np.uint32))
        assert differences(by_name[name], found[name], values) == "", name
    for words in (1, 2, 4):
        copied = found[f"copies of {words * 4} bytes"]
        here = np.arange(32 * words)
        np.testing.assert_array_equal(copied[here], here)
        zeroed = np.where(here // words % 3 == 0, here + 128, 0)
        np.testing.assert_array_equal(copied[here + 128], zeroed)
    for source in intrinsics.BOX_SOURCES:
        for blocks in (1, 2):
            name = f"boxes of rank {len(source.box)} to {blocks} blocks"
            copied = found[name].reshape(2 * blocks, 16, 8, 8)
            # 16 bytes of a row lie where others would
            rows = np.stack([copied[:, i, np.arange(8) ^ i % 8] for i in range(16)], 1)
            expected = np.tile(_boxes_of_numpy(source), (blocks, 1, 1))
            np.testing.assert_array_equal(rows.reshape(2 * blocks, 16, 64), expected)
    wrong = found["barrier"].copy()
    wrong[3] += 1
    assert "1 of 256 differ, first at 3" in differences(by_name["barrier"], wrong, found["barrier"])


def _rounded_row_of_boxes(by_name: dict[str, intrinsics.Check]) -> np.ndarray:
    """Floats to 10 bits of the mantissa, ties to even, in swizzled rows of 32."""
    (floats,) = by_name["box of float32 rounded to TF32"].inputs
    bits = floats.view(np.uint32)
    rounded = bits + 0xFFF + (bits >> 13 & 1) & np.uint32(0xFFFFE000)
    rows = np.where(np.isfinite(floats), rounded, bits).view(np.float32).reshape(16, 8, 4)
    return np.stack([rows[i, np.arange(8) ^ i % 8] for i in range(16)]).reshape(-1)


def _boxes_of_numpy(source: TensorMap) -> np.ndarray:
    """Both boxes of a tensor, of zeros outside of it."""
    values = np.arange(1, 4321, dtype=np.uint16)
    strides = (2, *source.strides)
    tensor = np.lib.stride_tricks.as_strided(values, source.sizes[::-1], strides[::-1])
    padded = np.pad(tensor, [(x, x) for x in source.box[::-1]])
    found = []
    for places in intrinsics.BOX_PLACES:
        sides = zip(places[: len(source.box)], source.box, strict=True)
        parts = [slice(count + first, count + first + count) for first, count in sides]
        found.append(padded[tuple(parts[::-1])].reshape(16, 64))
    return np.stack(found)
