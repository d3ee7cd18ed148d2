"""AMD: kernels in HIP, compiled by clang, launched by ROCm's HIP runtime.

`AMD` is the first GPU; DEVICES_PER_GPU maps several devices to each. A device has one stream, in
order: each launch and copy sees all earlier ones. A kernel takes its buffers, then its integers, 64
bits each. This runtime has not run on hardware yet: its calls are tested with a stand-in.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from tinygrad.device import Buffer, Compiled, DeviceError
from tinygrad.device.allocator import Allocator, BufferSpec, FreeLists
from tinygrad.renderer.gpu_targets import amd_target
from tinygrad.renderer.target import LaunchShape
from tinygrad.runtime.support.hip.compiler import compile_hip
from tinygrad.runtime.support.hip.runtime import Hip, count_gpus, load_library
from tinygrad.runtime.support.host_memory import get_host_address
from tinygrad.settings import DEVICES_PER_GPU

COPY_DEFAULT = 4
"""`hipMemcpyDefault`: the addresses say whose memory they are of."""


class AMDAllocator(Allocator):
    """Memory of a GPU."""

    def __init__(self, hip: Hip) -> None:
        super().__init__(hip.name, FreeLists(hip.memory() // 4))
        self.hip = hip

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[Any, Any]:
        address = ctypes.c_void_p()
        self.hip.call("hipMalloc", ctypes.byref(address), ctypes.c_size_t(max(nbytes, 1)))
        return address.value, None

    def _free(self, handle: int, nbytes: int) -> None:
        # waits for the GPU
        self.hip.finalize("hipFree", ctypes.c_void_p(handle))

    def copyin(self, handle: int, source: memoryview) -> None:
        self._copy(handle, get_host_address(source), source.nbytes)

    def copyout(self, destination: memoryview, handle: int) -> None:
        self._copy(get_host_address(destination), handle, destination.nbytes)

    def copy_from(self, handle: int, source: Allocator, source_handle: int, nbytes: int) -> bool:
        if not isinstance(source, AMDAllocator):
            return False
        source.hip.synchronize()
        self._copy(handle, source_handle, nbytes)
        return True

    def _copy(self, destination: int, source: int, nbytes: int) -> None:
        """Copies after all earlier work, and waits."""
        if nbytes:
            addresses = ctypes.c_void_p(destination), ctypes.c_void_p(source)
            size = ctypes.c_size_t(nbytes)
            self.hip.call("hipMemcpyAsync", *addresses, size, COPY_DEFAULT, self.hip.stream)
            self.hip.synchronize()


class AMDProgram:
    """The kernel `name` of a code object, loaded on a GPU."""

    def __init__(self, hip: Hip, name: str, code: bytes) -> None:
        self.name = name
        self.hip = hip
        self._module = ctypes.c_void_p()
        self._function = ctypes.c_void_p()
        hip.call("hipModuleLoadData", ctypes.byref(self._module), code)
        hip.call("hipModuleGetFunction", ctypes.byref(self._function), self._module, name.encode())

    def __del__(self, exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        # not where loading failed, or when the interpreter exits
        if hasattr(self, "_module") and self._module and not exiting():
            # unloading waits for no launch
            self.hip.finalize("hipStreamSynchronize", self.hip.stream)
            self.hip.finalize("hipModuleUnload", self._module)

    def __call__(
        self,
        *buffers: Buffer,
        launch: LaunchShape,
        values: tuple[int, ...] = (),
        wait: bool = False,
    ) -> float | None:
        """Launches the kernel. Waits for it if `wait`, and returns its time in seconds."""
        if not launch.items:
            return 0.0 if wait else None
        arguments = [*(buffer.address for buffer in buffers), *values]
        if not wait:
            self._launch(arguments, launch)
            return None
        start, end = self._event(), self._event()
        try:
            self.hip.call("hipEventRecord", start, self.hip.stream)
            self._launch(arguments, launch)
            self.hip.call("hipEventRecord", end, self.hip.stream)
            self.hip.call("hipEventSynchronize", end)
            elapsed_ms = ctypes.c_float()
            self.hip.call("hipEventElapsedTime", ctypes.byref(elapsed_ms), start, end)
        finally:
            for event in (start, end):
                self.hip.finalize("hipEventDestroy", event)
        return elapsed_ms.value * 1e-3

    def _launch(self, arguments: list[int], launch: LaunchShape) -> None:
        numbers = (ctypes.c_int64 * len(arguments))(*arguments)
        first = ctypes.addressof(numbers)
        pointers = (ctypes.c_void_p * len(arguments))(*range(first, first + 8 * len(arguments), 8))
        blocks, threads = launch.blocks()
        self.hip.note(self.name)
        self.hip.call(
            "hipModuleLaunchKernel",
            *(self._function, blocks, 1, 1, threads, 1, 1),
            *(launch.shared, self.hip.stream, pointers, None),
        )

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.hip.call("hipEventCreate", ctypes.byref(event))
        return event


class AMDDevice(Compiled):
    """An open GPU."""

    def __init__(self, hip: Hip) -> None:
        target = amd_target(hip.architecture(), hip.units())
        super().__init__(
            hip.name,
            AMDAllocator(hip),
            target=target,
            compiler=lambda source, _: compile_hip(source, target.architecture),
            runtime=lambda name, code: AMDProgram(hip, name, code),
            dtypes=target.dtypes,
        )
        self.hip = hip

    def synchronize(self) -> None:
        self.hip.synchronize()


def open_device(name: str) -> Compiled:
    """Opens a GPU. Raises DeviceError if there is none of this number."""
    library = load_library()
    count = count_gpus(name, library)
    ordinal = int(name.partition(":")[2] or 0) // max(DEVICES_PER_GPU.value, 1)
    if ordinal >= count:
        raise DeviceError(
            f"there is no {name}: this machine has {count} AMD GPUs; "
            "DEVICES_PER_GPU maps several devices to each"
        )
    return AMDDevice(Hip(name, ordinal, library))
