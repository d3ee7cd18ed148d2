"""Topological orders, computed once while many passes walk the same graph.

Input: a block of code. Output: in it, the topological order of a whole graph, a SINK, is computed
once, and passes share tables of what they found of nodes. Invariant: nothing is kept after the
block; an order is never changed.
"""

from __future__ import annotations

import threading
from typing import Any


class _Thread(threading.local):
    by_sink: dict[Any, dict[Any, None]] | None = None
    tables: dict[str, dict[Any, Any]] | None = None


known = _Thread()


class orders_kept:
    """In the block, `toposort` of a SINK returns the same dictionary each time, and `kept_table`
    the same table.
    """

    __slots__ = ("before",)

    def __enter__(self) -> None:
        self.before = known.by_sink, known.tables
        known.by_sink, known.tables = {}, {}

    def __exit__(self, *_: object) -> None:
        known.by_sink, known.tables = self.before


def kept_table(name: str) -> dict[Any, Any]:
    """A table of what follows from nodes alone: one for the block, outside of it a new one."""
    return {} if known.tables is None else known.tables.setdefault(name, {})
