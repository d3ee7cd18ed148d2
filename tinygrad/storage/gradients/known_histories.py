"""Known histories: the definitions of BUFFERs, and why others have none.

Input: definitions as they are added and dropped. Output: the definitions that are built on some
nodes. Invariant: a history lives as long as its BUFFER.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection
from typing import Any, NamedTuple

from tinygrad.fast_enum import Enum, auto
from tinygrad.storage.dependents import dependents
from tinygrad.storage.live_tensors import live_tensors
from tinygrad.storage.views import view_base
from tinygrad.uop.node_table import NodeRegistry, NodeTable
from tinygrad.uop.ops import UOp


class Reason(Enum):
    """Why a BUFFER has no history although a gradient may want to go through it."""

    RELEASED = auto()
    """`backward()` went through it."""
    CUT = auto()
    """It was undecided, and computed from too many other undecided values."""
    CAPTURED = auto()
    """A captured function computed it, and replays overwrite it."""


class Lost(NamedTuple):
    """A lost history, and when it was lost, as in `live_tensors.now`: at `last` that of the value
    itself, at `first` the earliest of those that it was computed from.
    """

    reason: Reason
    first: int
    last: int


class KnownHistories:
    """The definitions of BUFFERs, which live as long as these, and lost histories."""

    def __init__(self) -> None:
        self.definitions = NodeRegistry[UOp]()
        self.lost = NodeRegistry[Lost]()
        self.tables: frozenset[NodeTable[Any]] = frozenset({self.definitions, self.lost})
        # for each undecided value, the number of those computed from each other that it ends
        self.depths = NodeTable[int]()
        # BUFFERs of values that were stored on the way to others, and whether some may live
        self._aside = NodeRegistry[None]()
        self.has_aside = False
        # definitions whose dependents are not known yet
        self._unregistered: list[weakref.ref[UOp]] = []

    def __bool__(self) -> bool:
        """Whether there are definitions or lost histories."""
        return bool(self.definitions or self.lost)

    def define(self, buffer: UOp, definition: UOp) -> None:
        """Add the definition of a BUFFER."""
        self.definitions[buffer] = definition
        self._unregistered.append(weakref.ref(definition))

    def aside(self) -> list[tuple[UOp, UOp]]:
        """The BUFFERs of values that were stored on the way to others, with their definitions."""
        if not self.has_aside:
            return []
        known = self._aside.nodes()
        return [(x, found) for x in known if (found := self.definitions.get(x)) is not None]

    def forget(self, node: UOp) -> None:
        """Drop the history of what has become a leaf."""
        buffer = view_base(node)
        self.definitions.pop(buffer)
        self.depths.pop(buffer)
        self.lost.pop(buffer)

    def lose(self, buffer: UOp, reason: Reason, first: int = 0) -> None:
        """Drop the history of a BUFFER, and note why."""
        self.definitions.pop(buffer)
        self.depths.pop(buffer)
        self.lost[buffer] = Lost(reason, first, live_tensors.now())

    def above(self, nodes: Collection[UOp]) -> set[UOp]:
        """`nodes`, and all nodes and definitions that are built on them."""
        if self._unregistered:
            dependents.register(d for ref in self._unregistered if (d := ref()) is not None)
            self._unregistered.clear()
        return dependents.of(nodes)

    def known_above(
        self, nodes: Collection[UOp], above: set[UOp], written: Collection[UOp]
    ) -> dict[UOp, UOp]:
        """The definitions of the BUFFERs `written`, and those in `above`, which is what is built on
        `nodes`.
        """
        known = {b: d for b in written if (d := self.definitions.get(b)) is not None}
        if len(above) > len(nodes):
            known |= {b: d for b, d in self.definitions.items() if d in above}
        return known
