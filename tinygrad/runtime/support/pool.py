"""The worker pool that all CPU devices of the process share.

In: the address of a kernel `void kernel(void **buffers, const int64_t *values, int64_t begin,
int64_t end)`, its arguments and its grid. The pool calls it over pieces of [0, grid) in the calling
thread and in its workers, and returns when all is done. Calls release the GIL; calls from several
Python threads run one after the other. A forked child has a pool of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import platform
import sys

from tinygrad.device import DeviceError
from tinygrad.helpers import ceildiv
from tinygrad.runtime.support.llvm import compile_llvm, link
from tinygrad.runtime.support.platform_ir import CONDITION_VARIABLE_IR, Platform, futex_ir
from tinygrad.runtime.support.pool_ir import pool_ir
from tinygrad.settings import thread_count

SPIN_NS = 30_000
# below this a second thread gains less than it costs to wake
SERIAL_COPY_BYTES = 1 << 20
COPY_PIECE_BYTES = 1 << 20

FUTEX_NUMBERS = {"x86_64": 202, "AMD64": 202, "aarch64": 98, "arm64": 98, "riscv64": 98}
PAUSES = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",
    "arm64": "call void @llvm.aarch64.hint(i32 1)",
}


def host_platform(use_futex: bool = True) -> Platform:
    """The pool's constants for this system. Raises DeviceError where there are no POSIX threads."""
    if sys.platform not in ("linux", "darwin"):
        raise DeviceError(
            f"the CPU device needs POSIX threads, which {sys.platform} lacks; use Linux or macOS"
        )
    linux = sys.platform == "linux"
    machine = platform.machine()
    number = FUTEX_NUMBERS.get(machine) if linux and use_futex else None
    return Platform(
        wait_ir=CONDITION_VARIABLE_IR if number is None else futex_ir(number),
        pause_ir=PAUSES.get(machine, "fence seq_cst"),
        monotonic_clock=1 if linux else 6,
        sig_setmask=2 if linux else 3,
    )


class WorkerPool:
    """A pool of `threads` threads, the calling one included."""

    def __init__(self, host: Platform, threads: int, spin_ns: int = SPIN_NS) -> None:
        names = ("pool_launch", "pool_reset", "pool_stop", "replay_run", "copy_kernel")
        self.code = link(compile_llvm(pool_ir(host)), *names)
        self.threads = threads
        self.spin_ns = spin_ns
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self.launch = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, integer)(
            self.code["pool_launch"]
        )
        self.replay = ctypes.CFUNCTYPE(None, pointer, pointer)(self.code["replay_run"])
        self.copy_kernel = self.code["copy_kernel"]
        self._reset = ctypes.CFUNCTYPE(None, ctypes.c_int32, integer)(self.code["pool_reset"])
        self._stop = ctypes.CFUNCTYPE(None)(self.code["pool_stop"])
        self.reset()

    def reset(self) -> None:
        """Forgets all workers, which must not exist any more; the next launch starts new ones."""
        self._reset(self.threads, self.spin_ns)

    def stop(self) -> None:
        """Ends the workers; launches still work, in the calling thread alone."""
        self._stop()

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        """Copies between two addresses, with all threads if the ranges are large and disjoint."""
        overlap = abs(destination - source) < nbytes
        if nbytes <= SERIAL_COPY_BYTES or overlap:
            ctypes.memmove(destination, source, nbytes)
            return
        addresses = (ctypes.c_uint64 * 2)(destination, source)
        sizes = (ctypes.c_int64 * 2)(nbytes, COPY_PIECE_BYTES)
        self.launch(self.copy_kernel, addresses, sizes, ceildiv(nbytes, COPY_PIECE_BYTES))


@functools.cache
def worker_pool() -> WorkerPool:
    """The process's pool, made when first asked for."""
    pool = WorkerPool(host_platform(), thread_count())
    os.register_at_fork(after_in_child=pool.reset)
    atexit.register(pool.stop)
    return pool
