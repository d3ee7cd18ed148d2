"""Histories: how the value in a BUFFER was computed, for gradients to go back through it.

Input: nodes that were just stored, and BUFFERs that are overwritten. Output: for a BUFFER, its
definition: the node that was stored there, over the BUFFERs below it. Invariant: a definition reads
the content that its value was computed from. So definitions read a BUFFER that was overwritten
through a placeholder, which has no memory and inherits the history.

- A value that requires a gradient keeps its history until `backward()` went through it.
- An undecided value (`requires_grad` None) keeps it if a gradient by a live tensor may go through
  it. At most `MAX_DEPTH` such values may be computed from each other, and there are at most
  `MAX_UNDECIDED`. Beyond that, histories are cut; a gradient that needs a cut one raises.
- No other value keeps a history.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from tinygrad.dtype import dtypes
from tinygrad.execution.buffers import copy_of
from tinygrad.fast_enum import Enum, auto
from tinygrad.gradient import carry_over, carry_over_to
from tinygrad.storage.dependents import dependents
from tinygrad.storage.gradients.grad_mode import GradState
from tinygrad.storage.gradients.stored_values import (
    IN_PLACE,
    Keep,
    contents_of,
    floats_below,
    is_detached,
    is_moved,
    keep_of,
)
from tinygrad.storage.gradients.wanted_nodes import WantedNodes
from tinygrad.storage.host.arrays import is_on_host
from tinygrad.storage.live_tensors import AliasGroup, TensorBase, live_tensors
from tinygrad.storage.rebuild import rebuilt, with_rebuilt_sources
from tinygrad.storage.views import view_base
from tinygrad.uop import Ops
from tinygrad.uop.node_table import NodeRegistry, NodeTable, is_in_any
from tinygrad.uop.ops import UOp

MAX_DEPTH = 16
"""The maximum number of undecided values computed from each other that keep their history."""
MAX_UNDECIDED = 32
"""The maximum number of undecided values that keep their history."""
# written values with these ops may also be the value of a leaf
_MAY_BE_LEAVES = frozenset({Ops.BUFFER, Ops.COPY})


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


class Histories:
    """The definitions of BUFFERs: a definition lives as long as its BUFFER."""

    def __init__(self) -> None:
        self.definitions = NodeRegistry[UOp]()
        self.lost = NodeRegistry[Lost]()
        self._tables: frozenset[NodeTable[Any]] = frozenset({self.definitions, self.lost})
        # for each undecided value, the number of those computed from each other that it ends
        self._depths = NodeTable[int]()
        # the keys of `_depths`, oldest first, and former keys
        self._undecided: list[weakref.ref[UOp]] = []
        # definitions whose dependents are not known yet
        self._unregistered: list[weakref.ref[UOp]] = []
        self.placeholders = NodeRegistry[None]()
        # the leaf that a placeholder is the older content of
        self._leaves = NodeRegistry[weakref.ref[UOp]]()

    def __bool__(self) -> bool:
        """Whether there are definitions or lost histories."""
        return bool(self.definitions or self.lost)

    # ---- reading ----

    def definition(self, buffer: UOp) -> UOp | None:
        """The node at which a gradient goes on from a BUFFER: its definition or, for older content
        of a leaf, the leaf.
        """
        found = self.definitions.get(buffer)
        if found is None and buffer in self._leaves:
            found = self._leaves[buffer]()
        return found

    def older_views(self, nodes: Iterable[UOp]) -> dict[UOp, UOp]:
        """For each view of a leaf among `nodes`, the same view of older content (key)."""
        if not self._leaves:
            return {}
        leaves = [(old, ref()) for old, ref in self._leaves.items()]
        return {
            node.substitute({leaf: old}): node
            for node in nodes
            if node.op is not Ops.BUFFER
            for old, leaf in leaves
            if leaf is not None and view_base(node) is leaf
        }

    # ---- values that were stored ----

    def to_keep(
        self, table: dict[UOp, UOp], paths: Sequence[tuple[TensorBase | AliasGroup, list[UOp]]]
    ) -> dict[UOp, Keep]:
        """What becomes of the history of each computed node, a key of `table`, that has one.

        The values of `table` are where nodes are stored, `paths` lead from tensors to the nodes.
        `table` is changed: of nodes that share a BUFFER, each with a history gets a BUFFER of its
        own, and each without gets a detached view.
        """
        states: dict[UOp, list[GradState]] = {}
        for x, path in paths:
            if path and not is_detached(path):
                found = states.setdefault(path[-1], [])
                if isinstance(x, TensorBase):
                    found.append(x._requires_grad)
        kept: dict[UOp, Keep] = {}
        owners: dict[UOp, UOp] = {}
        wanted: WantedNodes | None = None
        for key, place in table.items():
            keep = keep_of(key, states.get(key))
            if keep is Keep.NEVER:
                continue
            if key.op in IN_PLACE:
                if keep is Keep.BOUNDED and key.op is Ops.ASSIGN:
                    wanted = WantedNodes() if wanted is None else wanted
                    if self._is_data(key, place, wanted):
                        continue
                kept[key] = keep
            elif place.op is Ops.BUFFER:
                kept[key] = keep
                if owners.setdefault(place, key) is not key:
                    table[key] = copy_of(place)
        if owners and len(owners) < len(table):
            for key, place in table.items():
                if place in owners and key not in kept and key.op not in IN_PLACE:
                    table[key] = place.detach()
        return kept

    def stored(self, table: dict[UOp, UOp], kept: dict[UOp, Keep]) -> None:
        """Record the histories of nodes that were stored (keys of `table`), and rebuild all
        definitions over what they were stored in (values).
        """
        writes = [key for key in table if key.op in IN_PLACE]
        if not (kept or self.definitions or (writes and self.lost)):
            return
        if self._store_simple(table, writes, kept):
            return
        new: dict[UOp, UOp] = {}
        outcome: dict[UOp, Keep] = {}
        for key, keep in kept.items():
            if key.op not in IN_PLACE and is_moved(key, table[key]):
                new[table[key]], outcome[table[key]] = key, keep
        if not writes:
            self._replace(dict(table), {}, new, ())
            self._decide(outcome)
            return
        contents, older = contents_of(writes, table, kept)
        seeds = {key: place for key, place in table.items() if key not in older}
        for memory, (write, value) in contents.items():
            keep = outcome[memory] = kept.get(write, Keep.NEVER)
            if keep not in {Keep.ALWAYS, Keep.BOUNDED}:
                continue
            if value is None:
                outcome[memory] = Keep.CUT
                continue
            place = seeds.get(value)
            is_elsewhere = place is not None and view_base(place) is not memory
            is_other = is_elsewhere or value.op in _MAY_BE_LEAVES
            new[memory] = _over(value) if is_other else value
        self._replace(seeds, older, new, contents)
        self._decide(outcome)

    def _store_simple(
        self, table: dict[UOp, UOp], writes: list[UOp], kept: dict[UOp, Keep]
    ) -> bool:
        """The common cases of `stored`, in which no other definition changes. Returns whether this
        is one of them.
        """
        if not self.definitions:
            self._unregistered.clear()
            return self._store_first(table, writes, kept)
        if kept and len(table) > 1:
            return False
        known = self._definitions_above(table, writes)
        if not known:
            return self._store_first(table, writes, kept)
        return len(table) == len(kept) == 1 and self._store_again(table, kept, known)

    def _store_first(self, table: dict[UOp, UOp], writes: list[UOp], kept: dict[UOp, Keep]) -> bool:
        """Record the histories of nodes that no definition reads. Returns whether it was possible
        without rebuilding anything.
        """
        if writes:
            if kept:
                return self._stay_cut(table, kept)
            for node in writes:
                self.forget(table[node])
            return True
        if len(table) > 1:
            return False
        for key, keep in kept.items():
            place = table[key]
            if is_moved(key, place):
                self._define(place, key)
                if keep is Keep.BOUNDED:
                    self._bound([place])
                else:
                    self._decide({place: keep})
        return True

    def _store_again(
        self, table: dict[UOp, UOp], kept: dict[UOp, Keep], known: Collection[UOp]
    ) -> bool:
        """Record the history of one BUFFER that was overwritten as a whole, by a value that does
        not read it, and that no definition in `known` reads but its own. Returns whether so.
        """
        ((write, memory),) = table.items()
        value, keep = write.src[-1], kept[write]
        if write.op is not Ops.ASSIGN or any(x is not memory for x in known):
            return False
        if keep not in {Keep.ALWAYS, Keep.BOUNDED} or value.op in IN_PLACE | _MAY_BE_LEAVES:
            return False
        dependents.register((value,))
        if value in dependents.of((memory,)):
            return False
        self.forget(memory)
        self._define(memory, value)
        self._decide({memory: keep})
        return True

    def _definitions_above(self, table: dict[UOp, UOp], writes: list[UOp]) -> dict[UOp, UOp]:
        """The definitions of the BUFFERs that `writes` write, and all that are built on these or on
        the nodes of `table`.
        """
        memory = [view_base(table[node]) for node in writes]
        nodes = {*table, *memory}
        return self._known_above(nodes, self._above(nodes), memory)

    def _above(self, nodes: Collection[UOp]) -> set[UOp]:
        """`nodes`, and all nodes and definitions that are built on them."""
        if self._unregistered:
            dependents.register(d for ref in self._unregistered if (d := ref()) is not None)
            self._unregistered.clear()
        return dependents.of(nodes)

    def _known_above(
        self, nodes: Collection[UOp], above: set[UOp], written: Collection[UOp]
    ) -> dict[UOp, UOp]:
        """The definitions of the BUFFERs `written`, and those in `above`, which is what is built on
        `nodes`.
        """
        known = {b: d for b in written if (d := self.definitions.get(b)) is not None}
        if len(above) > len(nodes):
            known |= {b: d for b, d in self.definitions.items() if d in above}
        return known

    def _decide(self, outcome: dict[UOp, Keep]) -> None:
        """Keep, drop or lose the histories of BUFFERs."""
        bounded: list[UOp] = []
        for buffer, keep in outcome.items():
            if keep is Keep.BOUNDED:
                bounded.append(buffer)
            elif keep is Keep.RELEASED:
                self._lose(buffer, Reason.RELEASED)
            elif keep is Keep.CUT:
                self._lose(buffer, Reason.CUT)
        if bounded:
            self._bound(bounded)

    def _stay_cut(self, table: dict[UOp, UOp], kept: dict[UOp, Keep]) -> bool:
        """Whether all nodes that were stored are undecided writes to memory with a cut history; if
        so, it stays cut.
        """
        found: dict[UOp, int] = {}
        for key, place in table.items():
            memory = view_base(place)
            lost = self.lost.get(memory)
            if key.op not in IN_PLACE or kept.get(key) is not Keep.BOUNDED:
                return False
            if lost is None or lost.reason is not Reason.CUT:
                return False
            found[memory] = lost.first
        for memory, first in found.items():
            self._lose(memory, Reason.CUT, first)
        return True

    def overwritten(self, memory: Iterable[UOp]) -> None:
        """Note that code outside of the graph overwrites these BUFFERs with data."""
        if self:
            self._replace({}, {}, {}, dict.fromkeys(memory))

    def _add(self, new: dict[UOp, UOp]) -> None:
        """Add definitions that read what their values were computed from."""
        for buffer, definition in new.items():
            self._define(buffer, definition)

    def _define(self, buffer: UOp, definition: UOp) -> None:
        self.definitions[buffer] = definition
        self._unregistered.append(weakref.ref(definition))

    def _replace(
        self,
        seeds: dict[UOp, UOp],
        older: dict[UOp, UOp],
        new: dict[UOp, UOp],
        written: Collection[UOp],
    ) -> None:
        """Add the definitions `new`, and rebuild all definitions with the keys of `seeds` replaced.

        Definitions that read the BUFFERs `written` read placeholders from now on. `older` are the
        writes (keys) that others followed, with the values that they wrote.
        """
        replaced = {*seeds, *older, *written}
        above = self._above(replaced)
        known = self._known_above(replaced, above, written)
        if not known and not written and len(seeds) == 1:
            self._add(new)
            return
        dependents.register(new.values())
        above = dependents.of(replaced)
        affected = [d for d in (*known.values(), *new.values()) if d in above]
        if written and affected:
            seeds |= self._placeholders_for(written, affected, {*seeds, *older}, new)
        done = dict(seeds)
        for node, value in older.items():
            done[node] = rebuilt(value, above, done)
        owned = {seeds.get(b) if b in written else b: d for b, d in known.items()}
        for memory in written:
            self.forget(memory)
        for buffer, definition in (*owned.items(), *new.items()):
            if buffer is None:
                continue
            changed = definition
            if definition in above:
                for x in filter(above.__contains__, definition.src):
                    rebuilt(x, above, done)
                changed = with_rebuilt_sources(definition, done)
                carry_over_to(changed, definition, done)
            self._define(buffer, changed)
        carry_over(done)

    def _placeholders_for(
        self,
        written: Collection[UOp],
        definitions: list[UOp],
        replaced: Collection[UOp],
        new: Collection[UOp],
    ) -> dict[UOp, UOp]:
        """A placeholder for each BUFFER of `written` that `definitions` read, other than through
        `replaced`. It inherits the history of the BUFFER; that of a leaf leads to the leaf.
        """
        sources = dict.fromkeys(x for d in definitions for x in d.src)
        below = UOp.sink(*sources).toposort(gate=lambda node: node not in replaced)
        found = {}
        for memory in written:
            if memory not in below:
                continue
            old = UOp.new_buffer(memory.device, memory.arg.shape, memory.dtype)
            found[memory] = old
            self.placeholders[old] = None
            if memory in self._depths:
                self._depths[old] = self._depths[memory]
                self._undecided.append(weakref.ref(old))
            if memory in self.lost:
                self.lost[old] = self.lost[memory]
            elif memory not in self.definitions and memory not in new:
                self._leaves[old] = weakref.ref(memory)
        return found

    # ---- undecided values ----

    def _bound(self, buffers: list[UOp]) -> None:
        """Keep the histories of undecided values within the limits."""
        wanted = WantedNodes()
        for buffer in buffers:
            definition = self.definitions[buffer]
            if definition.op is Ops.COPY and is_on_host(definition.src[0]):
                self.definitions.pop(buffer)  # new data
                continue
            known = floats_below((definition,))
            memory = [x for x in known if x.op is Ops.BUFFER and is_in_any(x, self._tables)]
            depth, lost = self._history_of(memory) if memory else (1, [])
            if depth > MAX_DEPTH or (lost and any(x.reason is Reason.CUT for x in lost)):
                self._cut(buffer, lost)
            elif self._is_useful(known, memory, wanted):
                self._depths[buffer] = depth
                self._undecided.append(weakref.ref(buffer))
            else:
                self.definitions.pop(buffer)
        if len(self._undecided) > MAX_UNDECIDED:
            self._cut_oldest()

    def _cut_oldest(self) -> None:
        """Keep the histories of the last `MAX_UNDECIDED` undecided values."""
        live = [node for ref in reversed(self._undecided) if (node := ref()) is not None]
        found = [node for node in dict.fromkeys(live) if node in self._depths][::-1]
        self._undecided = [weakref.ref(node) for node in found[-MAX_UNDECIDED:]]
        for buffer in found[:-MAX_UNDECIDED]:
            self._cut(buffer, ())

    def _history_of(self, memory: list[UOp]) -> tuple[int, list[Lost]]:
        """The depth of a value computed from BUFFERs, and their lost histories."""
        depth = 1 + max([self._depths.get(node) or 0 for node in memory])
        return depth, [found for node in memory if (found := self.lost.get(node)) is not None]

    def _is_data(self, write: UOp, view: UOp, wanted: WantedNodes) -> bool:
        """Whether no gradient may be wanted through an undecided write: the memory has no history,
        and the value neither is nor depends on a tensor that may require a gradient.
        """
        memory, value = view_base(view), write.src[1]
        if memory in self.definitions or memory in self.lost:
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
            definition = self.definitions.get(node)
            if node in self.lost or (definition is not None and node not in self._depths):
                return True
            if definition is not None:
                found = floats_below(definition.src)
                memory += [x for x in found if x.op is Ops.BUFFER and x not in known]
                known |= found
        if len(known) > nearest and wanted.meet(known):
            return True
        for node in known:
            if self._depths.pop(node) is not None:
                self.definitions.pop(node)
        return False

    def _cut(self, buffer: UOp, below: Iterable[Lost]) -> None:
        first = min((x.first if x.reason is Reason.CUT else 0 for x in below), default=None)
        now = live_tensors.now()
        self._lose(buffer, Reason.CUT, now if first is None else first)

    # ---- histories that end ----

    def release(self, buffers: Iterable[UOp]) -> None:
        """Drop the histories of values that `backward()` went through."""
        for buffer in buffers:
            if self.definitions.get(buffer) is not None:
                self._lose(buffer, Reason.RELEASED)

    def captured(self, nodes: Iterable[UOp]) -> None:
        """Drop the histories of results of a captured function, which replays overwrite."""
        for buffer in {view_base(node) for node in nodes}:
            if buffer.op is Ops.BUFFER and dtypes.is_float(buffer.dtype):
                self._lose(buffer, Reason.CAPTURED)

    def forget(self, node: UOp) -> None:
        """Drop the history of what has become a leaf."""
        buffer = view_base(node)
        self.definitions.pop(buffer)
        self._depths.pop(buffer)
        self.lost.pop(buffer)

    def _lose(self, buffer: UOp, reason: Reason, first: int = 0) -> None:
        self.definitions.pop(buffer)
        self._depths.pop(buffer)
        self.lost[buffer] = Lost(reason, first, live_tensors.now())


histories = Histories()


def _over(value: UOp) -> UOp:
    """A definition with `value` as its source, so that `value` can be replaced in it: by the BUFFER
    that it is stored in, and by a placeholder once that is overwritten.
    """
    return UOp(Ops.CONTIGUOUS, value.dtype, (value,))
