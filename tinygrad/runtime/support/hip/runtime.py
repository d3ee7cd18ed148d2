"""The HIP runtime of an installed ROCm, by ctypes.

`Hip` turns the status of a call into an exception. Errors of kernels come late, and stay: each call
after one fails, and its message names the kernels that were launched since the last wait.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
from collections import deque
from typing import Any

from tinygrad.device import DeviceError

LIBRARIES = (
    "libamdhip64.so",
    "/opt/rocm/lib/libamdhip64.so",
    "libamdhip64.so.7",
    "libamdhip64.so.6",
    "libamdhip64.so.5",
)
OUT_OF_MEMORY = 2
NON_BLOCKING = 1
MULTIPROCESSOR_COUNT = 63
PROPERTIES_BYTES = 1 << 13
"""More than any version of `hipDeviceProp_t` has."""
RECENT_KERNELS = 8


@functools.cache
def load_library() -> Any:
    """ROCm's `libamdhip64`. Raises DeviceError if it is not installed."""
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError(
        "AMD needs ROCm, whose library libamdhip64.so is not on this machine: install it as "
        "rocm.docs.amd.com describes; in a container, pass /dev/kfd and /dev/dri"
    )


class Hip:
    """The runtime for one GPU. Each method makes the GPU the current one of the thread."""

    def __init__(self, name: str, ordinal: int, library: Any) -> None:
        self.name = name
        self.ordinal = ordinal
        self._library = library
        self._process = os.getpid()
        self._recent: deque[str] = deque(maxlen=RECENT_KERNELS)
        self.stream = ctypes.c_void_p()
        self.call("hipStreamCreateWithFlags", ctypes.byref(self.stream), NON_BLOCKING)

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function of the runtime. Raises MemoryError or DeviceError."""
        if os.getpid() != self._process:
            raise DeviceError(
                f"{self.name} was opened before this process was forked, and ROCm does not survive "
                "that; start processes by multiprocessing's method 'spawn' or 'forkserver'"
            )
        self.check("hipSetDevice", self._library.hipSetDevice(self.ordinal))
        self.check(function, getattr(self._library, function)(*arguments))

    def finalize(self, function: str, *arguments: Any) -> None:
        """A call of a finalizer, which runs between any two others of a thread: it leaves the GPU
        of the thread as it was. The next call raises what went wrong. A forked process calls
        nothing.
        """
        if os.getpid() != self._process:
            return
        current = ctypes.c_int(self.ordinal)
        self._library.hipGetDevice(ctypes.byref(current))
        with contextlib.suppress(DeviceError, MemoryError):
            self.call(function, *arguments)
        self._library.hipSetDevice(current)

    def check(self, function: str, status: int) -> None:
        """Raises the exception of a status that is not success."""
        if status == 0:
            return
        if status == OUT_OF_MEMORY:
            raise MemoryError(f"{self.name} is out of memory")
        names = ", ".join(dict.fromkeys(reversed(self._recent))) or "none"
        raise DeviceError(
            f"{self.name}: {function} failed: {error_name(self._library, status)}. It may come "
            f"from an earlier kernel; the last ones were: {names}"
        )

    def architecture(self) -> str:
        """The GPU's instruction set, as "gfx942"."""
        properties = ctypes.create_string_buffer(PROPERTIES_BYTES)
        has_new = hasattr(self._library, "hipGetDevicePropertiesR0600")
        function = "hipGetDevicePropertiesR0600" if has_new else "hipGetDeviceProperties"
        self.call(function, properties, self.ordinal)
        # a text within a struct whose layout differs between versions
        found = re.search(rb"gfx[0-9a-f]{3,}", properties.raw)
        if found is None:
            raise DeviceError(f"{self.name}: the driver names no architecture of the GPU")
        return found[0].decode()

    def units(self) -> int:
        """The number of compute units."""
        count = ctypes.c_int()
        self.call("hipDeviceGetAttribute", ctypes.byref(count), MULTIPROCESSOR_COUNT, self.ordinal)
        return count.value

    def memory(self) -> int:
        """The bytes of the GPU's memory."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return total.value

    def note(self, kernel: str) -> None:
        """Notes a kernel before its launch."""
        self._recent.append(kernel)

    def synchronize(self) -> None:
        """Waits for all that the stream was given."""
        self.call("hipStreamSynchronize", self.stream)
        self._recent.clear()


def error_name(library: Any, status: int) -> str:
    """The name of a status, as hipErrorInvalidValue."""
    library.hipGetErrorName.restype = ctypes.c_char_p
    name: bytes | None = library.hipGetErrorName(status)
    return name.decode() if name else f"status {status}"


def count_gpus(name: str, library: Any) -> int:
    """The number of GPUs. Raises DeviceError if the driver does not start."""
    count = ctypes.c_int()
    status = library.hipInit(0) or library.hipGetDeviceCount(ctypes.byref(count))
    if status:
        raise DeviceError(
            f"{name}: ROCm finds no GPU: {error_name(library, status)}; see whether `rocminfo` "
            "lists one, and whether this user is in the groups video and render"
        )
    return count.value
