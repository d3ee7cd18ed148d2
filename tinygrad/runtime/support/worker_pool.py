"""The worker pool that all CPU devices of the process share.

In: the address of a kernel `void kernel(void **buffers, const int64_t *values, int64_t begin,
int64_t end)`, its arguments and its grid. The pool calls it over chunks of [0, grid) in the calling
thread and in its workers, and returns when all are done. Calls release the GIL; concurrent calls
from several Python threads run one after the other. A forked child has a pool of its own. The code
is `native/pool.c`.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading

from tinygrad.helpers import ceildiv
from tinygrad.runtime.support import native
from tinygrad.runtime.support.llvm import compile_llvm, link
from tinygrad.settings import thread_count

# How long an idle worker polls for the next launch before it sleeps.
SPIN_NS = 30_000
# Below this size, waking a second thread costs more than it saves.
SERIAL_COPY_BYTES = 1 << 20
COPY_PIECE_BYTES = 1 << 20

ENTRY_POINTS = ("pool_launch", "pool_reset", "pool_stop", "replay_run", "copy_kernel")


class WorkerPool:
    """A pool of `threads` threads, the calling one included. `code` is an object of `runtime.c`."""

    def __init__(self, code: bytes, threads: int, spin_ns: int = SPIN_NS) -> None:
        linked = link(code, *ENTRY_POINTS)
        self._code = linked  # keeps the machine code mapped
        self.threads = threads
        self.spin_ns = spin_ns
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self.launch = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, integer)(
            linked["pool_launch"]
        )
        self.replay = ctypes.CFUNCTYPE(None, pointer, pointer)(linked["replay_run"])
        self.copy_kernel = linked["copy_kernel"]
        self._reset = ctypes.CFUNCTYPE(None, ctypes.c_int32, integer)(linked["pool_reset"])
        self._stop = ctypes.CFUNCTYPE(None)(linked["pool_stop"])
        self.reset()

    def reset(self) -> None:
        """Forgets the workers, none of which may still exist. The next launch starts new ones."""
        self._reset(self.threads, self.spin_ns)

    def stop(self) -> None:
        """Ends the workers. Launches still work, in the calling thread alone."""
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


_creation = threading.Lock()


@functools.cache
def worker_pool() -> WorkerPool:
    """The pool of this process, created on first use."""
    with _creation:  # several threads can miss the cache
        return _create_worker_pool()


@functools.cache
def _create_worker_pool() -> WorkerPool:
    pool = WorkerPool(compile_llvm(native.load_ir("runtime")), thread_count())
    os.register_at_fork(after_in_child=pool.reset)
    atexit.register(pool.stop)
    return pool
