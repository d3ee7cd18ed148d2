"""The orders of graphs, while many passes walk them.

Input: a block of code. Output: in it, the topological order of a whole graph, a SINK, is computed
once. Invariant: nothing is kept after the block; nobody changes an order.
"""

from __future__ import annotations

import threading
from typing import Any


class _Thread(threading.local):
    by_sink: dict[Any, dict[Any, None]] | None = None


known = _Thread()


class orders_kept:
    """In the block, `toposort` of a SINK returns the same dictionary each time."""

    __slots__ = ("before",)

    def __enter__(self) -> None:
        self.before, known.by_sink = known.by_sink, {}

    def __exit__(self, *_: object) -> None:
        known.by_sink = self.before
