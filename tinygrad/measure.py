"""Measurement: global counters of work and memory, a timer and a profiler for blocks of code."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import ClassVar

# a finalizer, which counts too, may run inside any statement
_lock = threading.RLock()


class GlobalCounters:
    """Counters of work since the last reset, and of allocated memory.

    `global_ops` counts arithmetic operations, `global_mem` the bytes that kernels read and write,
    `bytes_moved` the bytes sent between devices, `mem_used` the bytes that are allocated,
    `mem_peak` their maximum since the reset, and `mem_kept` the bytes that are free but kept for
    reuse: `mem_used + mem_kept` is what the system has given. Dictionaries `*_per_device` have
    device names as keys; messages count for their sender.

    >>> GlobalCounters.reset()
    >>> _ = (Tensor([1.0, 2.0]) * 2).realize()
    >>> GlobalCounters.kernel_count
    1
    """

    global_ops: ClassVar[int] = 0
    global_mem: ClassVar[int] = 0
    time_sum_s: ClassVar[float] = 0.0
    kernel_count: ClassVar[int] = 0
    bytes_moved: ClassVar[int] = 0
    bytes_moved_per_device: ClassVar[defaultdict[str, int]] = defaultdict(int)
    mem_used: ClassVar[int] = 0
    mem_used_per_device: ClassVar[defaultdict[str, int]] = defaultdict(int)
    mem_peak: ClassVar[int] = 0
    mem_kept: ClassVar[int] = 0
    mem_peak_per_device: ClassVar[defaultdict[str, int]] = defaultdict(int)

    @staticmethod
    def reset() -> None:
        """Set the counters of work to zero, and the peaks to the memory in use.

        >>> GlobalCounters.reset()
        >>> GlobalCounters.kernel_count, GlobalCounters.global_ops
        (0, 0)
        """
        GlobalCounters.global_ops = 0
        GlobalCounters.global_mem = 0
        GlobalCounters.time_sum_s = 0.0
        GlobalCounters.kernel_count = 0
        GlobalCounters.bytes_moved = 0
        GlobalCounters.bytes_moved_per_device.clear()
        GlobalCounters.mem_peak = GlobalCounters.mem_used
        GlobalCounters.mem_peak_per_device.clear()
        GlobalCounters.mem_peak_per_device.update(GlobalCounters.mem_used_per_device)

    @staticmethod
    def count_memory(device: str, nbytes: int) -> None:
        """Count bytes that were allocated on a device, or freed if negative.

        >>> GlobalCounters.count_memory("NULL:9", 64)
        >>> GlobalCounters.count_memory("NULL:9", -64)
        >>> GlobalCounters.mem_used_per_device["NULL:9"]
        0
        >>> GlobalCounters.mem_peak_per_device["NULL:9"]
        64
        """
        counters = GlobalCounters
        with _lock:
            used = counters.mem_used = counters.mem_used + nbytes
            here = counters.mem_used_per_device[device] + nbytes
            counters.mem_used_per_device[device] = here
            if nbytes > 0:
                if used > counters.mem_peak:
                    counters.mem_peak = used
                if here > counters.mem_peak_per_device[device]:
                    counters.mem_peak_per_device[device] = here

    @staticmethod
    def count_kept(nbytes: int) -> None:
        """Count bytes that are free and kept for reuse, or not any more if negative.

        >>> before = GlobalCounters.mem_kept
        >>> GlobalCounters.count_kept(64)
        >>> GlobalCounters.count_kept(-64)
        >>> GlobalCounters.mem_kept == before
        True
        """
        with _lock:
            GlobalCounters.mem_kept += nbytes

    @staticmethod
    def count_message(source: str, nbytes: int) -> None:
        """Count the bytes of a message from a device.

        >>> GlobalCounters.reset()
        >>> GlobalCounters.count_message("NULL:9", 64)
        >>> GlobalCounters.bytes_moved
        64
        """
        with _lock:
            GlobalCounters.bytes_moved += nbytes
            GlobalCounters.bytes_moved_per_device[source] += nbytes


class Timing(contextlib.ContextDecorator):
    """Prints the elapsed time of a block: `with Timing("load: "): ...`; `et` is the time in ns.

    `on_exit` receives the time in ns and returns text to print after it.

    >>> with Timing("sum: ", on_exit=lambda ns: " in all"):  # doctest: +ELLIPSIS
    ...     total = sum(range(1000))
    sum: ... ms in all
    """

    def __init__(
        self,
        prefix: str = "",
        on_exit: Callable[[int], str] | None = None,
        enabled: bool = True,
    ) -> None:
        self.prefix, self.on_exit, self.enabled = prefix, on_exit, enabled
        self.et = 0

    def __enter__(self) -> Timing:
        self.start_ns = time.perf_counter_ns()
        return self

    def __exit__(self, *exception: object) -> None:
        self.et = time.perf_counter_ns() - self.start_ns
        if self.enabled:
            suffix = self.on_exit(self.et) if self.on_exit else ""
            print(f"{self.prefix}{self.et * 1e-6:6.2f} ms{suffix}")


class Profiling(contextlib.ContextDecorator):
    """Prints the profile of a block by Python function.

    `sort` is a key of `pstats`, `frac` the fraction of functions to print, `fn` a file to save to.

    >>> import contextlib, io
    >>> with contextlib.redirect_stdout(io.StringIO()) as report, Profiling(frac=0.5):
    ...     total = sum(range(1000))
    >>> "function calls" in report.getvalue()
    True
    """

    def __init__(
        self,
        enabled: bool = True,
        sort: str = "cumtime",
        frac: float = 0.2,
        fn: str | None = None,
    ) -> None:
        self.enabled, self.sort, self.frac, self.fn = enabled, sort, frac, fn

    def __enter__(self) -> Profiling:
        import cProfile  # imported here to keep start-up fast

        self.profile = cProfile.Profile()
        if self.enabled:
            self.profile.enable()
        return self

    def __exit__(self, *exception: object) -> None:
        if not self.enabled:
            return
        import pstats

        self.profile.disable()
        if self.fn:
            self.profile.dump_stats(self.fn)
        pstats.Stats(self.profile).strip_dirs().sort_stats(self.sort).print_stats(self.frac)
