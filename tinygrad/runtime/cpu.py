"""CPU: kernels as machine code in this process, run by one worker pool.

`CPU` is the whole machine. `CPU:1`, `CPU:2`, ... are more devices with their own buffers; all share
the pool. A kernel is `void kernel(void **buffers, const int64_t *values, int64_t begin,
int64_t end)` and computes the items [begin, end) of its grid. `buffers[i]` is the address of its
i-th buffer, aligned to the itemsize only; `values` are the runtime integers in declared order.
"""

from __future__ import annotations

import ctypes
import time

from tinygrad.device import Buffer, Compiled
from tinygrad.device.allocator import Allocation
from tinygrad.dtype import dtypes
from tinygrad.renderer.host_cpu import host_target
from tinygrad.renderer.target import LaunchShape
from tinygrad.runtime.support.c_compiler import compile_c
from tinygrad.runtime.support.host_memory import HostAllocator
from tinygrad.runtime.support.llvm import (
    DEFAULT_FLAGS,
    VECTORIZED_FLAGS,
    compile_llvm,
    compile_llvm_ahead,
    link,
)
from tinygrad.runtime.support.replay import Replay
from tinygrad.runtime.support.worker_pool import worker_pool
from tinygrad.settings import compiles_with_llvm


class CPUAllocator(HostAllocator):
    """Host memory; large copies use all threads."""

    def wrap_host_memory(self, data: memoryview) -> Allocation | None:
        # kernels may write to any buffer, so read-only memory is copied
        return None if data.readonly else super().wrap_host_memory(data)

    def _copy(self, destination: int, source: int, nbytes: int) -> None:
        worker_pool().copy(destination, source, nbytes)


class CPUProgram:
    """The kernel `name` of an object file, linked into this process. Raises CompileError."""

    def __init__(self, name: str, code: bytes) -> None:
        self.name = name
        self._code = link(code, name)  # keeps the machine code mapped
        self.address: int = self._code[name]
        self._pool = worker_pool()

    def __call__(
        self,
        *buffers: Buffer,
        launch: LaunchShape,
        values: tuple[int, ...] = (),
        wait: bool = False,
    ) -> float | None:
        """Runs the kernel. Returns its time in seconds if `wait`."""
        pointers = (ctypes.c_uint64 * len(buffers))(*[buffer.address for buffer in buffers])
        integers = (ctypes.c_int64 * len(values))(*values) if values else None
        start = time.perf_counter()
        self._pool.launch(self.address, pointers, integers, launch.items)
        return time.perf_counter() - start if wait else None


def _compile_llvm(source: str, is_vectorized: bool) -> bytes:
    return compile_llvm(source, VECTORIZED_FLAGS if is_vectorized else DEFAULT_FLAGS)


def _compile_llvm_ahead(source: str, is_vectorized: bool) -> None:
    compile_llvm_ahead(source, VECTORIZED_FLAGS if is_vectorized else DEFAULT_FLAGS)


def _compile_c(source: str, is_vectorized: bool) -> bytes:
    return compile_c(source)


def make_replay() -> Replay:
    """A replay of kernels of any CPU devices."""
    return Replay(worker_pool())


def open_device(name: str) -> Compiled:
    """Opens a CPU device. CPU_LLVM or DEV selects the renderer: LLVM IR, or C."""
    is_llvm = compiles_with_llvm()
    return Compiled(
        name,
        CPUAllocator(name),
        target=host_target("llvm" if is_llvm else "c"),
        compiler=_compile_llvm if is_llvm else _compile_c,
        compiler_ahead=_compile_llvm_ahead if is_llvm else None,
        runtime=CPUProgram,
        replay=make_replay,
        dtypes=frozenset(dtypes.all),
        shares_programs=True,
    )
