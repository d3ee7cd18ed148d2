"""CUDA: kernels compiled by NVRTC for the architecture of the GPU, launched by NVIDIA's driver.

`CUDA` is the first GPU, `CUDA:1` the second; DEVICES_PER_GPU maps several devices to each. Nothing
waits for a kernel but the reader of its result.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

from cuda.bindings import driver

from tinygrad.device import Buffer, Compiled, DeviceError
from tinygrad.dtype import dtypes
from tinygrad.renderer.gpu_targets import nvidia_target
from tinygrad.renderer.target import LaunchShape, Target
from tinygrad.runtime.support import nvrtc
from tinygrad.runtime.support.cuda_driver import LOCK, Gpu, check, start_driver
from tinygrad.runtime.support.cuda_memory import CudaAllocator
from tinygrad.settings import DEVICES_PER_GPU

STATIC_SHARED_BYTES = 48 << 10
"""A kernel has to ask for more shared memory than this."""
MAX_SHARED = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
ARCHITECTURE_SPECIFIC_FROM = 9
"""The major compute capability from which "sm_90a" has instructions that "sm_90" lacks."""


class CudaProgram:
    """The kernel `name` of a cubin, loaded on a GPU."""

    def __init__(self, gpu: Gpu, name: str, code: bytes) -> None:
        self.name = name
        self.gpu = gpu
        with LOCK:
            gpu.activate()
            self._module = gpu.check(driver.cuModuleLoadData(code))
            self.function = gpu.check(driver.cuModuleGetFunction(self._module, name.encode()))
        self._shared = STATIC_SHARED_BYTES
        # the arguments in order, each in 8 bytes, and the address of each
        self._arguments, self._pointers = argument_arrays(0)

    def __del__(self) -> None:
        # not where loading failed, or when the interpreter exits
        if hasattr(self, "_module") and LOCK is not None and self.gpu.is_usable:
            with LOCK:
                self.gpu.activate()
                driver.cuStreamSynchronize(self.gpu.kernels)
                driver.cuModuleUnload(self._module)

    def __call__(
        self,
        *buffers: Buffer,
        launch: LaunchShape,
        values: tuple[int, ...] = (),
        wait: bool = False,
    ) -> float | None:
        """Launches the kernel. Waits for it if `wait`, and returns its time in seconds."""
        arguments = [*[buffer.address for buffer in buffers], *values]
        with LOCK:
            self.gpu.begin_kernels()
            if wait:
                start, end = self.gpu.new_event(True), self.gpu.new_event(True)
                self.gpu.check(driver.cuEventRecord(start, self.gpu.kernels))
            if launch.grid:
                self.launch(arguments, launch)
            if wait:
                self.gpu.check(driver.cuEventRecord(end, self.gpu.kernels))
        if not wait:
            return None
        self.gpu.check(driver.cuEventSynchronize(end))
        elapsed_ms = self.gpu.check(driver.cuEventElapsedTime(start, end))
        driver.cuEventDestroy(start)
        driver.cuEventDestroy(end)
        return float(elapsed_ms) * 1e-3

    def launch(self, arguments: list[int], launch: LaunchShape) -> None:
        """Launches the kernel on its GPU's stream, whose context is the current one."""
        gpu = self.gpu
        if len(arguments) != len(self._arguments):
            self._arguments, self._pointers = argument_arrays(len(arguments))
        self._arguments[:] = arguments
        self.allow_shared(launch.shared)
        blocks, threads = launch.blocks()
        gpu.check(
            driver.cuLaunchKernel(
                *(self.function, blocks, 1, 1, threads, 1, 1, launch.shared),
                *(gpu.kernels, ctypes.addressof(self._pointers), 0),
            )
        )
        gpu.end_kernels(self.name)

    def allow_shared(self, nbytes: int) -> None:
        """Allows launches with so many bytes of shared memory."""
        if nbytes > self._shared:
            self.gpu.check(driver.cuFuncSetAttribute(self.function, MAX_SHARED, nbytes))
            self._shared = nbytes


def argument_arrays(count: int) -> tuple[Any, Any]:
    """An array of `count` arguments, each in 8 bytes, and one with their addresses."""
    arguments = (ctypes.c_int64 * count)()
    first = ctypes.addressof(arguments)
    return arguments, (ctypes.c_void_p * count)(*range(first, first + 8 * count, 8))


class CudaDevice(Compiled):
    """An open GPU."""

    def __init__(self, name: str, gpu: Gpu, target: Target) -> None:
        super().__init__(
            name,
            CudaAllocator(gpu, max(DEVICES_PER_GPU.value, 1)),
            target=target,
            compiler=lambda source, _: nvrtc.compile_cuda(source, target.architecture),
            runtime=lambda function, code: CudaProgram(gpu, function, code),
            dtypes=frozenset(dtypes.all),
        )
        self.gpu = gpu

    def synchronize(self) -> None:
        self.gpu.synchronize()


def open_device(name: str) -> Compiled:
    """Opens a GPU. Raises DeviceError if there is none of this number."""
    start_driver(name)
    count = check(driver.cuDeviceGetCount(), name)
    per_gpu = max(DEVICES_PER_GPU.value, 1)
    ordinal = int(name.partition(":")[2] or 0) // per_gpu
    if ordinal >= count:
        each = f" of {per_gpu} devices each" if per_gpu > 1 else ""
        raise DeviceError(
            f"there is no {name}: this machine has {count} NVIDIA GPUs{each}; "
            "DEVICES_PER_GPU maps several devices to each"
        )
    gpu = Gpu(name, ordinal)
    return CudaDevice(name, gpu, _target(gpu))


def _target(gpu: Gpu) -> Target:
    major = gpu.attribute("COMPUTE_CAPABILITY_MAJOR")
    minor = gpu.attribute("COMPUTE_CAPABILITY_MINOR")
    suffix = "a" if major >= ARCHITECTURE_SPECIFIC_FROM else ""
    return replace(
        nvidia_target(f"sm_{major}{minor}{suffix}"),
        units=gpu.attribute("MULTIPROCESSOR_COUNT"),
        warp=gpu.attribute("WARP_SIZE"),
        block_threads=gpu.attribute("MAX_THREADS_PER_BLOCK"),
        grid_items=gpu.attribute("MAX_GRID_DIM_X"),
        shared_bytes=gpu.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
    )
