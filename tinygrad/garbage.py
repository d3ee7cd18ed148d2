"""Python's garbage collector: off while nodes are made, and at the same steps in all processes.

Input: a block of code that makes no cyclic garbage of its own. Output: it runs without searches for
cycles. Invariants: afterwards the collector is enabled if it was before, whichever threads use
this. Where several processes must find the same tensors alive, none of them collects alone.
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


class _Process:
    collects_alone = True


def collect_with_others() -> None:
    """From now on, this process collects at steps that it shares with others."""
    _Process.collects_alone = False
    gc.disable()


def collect_if_alone() -> None:
    """Free what is in reference cycles, because memory runs out. Nothing in one of several
    processes: it would lose tensors that the others have, and compute something else.
    """
    if _Process.collects_alone:
        gc.collect()
