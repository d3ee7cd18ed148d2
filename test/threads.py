"""Work in several threads at the same time, for tests of what threads share."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

THREADS = 4


@contextmanager
def rapid_switching() -> Iterator[None]:
    """Switches threads every microsecond, so that a race needs few attempts. Without a global
    interpreter lock they run at the same time anyway.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def in_threads(work: Callable[[int, Callable[[], object]], None]) -> None:
    """Call `work(number, wait)` in each of `THREADS` threads; `wait()` waits for all of them.

    Raises the first error of a thread.
    """
    barrier = threading.Barrier(THREADS)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number, barrier.wait)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    with rapid_switching():
        threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
