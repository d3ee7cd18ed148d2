"""Functions of kernels whose compiler turns products and sums into fused multiply-adds.

NVRTC and clang for AMD GPUs do that. The emulator's compiler does it here alone: elsewhere each
operation rounds.
"""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

from test.elementary import arguments, max_error
from test.unit.codegen.test_transcendental import documented
from tinygrad.codegen import get_program
from tinygrad.dtype import DType, dtypes
from tinygrad.renderer import find_renderer
from tinygrad.renderer.gpu_targets import amd_target
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import KernelInfo, UOp

cuda_calls = pytest.importorskip("test.emulator.cuda_calls", reason="needs cuda-bindings")
EmulatedDevice = cuda_calls.EmulatedDevice

CPU_INFO = Path("/proc/cpuinfo")
HAS_FMA = platform.machine() != "x86_64" or " fma " in CPU_INFO.read_text()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_FMA, reason="this CPU has no fused multiply-add"),
]


def function_kernel(op: Ops, dtype: DType, size: int) -> UOp:
    """`out[i] = op(in[i])`."""
    i = UOp.range(size, 0)
    out, source = (UOp(Ops.DEFINE_GLOBAL, dtype.ptr(size), (), n) for n in (0, 1))
    value = source.index(i).load().alu(op)
    return UOp.sink(out.index(i).store(value, i), arg=KernelInfo("function"))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("op", sorted(GroupOp.Elementary))
def test_errors_are_within_those_of_the_docs(gpu: EmulatedDevice, op: Ops, dtype: DType) -> None:
    values = arguments(dtype)
    kernel = function_kernel(op, dtype, len(values))
    spec = get_program(kernel, find_renderer(amd_target("gfx942")))
    loaded = gpu.load(spec.source, spec.function, contracted=True, dialect="hip", warp=64)
    pointers = gpu.upload(np.zeros_like(values)), gpu.upload(values)
    gpu.launch(loaded, *spec.launch.resolve({}).blocks(), *pointers)
    gpu.synchronize()
    error, argument = max_error(op, dtype, gpu.download(pointers[0], values))
    assert error <= documented()[op.name.lower()][dtype], argument
