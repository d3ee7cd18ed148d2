"""The CUDA driver: calls that raise, and GPUs with their streams.

A `Gpu` has a stream for kernels and one for copies. Work of one stream runs in order; each stream
waits for what the other was given before. Nothing here waits on the host but `synchronize` and the
reader of a result, so an error in a kernel shows up in some later call: the message names the
kernels that ran since the last wait. Any thread may use a `Gpu`; `LOCK` is held while work is
issued.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from cuda.bindings import driver

from tinygrad.device import DeviceError

LOCK = threading.RLock()
SUCCESS = driver.CUresult.CUDA_SUCCESS
OUT_OF_MEMORY = driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
NOT_INITIALIZED = driver.CUresult.CUDA_ERROR_NOT_INITIALIZED
STICKY_NAMES = frozenset(
    {
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_CONTAINED",
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_MPS_CLIENT_TERMINATED",
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
    }
)
# a kernel failed: the context is lost, and every later call gives the same error; older bindings
# lack some of the codes
STICKY = frozenset(code for code in driver.CUresult if code.name in STICKY_NAMES)
LIBRARY = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
FORKED = (
    "this process was forked from one that used CUDA, which does not survive that; start "
    "processes by multiprocessing's method 'spawn' or 'forkserver'"
)
RECENT_KERNELS = 8
"""Kernels that the message of a late error names."""
# streams that do not wait for the default stream, and events that other streams may wait for
NON_BLOCKING = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
UNTIMED = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING


class CudaError(DeviceError):
    """A call of the driver failed; `code` is its CUresult."""

    def __init__(self, message: str, code: Any) -> None:
        super().__init__(message)
        self.code = code


def check(result: tuple[Any, ...], name: str = "CUDA") -> Any:
    """The value of a call of the driver. Raises MemoryError or CudaError, which name the device."""
    code = result[0]
    if code:
        if code == OUT_OF_MEMORY:
            raise MemoryError(f"{name} is out of memory")
        _, text = driver.cuGetErrorString(code)
        reason = text.decode() if isinstance(text, bytes) else "unknown error"
        raise CudaError(f"{name}: {reason} ({getattr(code, 'name', code)})", code)
    return result[1] if len(result) == 2 else result[1:]


def start_driver(name: str) -> None:
    """Starts the driver. Raises DeviceError, which says what to install, if that is impossible."""
    try:
        (code,) = driver.cuInit(0)
    except RuntimeError as error:
        # the bindings load the driver's library in the first call
        if fault := _fault_of_library(error):
            raise DeviceError(
                f"{name}: the library of NVIDIA's driver is on this machine, but does not load: "
                f"{fault}; install the driver again, in the version of its kernel module"
            ) from error
        raise DeviceError(
            f"{name} needs NVIDIA's driver, whose library (libcuda) is not on this machine: "
            "install it from nvidia.com/drivers; in a container, pass the GPU: --gpus all"
        ) from error
    if code == NOT_INITIALIZED:
        # what the driver says in a child of a process that used it, by this library or another
        raise DeviceError(f"{name} cannot be used: {FORKED}")
    if code:
        try:
            check((code,), name)
        except RuntimeError as error:
            raise DeviceError(
                f"{error}; see whether `nvidia-smi` lists a GPU, and update the driver otherwise"
            ) from error


def _fault_of_library(error: Exception) -> str:
    """Why the driver's library does not load, if it is on this machine; empty if it is not."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as fault:
        is_missing = isinstance(fault, FileNotFoundError) or "No such file" in str(fault)
        return "" if is_missing else str(fault)
    return str(error)


class Gpu:
    """A logical device: the context of GPU number `ordinal`, with streams of its own."""

    is_forked = False
    """Whether this process was forked from one that used the driver."""

    def __init__(self, name: str, ordinal: int) -> None:
        self.name = name
        self.ordinal = ordinal
        self.device = self.check(driver.cuDeviceGet(ordinal))
        self.context = self.check(driver.cuDevicePrimaryCtxRetain(self.device))
        self._error: CudaError | None = None
        self._recent: deque[str] = deque(maxlen=RECENT_KERNELS)
        self.activate()
        self.kernels = self.check(driver.cuStreamCreate(NON_BLOCKING))
        self.copies = self.check(driver.cuStreamCreate(NON_BLOCKING))
        self._kernels_event = self.new_event()
        self._copies_event = self.new_event()
        # whether a stream was given work that the other one has not been told to wait for
        self._has_kernels = self._has_copies = False

    def attribute(self, name: str) -> int:
        """An attribute of the GPU, as MULTIPROCESSOR_COUNT."""
        kind = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.check(driver.cuDeviceGetAttribute(kind, self.device)))

    def model(self) -> str:
        """The name of the GPU."""
        name = self.check(driver.cuDeviceGetName(256, self.device))
        return str(name.split(b"\0")[0].decode())

    def memory(self) -> tuple[int, int]:
        """The free and all bytes of the GPU's memory."""
        self.activate()
        free, total = self.check(driver.cuMemGetInfo())
        return int(free), int(total)

    def new_event(self, is_timed: bool = False) -> Any:
        """An event of the current context."""
        return self.check(driver.cuEventCreate(0 if is_timed else UNTIMED))

    def activate(self) -> None:
        """Makes this GPU's context that of the thread: other libraries may have changed it.

        Raises DeviceError in a forked process, and after an error in a kernel.
        """
        if self.is_forked:
            raise DeviceError(f"{self.name} cannot be used: {FORKED}")
        if self._error is not None:
            raise self._error
        self.check(driver.cuCtxSetCurrent(self.context))

    @contextlib.contextmanager
    def finalizing(self) -> Iterator[bool]:
        """For finalizers: whether something can be given back to the driver, in this context.

        They run between any two calls of a thread, so they leave its context as it was.
        """
        if not self.is_usable:
            yield False
            return
        with LOCK:
            driver.cuCtxPushCurrent(self.context)
            try:
                yield True
            finally:
                driver.cuCtxPopCurrent()

    @property
    def is_usable(self) -> bool:
        """Whether the driver can be called: after an error in a kernel, and a fork, it cannot."""
        return not self.is_forked and self._error is None

    def check(self, result: tuple[Any, ...]) -> Any:
        """The value of a call of the driver. Raises MemoryError or CudaError.

        The latter names the kernels that may be at fault if one failed.
        """
        if result[0] in STICKY:
            self._error = self._kernel_error(result)
            raise self._error
        return check(result, self.name)

    def _kernel_error(self, result: tuple[Any, ...]) -> CudaError:
        try:
            check(result, self.name)
        except CudaError as error:
            kernels = list(dict.fromkeys(reversed(self._recent)))
            if len(kernels) == 1:
                fault = f"in kernel {kernels[0]}"
            elif kernels:
                fault = f"in one of the kernels (last first) {', '.join(kernels)}"
            else:
                fault = "in a kernel that ran before"
            hint = "" if len(kernels) == 1 else "; DEBUG=2 waits for each kernel, and names one"
            return CudaError(
                f"{error}, {fault}{hint}. The GPU cannot be used any more in this process",
                error.code,
            )
        raise AssertionError("the call succeeded")

    def begin_kernels(self) -> None:
        """Lets the kernels that follow wait for the copies so far. Activates the context."""
        self.activate()
        if self._has_copies:
            self.check(driver.cuEventRecord(self._copies_event, self.copies))
            self.check(driver.cuStreamWaitEvent(self.kernels, self._copies_event, 0))
            self._has_copies = False

    def end_kernels(self, name: str) -> None:
        """Notes the kernel that was launched."""
        self._has_kernels = True
        self._recent.append(name)

    def begin_copy(self) -> None:
        """Lets the copies that follow wait for the kernels so far. Activates the context."""
        self.activate()
        if self._has_kernels:
            self.check(driver.cuEventRecord(self._kernels_event, self.kernels))
            self.check(driver.cuStreamWaitEvent(self.copies, self._kernels_event, 0))
            self._has_kernels = False

    def end_copy(self) -> None:
        """Notes that a copy was issued."""
        self._has_copies = True

    def wait_for(self, other: Gpu, stream: Any) -> None:
        """Lets one of this GPU's streams wait for all that another GPU was given."""
        other.begin_kernels()
        other.check(driver.cuEventRecord(other._kernels_event, other.kernels))
        self.activate()
        self.check(driver.cuStreamWaitEvent(stream, other._kernels_event, 0))

    def kernels_done(self) -> Any:
        """The event after the kernels so far."""
        self.check(driver.cuEventRecord(self._kernels_event, self.kernels))
        return self._kernels_event

    def copies_done(self) -> Any:
        """The event after the copies so far."""
        self.check(driver.cuEventRecord(self._copies_event, self.copies))
        return self._copies_event

    def block_until(self, event: Any) -> None:
        """Lets this GPU's later work wait for an event of another one."""
        self.activate()
        self.check(driver.cuStreamWaitEvent(self.kernels, event, 0))
        self._has_kernels = True

    def synchronize(self) -> None:
        """Waits for all work of this GPU's streams."""
        with LOCK:
            self.activate()
        self.check(driver.cuStreamSynchronize(self.copies))
        self.check(driver.cuStreamSynchronize(self.kernels))
        self._recent.clear()


def _after_fork() -> None:
    Gpu.is_forked = True
    LOCK.release()


if hasattr(os, "register_at_fork"):
    # no other thread holds the lock in the child, which would wait for it for ever
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=_after_fork
    )
