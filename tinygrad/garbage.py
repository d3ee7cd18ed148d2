"""Python's garbage collector, while many nodes are made.

Input: a block of code that makes no cyclic garbage of its own. Output: it runs without searches for
cycles. Invariant: afterwards the collector is enabled if it was before, whichever threads use this.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage() -> Iterator[None]:
    """In the block, Python's garbage collector is off: graphs have no cycles, and so many nodes
    that the search for cycles takes a quarter of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
