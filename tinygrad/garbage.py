"""Python's garbage collector, while many nodes are made.

Input: a block of code that makes no cyclic garbage of its own. Output: it runs without searches for
cycles. Invariant: afterwards the collector is enabled if it was before, whichever threads use this.
"""

from __future__ import annotations

import gc


class no_garbage:
    """In the block, Python's garbage collector is off: graphs have no cycles, and so many nodes
    that the search for cycles takes a quarter of the time.
    """

    __slots__ = ("was_enabled",)

    def __enter__(self) -> None:
        self.was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self.was_enabled:
            gc.enable()
