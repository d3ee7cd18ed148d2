"""A kernel on an NVIDIA GPU: machine code that is loaded into its context, and launched."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

from cuda.bindings import driver

from tinygrad.device import Buffer
from tinygrad.renderer.target import LaunchShape
from tinygrad.renderer.tensor_map import TensorMap
from tinygrad.runtime.support.cuda import nvrtc
from tinygrad.runtime.support.cuda.driver import LOCK, CudaError, Gpu
from tinygrad.runtime.support.cuda.tensor_map import EncodedMap, encode

STATIC_SHARED_BYTES = 48 << 10
"""A kernel has to ask for more shared memory than this."""
MAX_SHARED = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class CudaProgram:
    """The kernel `name` of a cubin, loaded on a GPU."""

    def __init__(self, gpu: Gpu, name: str, code: bytes) -> None:
        self.name = name
        self.gpu = gpu
        with LOCK:
            gpu.activate()
            self._module = _load(gpu, code)
            self.function = gpu.check(driver.cuModuleGetFunction(self._module, name.encode()))
        self._shared = STATIC_SHARED_BYTES
        self._arguments = Arguments(0)

    def __del__(self, exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        # not where loading failed, or when the interpreter exits
        if hasattr(self, "_module") and not exiting():
            with self.gpu.finalizing() as can_unload:
                if can_unload:
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
            if launch.grid:
                # before the clock starts: what the host prepares is no time of the kernel
                self._prepare(arguments, launch)
            if wait:
                start, end = self.gpu.new_event(True), self.gpu.new_event(True)
                self.gpu.check(driver.cuEventRecord(start, self.gpu.kernels))
            if launch.grid:
                self._issue(launch)
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
        self._prepare(arguments, launch)
        self._issue(launch)

    def _prepare(self, arguments: list[int], launch: LaunchShape) -> None:
        """Sets the arguments of the next launch."""
        if len(arguments) != len(self._arguments):
            self._arguments = Arguments(len(arguments), launch.maps)
        self._arguments.set(arguments)
        self.allow_shared(launch.shared)

    def _issue(self, launch: LaunchShape) -> None:
        """Launches the kernel on the arguments that are set."""
        gpu = self.gpu
        blocks, threads = launch.blocks()
        gpu.check(
            driver.cuLaunchKernel(
                *(self.function, blocks, 1, 1, threads, 1, 1, launch.shared),
                *(gpu.kernels, self._arguments.address, 0),
            )
        )
        gpu.end_kernels(self.name)

    def allow_shared(self, nbytes: int) -> None:
        """Allows launches with so many bytes of shared memory."""
        if nbytes > self._shared:
            self.gpu.check(driver.cuFuncSetAttribute(self.function, MAX_SHARED, nbytes))
            self._shared = nbytes


def _load(gpu: Gpu, code: bytes) -> Any:
    """The module of a cubin. Raises CudaError, which says so if the driver is older than NVRTC."""
    try:
        return gpu.check(driver.cuModuleLoadData(code))
    except CudaError as error:
        version = gpu.check(driver.cuDriverGetVersion())
        known, compiler = (version // 1000, version % 1000 // 10), nvrtc.version()
        if known >= compiler:
            raise
        have, need = ("{}.{}".format(*x) for x in (known, compiler))
        raise CudaError(
            f"{error}: NVRTC {need} compiled it for a newer driver than this one, which is made "
            f"for CUDA {have}; update the driver, or pip install "
            f"'cuda-bindings[all]=={known[0]}.*'",
            error.code,
        ) from error


class Arguments:
    """The arguments of launches: `count` in 8 bytes each, buffers first, then tensor maps.

    The array at `address` has the address of each.
    """

    def __init__(self, count: int, maps: Sequence[tuple[int, TensorMap]] = ()) -> None:
        self._values: Any = (ctypes.c_int64 * count)()
        self._maps = maps
        self._encoded: list[EncodedMap] = []
        first = ctypes.addressof(self._values)
        places = [*range(first, first + 8 * count, 8), *[0] * len(maps)]
        self._pointers = (ctypes.c_void_p * len(places))(*places)
        self.address = ctypes.addressof(self._pointers)

    def __len__(self) -> int:
        return len(self._values)

    def set(self, values: list[int]) -> None:
        """Sets the arguments, and encodes the maps of the buffers among them."""
        self._values[:] = values
        if self._maps:
            self._encoded = [encode(described, values[i]) for i, described in self._maps]
            self._pointers[len(values) :] = [x.address for x in self._encoded]
