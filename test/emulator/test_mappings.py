"""What threads compute together: kernels of every mapping have the values of the plain loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

from test.backend.codegen.kernels import random_array
from test.backend.gpu.test_thread_mapping import (
    add,
    attention,
    column_sum,
    row_sum,
    softmax,
    transpose,
)
from test.emulator import emulated_cuda
from test.evaluator.kernel_graph import interpret
from tinygrad.codegen import get_program
from tinygrad.codegen.optimize.threads.search import mappings, with_mapping
from tinygrad.device import Buffer, Device
from tinygrad.dtype import PtrDType
from tinygrad.execution.runner import CompiledRunner
from tinygrad.renderer import find_renderer
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

KERNELS: dict[str, Callable[[], UOp]] = {
    "wide": lambda: add(1 << 15),
    "odd": lambda: add(10_001),
    "shifted": lambda: add(1 << 12, shift=1),
    "short rows": lambda: row_sum(70, 100),
    "long rows": lambda: row_sum(3, 9000),
    "columns": lambda: column_sum(700, 50),
    "softmax of short rows": lambda: softmax(33, 77),
    "softmax of long rows": lambda: softmax(3, 5000),
    "transpose": lambda: transpose(70, 45),
    "attention": lambda: attention(272, 20),
}
RNG = numpy.random.default_rng(0)
Arrays = dict[int, numpy.ndarray]


def arrays_of(kernel: UOp) -> Arrays:
    """Values for the arguments of a kernel."""
    found: Arrays = {}
    for u in kernel.toposort():
        if u.op is Ops.DEFINE_GLOBAL:
            assert isinstance(u.dtype, PtrDType)
            found[u.arg] = random_array(RNG, u.dtype.base, u.dtype.size)
    return found


def run(kernel: UOp, arrays: Arrays) -> Arrays:
    """The arrays after the kernel ran on the emulated device."""
    runner = CompiledRunner(get_program(kernel, find_renderer(Device["CUDA"].target)), "CUDA")
    pointers = {u.arg: u.dtype for u in kernel.toposort() if u.op is Ops.DEFINE_GLOBAL}
    buffers = []
    for slot in range(max(arrays) + 1):
        dtype = pointers[slot]
        assert isinstance(dtype, PtrDType)
        buffer = Buffer("CUDA", dtype.size, dtype.base).allocate()
        buffers.append(buffer.copyin(memoryview(arrays[slot]).cast("B")))
    runner("CUDA", buffers, {}, wait=True)
    return {slot: buffers[slot].numpy() for slot in arrays}


def check(kernel: UOp, arrays: Arrays, expected: Arrays) -> None:
    found = run(kernel, arrays)
    for slot, array in expected.items():
        numpy.testing.assert_allclose(found[slot], array, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_threads_compute_what_loops_do(name: str, emulated_driver: None) -> None:
    kernel = KERNELS[name]()
    arrays = arrays_of(kernel)
    expected = {slot: array.copy() for slot, array in arrays.items()}
    interpret(kernel, expected)
    for is_backwards in (False, True):
        with emulated_cuda.order(is_backwards):
            check(kernel, arrays, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wide", "columns", "softmax of short rows", "transpose"])
def test_every_mapping_computes_the_same(name: str, emulated_driver: None) -> None:
    kernel = KERNELS[name]()
    arrays = arrays_of(kernel)
    expected = {slot: array.copy() for slot, array in arrays.items()}
    interpret(kernel, expected)
    for option in mappings(kernel, find_renderer(Device["CUDA"].target))[::5]:
        check(with_mapping(kernel, option), arrays, expected)
