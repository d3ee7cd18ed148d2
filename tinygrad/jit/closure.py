"""Closure: what a captured function uses without taking it as an argument.

Examples are weights, caches, running statistics, and numbers in attributes. Input: the recording of
the captured call, and the memory that its items read and write. Output: whether a later call may
replay it: not if a tensor was moved, resharded or replaced. Pending writes to these tensors are
realized before a replay.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter, deque
from collections.abc import Collection, Container, Iterable, Iterator
from contextvars import ContextVar
from operator import attrgetter, is_
from typing import Any

from tinygrad.device import Buffer
from tinygrad.execution.buffers import memory_of
from tinygrad.execution.capture import JitError
from tinygrad.jit.effects.recording import Recording, has_pending_write, is_within
from tinygrad.jit.effects.stored_tensor import StoredTensor, is_same_view
from tinygrad.jit.environment.guards import Guards
from tinygrad.jit.environment.links import Link
from tinygrad.jit.environment.survey import SCALARS, Survey
from tinygrad.jit.inputs import Inputs, tensors_in
from tinygrad.storage.realization import realize_all
from tinygrad.storage.views import is_in_memory, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.user_line import find_user_line

_node_of = attrgetter("uop")
# the maximum number of objects searched for a tensor that no link leads to
_MAX_SEARCHED = 100_000


class Closure:
    """The tensors and Python values that a function used, other than its `inputs`.

    `touched` is the memory that the captured items use, `written` the part that they write.

    Raises:
        JitError: a tensor is held by an object that cannot be followed, such as an iterator.
    """

    def __init__(
        self,
        recording: Recording,
        touched: set[Buffer],
        written: set[Buffer],
        inputs: Inputs,
        result: Any,
    ) -> None:
        returned = [x.uop for x in tensors_in(result) if is_in_memory(x.uop)]
        used = touched.union(*(memory_of(view_base(node)) for node in returned))
        found = _Used(recording, used)
        survey = recording.before
        # the function dropped a tensor, and put one in its place that it did not create
        moved = any(x.is_lost() and not recording.is_replaced(x) for x in survey.links)
        self._is_rebound = found.is_rebound or moved
        named = {id(x): x for x in survey.tensors() if found.is_used(x)}
        links = [link for link in survey.links if _is_followed(link, named, recording)]
        hidden = found.others(named.values(), used.difference(inputs.memory))
        # a lazy tensor may be used too, if what it reads is
        lazy = recording.lazy_reading(touched - written, named)
        if hidden or lazy:
            reached, further = _reached_by_attributes(recording, hidden, lazy)
            links += further
            named |= reached
            hidden = {key: x for key, x in hidden.items() if key not in reached}
        self._tensors = list(named.values())
        self._nodes = [found.node(x) for x in self._tensors]
        # tensors that no link leads to must stay what they are
        self._hidden = [(weakref.ref(x), found.node(x)) for x in hidden.values()]
        self._note_memory(written, inputs, [x for x in survey.tensors() if x.requires_grad])
        sizes = [(x, size) for x, size in survey.sizes if len(x) == size]
        absent = [(x, name) for x, name in survey.absent if name not in x]
        self._guards = Guards(links, sizes, survey.arrays, set(named), absent)

    def _note_memory(
        self, written: set[Buffer], inputs: Inputs, differentiated: Iterable[Tensor]
    ) -> None:
        """Note the memory of the tensors, which of it the function wrote, and where the inputs are
        in it.
        """
        bases = {view_base(node) for node in [*self._nodes, *(node for _, node in self._hidden)]}
        self._bases = {node for node in bases if node.op is Ops.BUFFER}
        self._written = {node for node in self._bases if is_within(node, written)}
        self.written = [x for x in self._tensors if view_base(x.uop) in self._written]
        """The tensors that the function wrote to."""
        self._assigned = {i for i, node in enumerate(inputs.nodes) if is_within(node, written)}
        # with these as an argument, the gradient by both is that of one tensor
        leaves = {view_base(x.uop) for x in differentiated}
        self._known = self._bases | leaves | _memory_below(self._tensors)
        # the memory that no other input may be in
        self._apart = self._written | leaves
        self._aliases = self._aliases_of(inputs)
        self.reads_inputs = bool(self._aliases)
        """Whether inputs are in the memory of these tensors."""

    def is_unchanged(self, inputs: Inputs) -> bool:
        """Whether the function would use the same tensors and values, and arguments are in the
        memory of these tensors only where they were. Pending writes to the tensors are realized.
        """
        if self._is_rebound or not self._guards.are_unchanged():
            return False
        if not all(map(is_, map(_node_of, self._tensors), self._nodes)) and not self._settle():
            return False
        if self._hidden and not self._hidden_are_in_place():
            return False
        if not self._aliases and self._known.isdisjoint(inputs.nodes):
            return True
        return self._fits(inputs)

    def references(self) -> Counter[UOp]:
        """How often this object refers to each BUFFER."""
        found = Counter(self._nodes)
        found.update(node for _, node in self._hidden)
        for nodes in (self._bases, self._written, self._known, self._apart):
            found.update(nodes)
        return found

    def _aliases_of(self, inputs: Inputs) -> dict[int, UOp]:
        """The inputs that are in the memory of these tensors, by number."""
        return {i: node for i, node in enumerate(inputs.nodes) if node in self._known}

    def _fits(self, inputs: Inputs) -> bool:
        """Whether inputs alias these tensors as in the captured call. Another input may alias one
        only if neither is written and the tensor requires no gradient.
        """
        found = self._aliases_of(inputs)
        more = found.keys() - self._aliases.keys()
        if any(i in self._assigned or found[i] in self._apart for i in more):
            return False
        return all(found.get(i) is node for i, node in self._aliases.items())

    def _settle(self) -> bool:
        """Run pending writes; returns whether all tensors are in their old memory."""
        moved = [(i, x) for i, x in enumerate(self._tensors) if x.uop is not self._nodes[i]]
        realize_all([x for _, x in moved if has_pending_write(x.uop)])
        for i, x in moved:
            if not (is_in_memory(x.uop) and is_same_view(x.uop, self._nodes[i])):
                return False
            self._nodes[i] = x.uop
        return True

    def _hidden_are_in_place(self) -> bool:
        """Whether the live tensors are where they were, and each memory has a live tensor."""
        if all((x := ref()) is not None and x.uop is node for ref, node in self._hidden):
            return True
        alive = [(x, ref, node) for ref, node in self._hidden if (x := ref()) is not None]
        realize_all([x for x, _, node in alive if x.uop is not node and has_pending_write(x.uop)])
        if any(x.uop is not node for x, _, node in alive):
            return False
        memory = {view_base(node) for _, node in self._hidden}
        self._hidden = [(ref, node) for _, ref, node in alive]
        return {view_base(node) for _, node in self._hidden} == memory


class _Used:
    """Which of the tensors that existed before a captured function it used.

    `used` is the memory of its items and of its results.
    """

    def __init__(self, recording: Recording, used: set[Buffer]) -> None:
        self._before: dict[int, StoredTensor] = {}
        self._memory: dict[int, bool] = {}
        # the function dropped a tensor that it used: the next call uses another in its place
        self.is_rebound = recording.lazy_was_lost()
        self._alive: list[Tensor] = []
        for stored in recording.stored:
            is_used = any(b() in used for b in stored.buffers)
            x = stored.tensor()
            if x is None or not (stored.is_in_place(x) or stored.node() is not None):
                self.is_rebound |= is_used
            else:
                self._before[id(x)] = stored
                self._memory[id(x)] = is_used
                self._alive.append(x)

    def is_used(self, x: Tensor) -> bool:
        """Whether the function may have used a tensor, as it may any that is not in memory."""
        return self._memory.get(id(x), True)

    def node(self, x: Tensor) -> UOp:
        """The node of a tensor; if the function moved it, the node that it had before."""
        stored = self._before.get(id(x))
        before = None if stored is None or stored.is_in_place(x) else stored.node()
        return x.uop if before is None else before

    def others(self, named: Iterable[Tensor], used: set[Buffer]) -> dict[int, Tensor]:
        """The tensors in `used` memory that no named tensor is in, by id."""
        bases = {view_base(self.node(x)) for x in named}
        found: dict[int, Tensor] = {}
        for x in self._alive:
            base = view_base(self.node(x))
            if self._memory[id(x)] and base not in bases and not used.isdisjoint(memory_of(base)):
                found[id(x)] = x
        return found


def _memory_below(tensors: Iterable[Tensor]) -> set[UOp]:
    """The BUFFERs that lazy tensors read; each call computes such tensors."""
    lazy = [x.uop for x in tensors if not is_in_memory(x.uop)]
    return {node for node in UOp.sink(*lazy).toposort() if node.op is Ops.BUFFER}


def _is_followed(link: Link, named: dict[int, Tensor], recording: Recording) -> bool:
    """Whether a replay depends on the value of a link. It does not if the function replaced the
    value without using it: a replay replaces it too.
    """
    value = link.value
    if link.is_tensor:
        return id(value) in named or not (value is None or recording.is_replaced(link))
    if isinstance(value, SCALARS) or not recording.is_replaced(link):
        return True
    return any(id(x) in named for x in Survey([value]).tensors())


def _reached_by_attributes(
    recording: Recording, hidden: Collection[int], lazy: Container[int]
) -> tuple[dict[int, Tensor], list[Link]]:
    """The tensors of `hidden` and `lazy` that any attribute leads to, by id, and their links.

    Raises JitError if an object that cannot be followed holds one of the others of `hidden`.
    """
    survey = Survey(recording.roots, all_attributes=True)
    reached = {id(x): x for x in survey.tensors() if id(x) in hidden or id(x) in lazy}
    links = [link for link in survey.links if link.is_tensor and id(link.value) in reached]
    _check_held({key for key in hidden if key not in reached}, survey.opaque)
    return reached, links


def _check_held(hidden: Collection[int], opaque: Iterable[Any]) -> None:
    """Raise JitError if one of the `opaque` objects holds one of these tensors, given by id."""
    for holder in opaque if hidden else ():
        found = next((x for x in _reached_from(holder) if id(x) in hidden), None)
        if found is not None:
            raise JitError(
                f"{find_user_line()}: {found!r} is used by a captured function, in an object of "
                f"type {type(holder).__name__}; another tensor there would not be noticed: pass it "
                "as an argument, or keep it in a list, dict or attribute"
            )


def _reached_from(holder: Any) -> Iterator[Any]:
    """What an object refers to, directly or not; up to `_MAX_SEARCHED` objects are searched."""
    queue, seen = deque([holder]), {id(holder)}
    while queue and len(seen) < _MAX_SEARCHED:
        for x in _held_by(queue.popleft()):
            yield x
            if id(x) not in seen and not isinstance(x, (type, Tensor)) and gc.is_tracked(x):
                seen.add(id(x))
                queue.append(x)


def _held_by(holder: Any) -> list[Any]:
    """The objects that an object refers to; of a `ContextVar`, its current value."""
    if isinstance(holder, ContextVar):
        return [holder.get(None)]
    return gc.get_referents(holder)
