"""Native code of the CPU runtime: C sources, and the LLVM IR they were compiled to.

`runtime.c` is the worker pool, the replay and the copy kernel; `half.c` the conversions of float16.
Each platform has a folder with `runtime.ll` and `half.ll`, which `build.py` writes, so that users
need no C compiler: LLVM compiles the IR for the CPU of this process. The IR names no CPU.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from tinygrad.device import DeviceError

FOLDER = Path(__file__).parent
SYSTEMS = {"linux": "linux", "darwin": "macos"}
MACHINES = {"x86_64": "x86_64", "AMD64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def host_platform() -> str:
    """The name of this platform's folder. Raises DeviceError if there is no code for it."""
    if sys.platform not in SYSTEMS:
        raise DeviceError(
            f"the CPU device needs POSIX threads, which {sys.platform} lacks; use Linux or macOS"
        )
    machine = platform.machine()
    if machine not in MACHINES:
        raise DeviceError(
            f"the CPU device has no native code for {machine}; add the platform to MACHINES and to "
            "TARGETS in tinygrad/runtime/support/native, and run its build.py"
        )
    return f"{MACHINES[machine]}-{SYSTEMS[sys.platform]}"


def load_ir(module: str) -> str:
    """LLVM IR of a module, `runtime` or `half`, for this platform. Raises DeviceError."""
    return (FOLDER / host_platform() / f"{module}.ll").read_text()
