"""Kernels for processors with fewer features than this machine has, in a process each."""

import os
import subprocess
import sys

import pytest

from tinygrad.renderer.host_cpu import LEVELS, host_cpu

# a window that is staged with a mask of two registers, of which one has no valid lane
PROGRAM = """
import numpy as np
from tinygrad import Tensor
from tinygrad.runtime.support.llvm import host_target

rng = np.random.default_rng(0)
w, g = (rng.standard_normal(s).astype("f4") for s in ((64, 64, 3, 3), (2, 64, 6, 6)))
x = Tensor.zeros(2, 64, 8, 8, requires_grad=True)
(x.conv2d(Tensor(w)) * Tensor(g)).sum().backward()
expected = np.zeros((2, 64, 8, 8))
for i in range(3):
    for j in range(3):
        expected[:, :, i : i + 6, j : j + 6] += np.einsum("bohw,oc->bchw", g, w[:, :, i, j])
np.testing.assert_allclose(x.grad.numpy(), expected, 1e-4, 1e-4)
half = rng.standard_normal(37).astype("f2")
np.testing.assert_array_equal((Tensor(half) + 1).numpy(), half + np.float16(1))
print(host_target().cpu)
"""


def run(level: str, llvm: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CPU_ARCH": level, "CPU_LLVM": llvm}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("llvm", ["1", "0"])
@pytest.mark.parametrize("level", LEVELS)
def test_kernels_are_compiled_for_a_level_of_x86_64(level: str, llvm: str) -> None:
    if LEVELS[level] > host_cpu().vector_bytes:
        pytest.skip(f"this machine has no {level}")
    done = run(level, llvm)
    assert done.stdout.strip() == level, done.stderr


def test_no_instruction_of_sse4a_is_mixed_with_wide_vectors() -> None:
    features = host_cpu().features.split(",")
    assert "+sse4a" not in features or "+avx" not in features


@pytest.mark.slow
def test_a_level_that_the_machine_lacks_is_an_error() -> None:
    if host_cpu().vector_bytes == max(LEVELS.values()):
        pytest.skip("this machine has every level")
    assert "DeviceError: CPU_ARCH=x86-64-v4 is more than" in run("x86-64-v4", "1").stderr


def test_a_level_that_does_not_exist_is_an_error() -> None:
    assert "SettingError: CPU_ARCH='x86-64-v9' is not a choice" in run("x86-64-v9", "1").stderr
