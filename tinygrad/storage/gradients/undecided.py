"""Undecided values, whose history is kept within limits: `requires_grad` is None.

Input: BUFFERs of undecided values, with definitions. Output: those of which a gradient may be
wanted keep them. Invariant: at most `MAX_UNDECIDED` do, of which at most `MAX_DEPTH` are computed
from each other.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from tinygrad.storage.gradients.known_histories import KnownHistories, Lost, Reason
from tinygrad.storage.gradients.stored_values import floats_below
from tinygrad.storage.gradients.wanted_nodes import WantedNodes
from tinygrad.storage.host.arrays import is_on_host
from tinygrad.storage.live_tensors import live_tensors
from tinygrad.storage.views import view_base
from tinygrad.uop import Ops
from tinygrad.uop.node_table import is_in_any
from tinygrad.uop.ops import UOp

MAX_DEPTH = 16
"""The maximum number of undecided values computed from each other that keep their history."""
MAX_UNDECIDED = 32
"""The maximum number of undecided values that keep their history."""


def is_new_data(node: UOp) -> bool:
    """Whether a node is a copy of a host array or of a file."""
    return node.op is Ops.COPY and is_on_host(node.src[0])


class UndecidedValues:
    """The undecided values with a history, oldest first."""

    def __init__(self, histories: KnownHistories) -> None:
        self.histories = histories
        # the keys of `histories.depths`, oldest first, and former keys
        self._order: list[weakref.ref[UOp]] = []

    def add(self, buffer: UOp, depth: int) -> None:
        """Keep the history of a value that ends `depth` ones computed from each other."""
        self.histories.depths[buffer] = depth
        self._order.append(weakref.ref(buffer))

    def bound(self, buffers: list[UOp]) -> None:
        """Keep the histories of undecided values within the limits."""
        wanted = WantedNodes()
        aside = self.histories.aside() if self.histories.has_aside else []
        for buffer in buffers:
            definition = self.histories.definitions[buffer]
            if is_new_data(definition):
                self.histories.definitions.pop(buffer)
                continue
            known = floats_below((definition,))
            tables = self.histories.tables
            memory = [x for x in known if x.facts and x.op is Ops.BUFFER and is_in_any(x, tables)]
            if aside:
                # what was stored on the way to it may be wanted too
                known |= {x: None for x, node in aside if node in known}
            depth, lost = self._history_of(memory) if memory else (1, [])
            if depth > MAX_DEPTH or (lost and any(x.reason is Reason.CUT for x in lost)):
                self._cut(buffer, lost)
            elif self._is_useful(known, memory, wanted):
                self.add(buffer, depth)
            else:
                self.histories.definitions.pop(buffer)
        if len(self._order) > MAX_UNDECIDED:
            self._cut_oldest()

    def limit(self, buffer: UOp) -> None:
        """Keep the history of an undecided value that was stored on the way to another, unless too
        many are computed from each other.
        """
        known = floats_below((self.histories.definitions[buffer],))
        memory = [x for x in known if x.op is Ops.BUFFER and is_in_any(x, self.histories.tables)]
        depth, lost = self._history_of(memory) if memory else (1, [])
        if depth > MAX_DEPTH or any(x.reason is Reason.CUT for x in lost):
            self._cut(buffer, lost)
        else:
            self.histories.depths[buffer] = depth

    def _cut_oldest(self) -> None:
        """Keep the histories of the last `MAX_UNDECIDED` undecided values."""
        live = [node for ref in reversed(self._order) if (node := ref()) is not None]
        found = [node for node in dict.fromkeys(live) if node in self.histories.depths][::-1]
        self._order = [weakref.ref(node) for node in found[-MAX_UNDECIDED:]]
        for buffer in found[:-MAX_UNDECIDED]:
            self._cut(buffer, ())

    def _history_of(self, memory: list[UOp]) -> tuple[int, list[Lost]]:
        """The depth of a value computed from BUFFERs, and their lost histories."""
        depth = 1 + max([self.histories.depths.get(node) or 0 for node in memory])
        return depth, [
            found for node in memory if (found := self.histories.lost.get(node)) is not None
        ]

    def is_data(self, write: UOp, view: UOp, wanted: WantedNodes) -> bool:
        """Whether no gradient may be wanted through an undecided write: neither the memory nor the
        value has a history, and the value neither is nor depends on a tensor that may require a
        gradient.
        """
        memory, value = view_base(view), write.src[1]
        if any(is_in_any(x, self.histories.tables) for x in (memory, value)):
            return False
        if wanted.is_required(value):
            return False
        known = floats_below(value.src)
        known.pop(memory, None)
        return not self._is_useful(known, [x for x in known if x.op is Ops.BUFFER], wanted)

    def _is_useful(self, known: dict[UOp, None], memory: list[UOp], wanted: WantedNodes) -> bool:
        """Whether a gradient may be wanted by a node that an undecided value depends on.

        `known` are the floats that it is computed from, down to BUFFERs, and `memory` these. If no
        gradient may be wanted, the histories of `known` are dropped too.
        """
        if not known:
            return False
        if wanted.meet(known):
            return True
        nearest = len(known)
        while memory:
            node = memory.pop()
            definition = self.histories.definitions.get(node)
            if node in self.histories.lost or (
                definition is not None and node not in self.histories.depths
            ):
                return True
            if definition is not None:
                found = floats_below(definition.src)
                memory += [x for x in found if x.op is Ops.BUFFER and x not in known]
                known |= found
        if len(known) > nearest and wanted.meet(known):
            return True
        for node in known:
            if self.histories.depths.pop(node) is not None:
                self.histories.definitions.pop(node)
        return False

    def _cut(self, buffer: UOp, below: Iterable[Lost]) -> None:
        first = min((x.first if x.reason is Reason.CUT else 0 for x in below), default=None)
        now = live_tensors.now()
        self.histories.lose(buffer, Reason.CUT, now if first is None else first)
