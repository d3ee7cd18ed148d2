"""Histories: how the value in a BUFFER was computed, for gradients to go back through it.

Input: nodes that were just stored, and BUFFERs that are overwritten. Output: for a BUFFER, its
definition: the node that was stored there, over the BUFFERs below it. Invariant: a definition reads
the content that its value was computed from. So definitions read a BUFFER that was overwritten
through a placeholder, which has no memory and inherits the history.

- A value that requires a gradient keeps its history until `backward()` went through it.
- An undecided value (`requires_grad` None) keeps it if a gradient by a live tensor may go through
  it, within the limits of `undecided.py`. Beyond these, histories are cut; a gradient that needs a
  cut one raises.
- No other value keeps a history.
- For gradients, a value that was stored on the way to another is as if it were not: definitions
  read the node that was stored in its BUFFER, and so they do not keep its memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tinygrad.dtype import dtypes
from tinygrad.execution.versions import bases_of
from tinygrad.gradient import carry_over, carry_over_to
from tinygrad.sharding import max_shape
from tinygrad.storage.dependents import dependents
from tinygrad.storage.gradients.grad_mode import GradState
from tinygrad.storage.gradients.known_histories import KnownHistories, Reason
from tinygrad.storage.gradients.stored_values import (
    IN_PLACE,
    Keep,
    contents_of,
    is_detached,
    is_moved,
    keep_of,
)
from tinygrad.storage.gradients.undecided import UndecidedValues, is_new_data
from tinygrad.storage.gradients.wanted_nodes import WantedNodes
from tinygrad.storage.live_tensors import Cell, TensorBase, live_tensors
from tinygrad.storage.rebuild import rebuilt, with_rebuilt_sources
from tinygrad.storage.views import view_base, written_target
from tinygrad.uop import Ops
from tinygrad.uop.node_table import NodeRegistry
from tinygrad.uop.ops import UOp

# written values with these ops may also be the value of a leaf
_MAY_BE_LEAVES = frozenset({Ops.BUFFER, Ops.COPY})


class Histories(KnownHistories):
    """The histories of all stored values: recorded, rebuilt, and ended."""

    def __init__(self) -> None:
        super().__init__()
        self.placeholders = NodeRegistry[None]()
        # the cell of the leaf that a placeholder is the older content of
        self._leaves = NodeRegistry[weakref.ref[Cell]]()
        # new memory of values that shared memory with others, and what is to be copied there
        self._copies: list[tuple[UOp, UOp]] = []
        self._undecided = UndecidedValues(self)

    # ---- reading ----

    def definition(self, buffer: UOp) -> UOp | None:
        """The node at which a gradient goes on from a BUFFER: its definition or, for older content
        of a leaf, the leaf.
        """
        found = self.definitions.get(buffer)
        if found is None and buffer in self._leaves:
            found = _leaf(self._leaves[buffer])
        return found

    def older_views(self, nodes: Iterable[UOp]) -> dict[UOp, UOp]:
        """For each view of a leaf among `nodes`, the same view of older content (key)."""
        if not self._leaves:
            return {}
        leaves = [(old, _leaf(ref)) for old, ref in self._leaves.items()]
        return {
            node.substitute({leaf: old}): node
            for node in nodes
            if node.op is not Ops.BUFFER
            for old, leaf in leaves
            if leaf is not None and view_base(node) is leaf
        }

    def without_aside(self, nodes: Iterable[UOp]) -> dict[UOp, UOp]:
        """Nodes (keys) over the definitions of what was stored on the way to others."""
        found = {node: node for node in nodes}
        done = dict(self.aside()) if found else {}
        if done:
            dependents.register(found)
            above = dependents.of(done)
            found = {x: rebuilt(x, above, done) if x in above else x for x in found}
            carry_over(done)
        return found

    def define(self, buffer: UOp, definition: UOp) -> None:
        """Add the definition of a BUFFER. It is a leaf no longer, nor are its older contents."""
        super().define(buffer, definition)
        if self._leaves:
            for old, leaf in list(self._leaves.items()):
                cell = leaf()
                if cell is not None and cell._node is buffer:
                    self._leaves.pop(old)

    # ---- values that were stored ----

    def to_keep(
        self, table: dict[UOp, UOp], paths: Sequence[tuple[TensorBase | Cell, list[UOp]]]
    ) -> dict[UOp, Keep]:
        """What becomes of the history of each computed node, a key of `table`, that has one.

        The values of `table` are where nodes are stored, `paths` lead from tensors to the nodes.
        `table` is changed: of nodes that share a BUFFER, each with a history gets a BUFFER of its
        own, and each without gets a detached view.
        """
        states = _grad_states(paths)
        kept: dict[UOp, Keep] = {}
        owners: dict[UOp, UOp] = {}
        copied: list[UOp] = []
        wanted = WantedNodes()
        for key, place in table.items():
            keep = keep_of(key, states.get(key))
            if keep is Keep.NEVER:
                continue
            if key.op in IN_PLACE:
                is_undecided = keep is Keep.BOUNDED and key.op is Ops.ASSIGN
                if is_undecided and self._undecided.is_data(key, place, wanted):
                    continue
                kept[key] = keep
            elif place.op is Ops.BUFFER:
                kept[key] = keep
                if owners.setdefault(place, key) is not key:
                    copied.append(key)
            elif place.op is Ops.RESHAPE and place.src[0] in table.values():
                # a view of the BUFFER of another node
                kept[key] = keep
                copied.append(key)
        for key in copied:
            place = table[key]
            table[key] = UOp.new_buffer(place.device, max_shape(place.shape), place.dtype)
            self._copies.append((table[key], place))
        if owners and len(owners) < len(table):
            for key, place in table.items():
                is_shared = view_base(place) in owners
                if is_shared and key not in kept and key.op not in IN_PLACE:
                    table[key] = place.detach()
        return kept

    def copy_shared(self, run: Callable[[list[UOp]], None]) -> None:
        """Copy values to their own memory once they are computed; `run` computes ASSIGNs."""
        if self._copies:
            copies = [new.assign(x) for new, x in self._copies if view_base(x).is_realized]
            self._copies.clear()
            run(copies)

    def stored(
        self,
        table: dict[UOp, UOp],
        kept: dict[UOp, Keep],
        stores: Mapping[UOp, UOp],
        on_the_way: Collection[UOp] = (),
    ) -> None:
        """Record the histories of nodes that were stored (keys of `table`), and rebuild all
        definitions over what they were stored in (values), but for those that were stored
        `on_the_way`. `stores` are the BUFFERs of memory that is overwritten, with the BUFFERs of
        its new content.
        """
        if not (on_the_way or self.has_aside):
            self._store(table, kept, stores, {})
            return
        ways = [x for x in on_the_way if x in kept and x in table and not is_new_data(x)]
        aside = {table[x]: x for x in ways if is_moved(x, table[x])}
        for buffer, key in aside.items():
            del table[key]
            self._aside[buffer] = None
        self.has_aside = bool(self._aside)
        found = {buffer: kept.pop(key) for buffer, key in aside.items()}
        before = self.aside()
        self._store(table, kept, stores, aside)
        for buffer, keep in found.items():
            if keep is Keep.BOUNDED:
                self._undecided.limit(buffer)
        if before:
            new = [x for x in (*aside, *map(view_base, table.values())) if x in self.definitions]
            definitions = {x: self.definitions[x] for x in new}
            changed = self.without_aside(definitions.values())
            for buffer, definition in definitions.items():
                self.define(buffer, changed[definition])

    def _store(
        self,
        table: dict[UOp, UOp],
        kept: dict[UOp, Keep],
        stores: Mapping[UOp, UOp],
        aside: dict[UOp, UOp],
    ) -> None:
        """Record the histories of nodes that were stored, and the definitions `aside`."""
        writes = [key for key in table if key.op in IN_PLACE]
        if not (kept or aside or self.definitions or (writes and self.lost)):
            return
        if not (aside and stores):
            if aside:
                self._add(aside)
            if self._store_simple(table, writes, kept, stores):
                return
        new = dict(aside)
        outcome: dict[UOp, Keep] = {}
        for key, keep in kept.items():
            if key.op not in IN_PLACE and is_moved(key, table[key]):
                new[table[key]], outcome[table[key]] = key, keep
        if not writes:
            self._replace(dict(table), {}, new, {})
            self._decide(outcome)
            return
        contents, older = contents_of(writes, table, kept, stores)
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
        self._replace(seeds, older, new, stores)
        self._decide(outcome)

    def _store_simple(
        self,
        table: dict[UOp, UOp],
        writes: list[UOp],
        kept: dict[UOp, Keep],
        stores: Mapping[UOp, UOp],
    ) -> bool:
        """The common cases of `stored`, in which no other definition changes. Returns whether this
        is one of them.
        """
        if not self.definitions:
            self._unregistered.clear()
            return self._store_first(table, writes, kept, stores)
        if kept and len(table) > 1:
            return False
        known = self.known_above({*table, *stores}, self.above({*table, *stores}), stores)
        if not known:
            return self._store_first(table, writes, kept, stores)
        is_single = len(table) == len(kept) == len(stores) == 1
        return is_single and self._store_again(table, kept, known, stores)

    def _store_first(
        self,
        table: dict[UOp, UOp],
        writes: list[UOp],
        kept: dict[UOp, Keep],
        stores: Mapping[UOp, UOp],
    ) -> bool:
        """Record the histories of nodes that no definition reads. Returns whether it was possible
        without rebuilding anything.
        """
        if writes:
            return not kept or self._stay_cut(table, kept, stores)
        if len(table) > 1:
            return False
        for key, keep in kept.items():
            place = table[key]
            if is_moved(key, place):
                self.define(place, key)
                if keep is Keep.BOUNDED:
                    self._undecided.bound([place])
                else:
                    self._decide({place: keep})
        return True

    def _store_again(
        self,
        table: dict[UOp, UOp],
        kept: dict[UOp, Keep],
        known: Collection[UOp],
        stores: Mapping[UOp, UOp],
    ) -> bool:
        """Record the history of one BUFFER that was overwritten as a whole, by a value that does
        not read it, and that no definition in `known` reads but its own. Returns whether so.
        """
        ((write, place),) = table.items()
        ((old, new),) = stores.items()
        value, keep = write.src[-1], kept[write]
        if write.op is not Ops.ASSIGN or place is not new or any(x is not old for x in known):
            return False
        if keep not in {Keep.ALWAYS, Keep.BOUNDED} or value.op in IN_PLACE | _MAY_BE_LEAVES:
            return False
        dependents.register((value,))
        if value in dependents.of((old,)):
            return False
        self.define(new, value)
        self._decide({new: keep})
        return True

    def _decide(self, outcome: dict[UOp, Keep]) -> None:
        """Keep, drop or lose the histories of BUFFERs."""
        bounded: list[UOp] = []
        for buffer, keep in outcome.items():
            if keep is Keep.BOUNDED:
                bounded.append(buffer)
            elif keep is Keep.RELEASED:
                self.lose(buffer, Reason.RELEASED)
            elif keep is Keep.CUT:
                self.lose(buffer, Reason.CUT)
        if bounded:
            self._undecided.bound(bounded)

    def _stay_cut(
        self, table: dict[UOp, UOp], kept: dict[UOp, Keep], stores: Mapping[UOp, UOp]
    ) -> bool:
        """Whether all nodes that were stored are undecided writes to memory with a cut history; if
        so, it stays cut.
        """
        found: dict[UOp, int] = {}
        older = {new: old for old, new in stores.items()}
        for key, place in table.items():
            memory = view_base(place)
            lost = self.lost.get(older.get(memory, memory))
            if key.op not in IN_PLACE or kept.get(key) is not Keep.BOUNDED:
                return False
            if lost is None or lost.reason is not Reason.CUT:
                return False
            found[memory] = lost.first
        for memory, first in found.items():
            self.lose(memory, Reason.CUT, first)
        return True

    def overwritten(self, memory: Iterable[UOp]) -> None:
        """Note that code outside of the graph overwrites the content of these BUFFERs with data."""
        if self:
            self._replace({}, {}, {}, dict.fromkeys(memory))

    def replaced(self, table: dict[UOp, UOp]) -> None:
        """Let definitions read the values of `table` for its keys, BUFFERs that have no content."""
        self._copies.clear()
        if self.definitions:
            self._replace(dict(table), {}, {}, {})

    def _add(self, new: dict[UOp, UOp]) -> None:
        """Add definitions that read what their values were computed from."""
        for buffer, definition in new.items():
            self.define(buffer, definition)

    def _replace(
        self,
        seeds: dict[UOp, UOp],
        older: dict[UOp, UOp],
        new: dict[UOp, UOp],
        written: Mapping[UOp, UOp | None],
    ) -> None:
        """Add the definitions `new`, and rebuild all definitions with the keys of `seeds` replaced.

        Definitions that read the BUFFERs `written` (with those of the new content) read
        placeholders from now on. `older` are the writes (keys) that others followed, with the
        values that they wrote.
        """
        replaced = {*seeds, *older, *written}
        above = self.above(replaced)
        known = self.known_above(replaced, above, written)
        if not known and not written and len(seeds) == 1:
            self._add(new)
            return
        dependents.register(new.values())
        above = dependents.of(replaced)
        affected = [d for d in (*known.values(), *new.values()) if d in above]
        if written and affected:
            sources = dict.fromkeys(x for d in affected for x in d.src)
            below = _below(sources, {*seeds, *older}, older)
            seeds |= self._placeholders_for({x: written[x] for x in written if x in below}, new)
        done = dict(seeds)
        for node, value in older.items():
            done[node] = rebuilt(value, above, done)
        inherited = [(seeds[b], d) for b, d in known.items() if b in written and b in seeds]
        for buffer, definition in (*known.items(), *inherited, *new.items()):
            changed = definition
            if definition in above:
                for x in filter(above.__contains__, definition.src):
                    rebuilt(x, above, done)
                changed = with_rebuilt_sources(definition, done)
                carry_over_to(changed, definition, done)
            self.define(buffer, changed)
        carry_over(done)

    def _placeholders_for(
        self, overwritten: Mapping[UOp, UOp | None], new: Collection[UOp]
    ) -> dict[UOp, UOp]:
        """A placeholder for each BUFFER of `overwritten`. It inherits the history of the BUFFER;
        that of a leaf leads to the leaf.
        """
        found = {}
        for memory, content in overwritten.items():
            old = UOp.new_buffer(memory.device, memory.arg.shape, memory.dtype)
            found[memory] = old
            self.placeholders[old] = None
            if memory in self.depths:
                self._undecided.add(old, self.depths[memory])
            if memory in self.lost:
                self.lost[old] = self.lost[memory]
            elif memory not in self.definitions and content not in new:
                self.note_older_content(old, memory)
        return found

    def note_older_content(self, old: UOp, memory: UOp) -> None:
        """Note that a gradient by `old`, older content of the memory of a BUFFER, is one by the
        leaf in that memory, if there is one.
        """
        owner = bases_of(memory.memory)[0].owner
        if owner is not None and old not in self.definitions and old not in self.lost:
            self._leaves[old] = owner

    # ---- histories that end ----

    def release(self, buffers: Iterable[UOp]) -> None:
        """Drop the histories of values that `backward()` went through."""
        for buffer in buffers:
            if self.definitions.get(buffer) is not None:
                self.lose(buffer, Reason.RELEASED)

    def captured(self, results: Iterable[TensorBase]) -> None:
        """Drop the histories of results of a captured function, which replays overwrite. Those that
        require no gradient are constants, unless what they were computed from becomes a leaf later.
        """
        states: dict[UOp, list[GradState]] = {}
        for x in results:
            buffer = view_base(x.uop)
            if buffer.op is Ops.BUFFER and dtypes.is_float(buffer.dtype):
                states.setdefault(buffer, []).append(x._requires_grad)
        for buffer, found in states.items():
            state = any(found) or (None if None in found else False)
            self.captured_in([buffer], state, live_tensors.now())

    def captured_in(self, buffers: Iterable[UOp], requires_grad: bool | None, called: int) -> None:
        """Note that BUFFERs are results of a call of a captured function, which was at `called`."""
        for buffer in buffers:
            is_wanted = requires_grad is not False and dtypes.is_float(buffer.dtype)
            if is_wanted and buffer not in self.lost:
                self.lose(buffer, Reason.CAPTURED, 0 if requires_grad else called)


histories = Histories()


def _below(
    nodes: Iterable[UOp], replaced: Collection[UOp], older: dict[UOp, UOp]
) -> dict[UOp, None]:
    """The nodes below `nodes`, down to those `replaced`; below a write that others followed, a key
    of `older`, those of the value that it wrote.
    """
    found: dict[UOp, None] = {}
    fresh = [*nodes]
    while fresh:
        new = UOp.sink(*fresh).toposort(gate=lambda node: node not in replaced)
        fresh = [older[node] for node in new if node in older and node not in found]
        found |= new
    return found


def _over(value: UOp) -> UOp:
    """A definition with `value` as its source, so that `value` can be replaced in it: by the BUFFER
    that it is stored in, and by a placeholder once that is overwritten.
    """
    return UOp(Ops.CONTIGUOUS, value.dtype, (value,))


def _grad_states(
    paths: Sequence[tuple[TensorBase | Cell, list[UOp]]],
) -> dict[UOp, list[GradState]]:
    """Whether the tensors with each node require a gradient; `paths` lead from these to nodes."""
    states: dict[UOp, list[GradState]] = {}
    for x, path in paths:
        if not is_detached(path):
            found = states.setdefault(path[-1], [])
            if isinstance(x, TensorBase):
                found.append(x._requires_grad)
    return states


def _leaf(cell: weakref.ref[Cell]) -> UOp | None:
    """The BUFFER of a leaf."""
    found = cell()
    return None if found is None else written_target(view_base(found.uop))
