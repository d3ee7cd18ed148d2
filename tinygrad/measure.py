"""Measurement: global counters of work and memory, a timer and a profiler for blocks of code.

Input: what devices, kernels and transfers report while they run. Output: `GlobalCounters`, sums
since the last reset, and text that a block prints when it ends.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

# a finalizer, which counts too, may run inside any statement
_lock = threading.RLock()


class Counters:
    """Counters of work since the last reset, and of allocated memory: `GlobalCounters`.

    `global_ops` counts arithmetic operations, `global_mem` the bytes that kernels read and write,
    `moved_out` the copies of content that was read after it was overwritten,
    `bytes_moved` the bytes sent between devices, `mem_used` the bytes that are allocated,
    `mem_peak` their maximum since the reset, and `mem_kept` the bytes that are free but kept for
    reuse: `mem_used + mem_kept` is what the system has given. Dictionaries `*_per_device` have
    device names as keys; messages count for their sender.

    >>> GlobalCounters.reset()
    >>> _ = (Tensor([1.0, 2.0]) * 2).realize()
    >>> GlobalCounters.kernel_count
    1
    """

    def __init__(self) -> None:
        self.global_ops = 0
        self.global_mem = 0
        self.time_sum_s = 0.0
        self.kernel_count = 0
        self.moved_out = 0
        self.bytes_moved = 0
        self.bytes_moved_per_device: defaultdict[str, int] = defaultdict(int)
        self.mem_used = 0
        self.mem_used_per_device: defaultdict[str, int] = defaultdict(int)
        self.mem_peak = 0
        self.free_lists: weakref.WeakSet[Any] = weakref.WeakSet()
        self.mem_peak_per_device: defaultdict[str, int] = defaultdict(int)

    def reset(self) -> None:
        """Set the counters of work to zero, and the peaks to the memory in use.

        >>> GlobalCounters.reset()
        >>> GlobalCounters.kernel_count, GlobalCounters.global_ops
        (0, 0)
        """
        self.global_ops = 0
        self.global_mem = 0
        self.time_sum_s = 0.0
        self.kernel_count = 0
        self.moved_out = 0
        self.bytes_moved = 0
        self.bytes_moved_per_device.clear()
        self.mem_peak = self.mem_used
        self.mem_peak_per_device.clear()
        self.mem_peak_per_device.update(self.mem_used_per_device)

    def count_memory(self, device: str, nbytes: int) -> None:
        """Count bytes that were allocated on a device, or freed if negative.

        >>> GlobalCounters.count_memory("NULL:9", 64)
        >>> GlobalCounters.count_memory("NULL:9", -64)
        >>> GlobalCounters.mem_used_per_device["NULL:9"]
        0
        >>> GlobalCounters.mem_peak_per_device["NULL:9"]
        64
        """
        with _lock:
            used = self.mem_used = self.mem_used + nbytes
            here = self.mem_used_per_device[device] + nbytes
            self.mem_used_per_device[device] = here
            if nbytes > 0:
                if used > self.mem_peak:
                    self.mem_peak = used
                if here > self.mem_peak_per_device[device]:
                    self.mem_peak_per_device[device] = here

    @property
    def mem_kept(self) -> int:
        """The bytes that are free and kept for reuse.

        >>> GlobalCounters.mem_kept >= 0
        True
        """
        return sum([int(x.nbytes) for x in list(self.free_lists)])

    def count_message(self, source: str, nbytes: int) -> None:
        """Count the bytes of a message from a device.

        >>> GlobalCounters.reset()
        >>> GlobalCounters.count_message("NULL:9", 64)
        >>> GlobalCounters.bytes_moved
        64
        """
        with _lock:
            self.bytes_moved += nbytes
            self.bytes_moved_per_device[source] += nbytes


GlobalCounters = Counters()
"""The counters of this process; attributes of a class would take four times as long to change."""


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
