"""Recording of a call: the tensors before the function ran, and those that it left behind.

Input: the roots of a function, in which its names are looked up. Output: the places and gradients
that it left. Invariant: after `settle`, every effect of the call on memory has run: results, kept
tensors and pending writes are realized.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

from tinygrad.device import Buffer
from tinygrad.execution.buffers import memory_of
from tinygrad.execution.capture import JitError, capturing
from tinygrad.jit.containers import tensors_in
from tinygrad.jit.effects.known_memory import StoredTensor
from tinygrad.jit.effects.places import Place, check_can_repeat, find_places
from tinygrad.jit.environment.links import Link
from tinygrad.jit.environment.survey import Survey
from tinygrad.storage.aliases import set_whole, whole_tensor, whole_value
from tinygrad.storage.gradients.grad_mode import Leaf
from tinygrad.storage.gradients.partial_gradients import is_stored_in_parts
from tinygrad.storage.live_tensors import TensorBase, live_tensors
from tinygrad.storage.placement import in_own_memory
from tinygrad.storage.realization import realize_all, store_constant
from tinygrad.storage.views import is_in_memory, is_uniform, movement_base, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.user_line import find_user_line


class Recording:
    """The tensors that `roots` reach by name, and those that are lazy, at the start of a call. None
    is kept alive after `settle`. Others that the call uses are found by the memory that it touched.

    `arguments` are the tensors that the function is given.
    """

    def __init__(self, roots: Iterable[Any], arguments: Iterable[Tensor]) -> None:
        self.roots = tuple(roots)
        given = list(arguments)
        self._arguments = {id(x) for x in given}
        # arguments outlive the call
        self._given = [(x, x.grad) for x in given]
        self.before = Survey(self.roots)
        lazy = [x for x in self.before.links if x.is_tensor and not _is_stored(x.value)]
        self._lazy_links = [(x, _node_later(x.value.uop)) for x in lazy]
        # what the function replaces may have other references in a later call, so its writes count;
        # gradients are dropped before others are computed, which saves their memory
        reached = self.before.tensors()
        gradients = {id(x.grad) for x in reached}
        self._reached = [x for x in reached if id(x) not in gradients]
        self.stored = [StoredTensor(x) for x in reached if _is_stored(x)]
        """The tensors that were reached in memory, whole or in partial sums."""
        self._lazy = [
            (weakref.ref(x), weakref.ref(x.uop))
            for x in live_tensors.changed_since_settled()
            if isinstance(x, Tensor) and not is_in_memory(x.uop)
        ]
        self._mark = live_tensors.mark()
        self.places: list[Place] = []
        """Where the function left tensors that it created or was given, its results too."""
        self.gradients: dict[int, Tensor | None] = {}
        """What the function left as the gradient of arguments, by the number of the argument."""
        self._results: set[int] = set()

    def settle(self, result: Any) -> None:
        """Realize the results, the writes to tensors that outlive the call, and what is kept."""
        results = tensors_in(result)
        self._created = {id(x) for x in live_tensors.since(self._mark)}
        self._results = {id(x) for x in results}
        if self._created or self._arguments:
            self.places = find_places(self.before, self.roots, self._created, self._arguments)
        self.gradients = {i: x.grad for i, (x, old) in enumerate(self._given) if x.grad is not old}
        left = self.left()
        wholes: list[TensorBase] = []
        if capturing():
            check_can_repeat("returns", result, self._created | self._arguments, self.before)
            self._check_gradients()
            self._separate(left, results)
            wholes = _wholes([*results, *left])
        written = self._written()
        for x in written:
            if is_uniform(x.uop):
                # a constant that the function writes is another one in each call
                store_constant(x)
        # a gradient that the function stored as partial sums stays that, unless it is returned
        kept = [x for x in (*written, *left) if not is_stored_in_parts(x)]
        realize_all([*results, *kept, *wholes])
        self._reached.clear()

    def left(self) -> list[Tensor]:
        """The tensors in `places`, and `gradients`, that are not results."""
        found = [x for place in self.places for x in tensors_in(place.value)]
        found += [x for x in self.gradients.values() if x is not None]
        return [x for x in found if id(x) not in self._results]

    def is_replaced(self, link: Link) -> bool:
        """Whether the function put a tensor that it created, or a container of some, in a place."""
        if any(place.link.place == link.place for place in self.places):
            return True
        return id(link.get_or_none()) in self._created

    def has_created(self, x: TensorBase) -> bool:
        """Whether the function created a tensor."""
        return id(x) in self._created

    def created(self, results: Iterable[Tensor]) -> list[Tensor]:
        """The live tensors that were created since the start of the call, other than `results`."""
        returned = {id(x) for x in results}
        found = live_tensors.since(self._mark)
        return [x for x in found if isinstance(x, Tensor) and id(x) not in returned]

    def older_in(self, memory: set[Buffer]) -> list[Tensor]:
        """The tensors in some memory that were there before."""
        found = live_tensors.in_memory(memory)
        return [x for x in found if isinstance(x, Tensor) and x._number < self._mark]

    def known_memory(self, results: Iterable[Tensor], written: set[Buffer]) -> set[Buffer]:
        """The memory of `results`, and that of tensors that were there before, of `written`."""
        known = {b for x in self.stored for ref in x.buffers if (b := ref()) is not None}
        tensors = (*results, *self.older_in(written))
        below = (buffer for x in tensors for buffer in buffers_read_by(x.uop))
        return known.union(*map(memory_of, below))

    def lazy_was_lost(self) -> bool:
        """Whether the function dropped a lazy tensor, other than for an equal one."""
        return any(
            link.is_lost() and not _is_equal(link, node()) for link, node in self._lazy_links
        )

    def lazy_has_changed(self) -> bool:
        """Whether one of the lazy tensors is in memory by now, or one that the function reaches has
        another value.

        A replay would compute it again: initialize weights once more, or run a pending write twice.
        """
        named = {id(x) for x in self.before.tensors()}
        return any(
            is_in_memory(x.uop) or (id(x) in named and x.uop is not node())
            for ref, node in self._lazy
            if (x := ref()) is not None
        )

    def lazy_reading(self, memory: Collection[Buffer], named: Collection[int]) -> set[int]:
        """The lazy tensors, by id, that were there before and are none of `named`, and that read
        some of `memory`, or none at all, as constants.
        """
        found = [(x, node()) for ref, node in self._lazy if (x := ref()) is not None]
        others = [x for x, node in found if id(x) not in named and x.uop is node]
        reading = _reading([x.uop for x in others], memory)
        return {id(x) for x in others if x.uop in reading}

    def _check_gradients(self) -> None:
        """Raise JitError if the function left a gradient in a leaf that it does not reach."""
        reached = {id(x.grad) for x, _ in self._given}
        reached |= {id(x) for place in self.places for x in tensors_in(place.value)}
        for x in live_tensors.one_by_one():
            grad = x.grad
            if grad is None or id(grad) in reached or id(grad) not in self._created:
                continue
            if id(x) not in self._created and isinstance(x._requires_grad, Leaf):
                raise JitError(
                    f"{find_user_line()}: backward() in a captured function leaves a gradient in "
                    f"{x!r}, to which no name in the function leads: a replay would not do so; "
                    "pass the tensor as an argument, or set its requires_grad to False"
                )

    def _separate(self, left: Iterable[Tensor], results: Iterable[Tensor]) -> None:
        """Give tensors that have the value of a result, and are no aliases of it, their own memory;
        one that is older than the call keeps its memory, and the result gets another.
        """
        values = {view_base(x.uop): x for x in results}
        for x in left:
            result = values.get(view_base(x.uop))
            if result is None or is_in_memory(x.uop):
                continue
            if x._cell is None or x._cell is not result._cell:
                moved = x if self.has_created(x) else result
                set_whole(moved, in_own_memory(whole_value(moved)))

    def _written(self) -> list[Tensor]:
        """The tensors that the function wrote to without realizing them."""
        named = {id(x) for x in self.before.tensors()}
        named |= {id(x.grad) for x in live_tensors.one_by_one() if x.grad is not None}
        before = {ref(): node() for ref, node in self._lazy}
        found: list[Tensor] = []
        for x in live_tensors.changed_since_settled():
            if not isinstance(x, Tensor) or x._number >= self._mark:
                continue
            if x.uop is before.get(x) or is_in_memory(x.uop):
                continue
            if id(x) in named or has_pending_write(x.uop) or is_uniform(x.uop):
                found.append(x)
        return found


def _node_later(node: UOp) -> Callable[[], UOp | None]:
    """What gives a node, if it lives; a constant, which keeps no memory alive, does."""
    return (lambda: node) if is_uniform(node) else weakref.ref(node)


def _is_stored(x: TensorBase) -> bool:
    """Whether a tensor is in memory, whole or in partial sums."""
    return is_in_memory(x.uop) or is_stored_in_parts(x)


def _wholes(tensors: Iterable[Tensor]) -> list[TensorBase]:
    """The values that several tensors are views of. Replays compute these, so that the views see
    each other's writes. The only view of a value becomes a tensor of its own.
    """
    groups = {x._cell: x for x in tensors if x._cell is not None and x._steps}
    return [whole_tensor(x) for group, x in groups.items() if not group.leave(x)]


def _is_equal(link: Link, node: UOp | None) -> bool:
    """Whether a place holds a tensor of this node."""
    found = link.get_or_none()
    return isinstance(found, Tensor) and found.uop is node


def _reading(nodes: Iterable[UOp], memory: Collection[Buffer]) -> set[UOp]:
    """The nodes below `nodes` that are computed from this memory, or from constants alone."""
    reading: set[UOp] = set()
    constant: set[UOp] = set()
    for x in UOp.sink(*nodes).toposort():
        if x.op is Ops.BUFFER:
            if is_within(x, memory):
                reading.add(x)
        elif not reading.isdisjoint(x.src):
            reading.add(x)
        elif constant.issuperset(x.src):
            constant.add(x)
    return reading | constant


def has_pending_write(node: UOp) -> bool:
    """Whether a value is a view of a buffer with a pending write."""
    written = view_base(node)
    return written.op is Ops.ASSIGN and movement_base(written.src[0]).op is Ops.BUFFER


def is_within(base: UOp, buffers: Collection[Buffer]) -> bool:
    """Whether a BUFFER is in one of these buffers."""
    return base.op is Ops.BUFFER and any(b in buffers for b in memory_of(base))


def buffers_read_by(node: UOp) -> list[UOp]:
    """The BUFFERs that a value reads: that of a view, or all below copies between shards."""
    base = view_base(node)
    return [base] if base.op is Ops.BUFFER else [x for x in base.toposort() if x.op is Ops.BUFFER]
