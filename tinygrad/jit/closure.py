"""Closure: what a captured function uses without taking it as an argument.

Examples are weights, caches, running statistics, and numbers in attributes. Input: the recording of
the captured call, and the memory that its items read and write. Output: whether a later call may
replay it: not if a tensor was moved, resharded or replaced. Pending writes to these tensors are
realized before a replay.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Container, Iterable
from typing import Any

from tinygrad.device import Buffer
from tinygrad.execution.buffers import memory_of
from tinygrad.execution.capture import JitError
from tinygrad.jit.containers import tensors_in
from tinygrad.jit.effects.known_memory import KnownMemory, KnownTensor, StoredTensor
from tinygrad.jit.effects.recording import Recording, has_pending_write
from tinygrad.jit.environment.guards import Guards
from tinygrad.jit.environment.inspection import reached_from
from tinygrad.jit.environment.links import Link
from tinygrad.jit.environment.survey import SCALARS, Survey
from tinygrad.jit.inputs import Inputs
from tinygrad.storage.realization import realize_all
from tinygrad.storage.views import is_in_memory, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.user_line import find_user_line


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
        returned = [view_base(x.uop) for x in tensors_in(result) if is_in_memory(x.uop)]
        used = touched.union(*map(memory_of, returned))
        del returned
        found = _Used(recording, used)
        survey = recording.before
        # the function dropped a tensor, and put one in its place that it did not create
        moved = any(x.is_lost() and not recording.is_replaced(x) for x in survey.links)
        self._is_rebound = found.is_rebound or moved
        named = {id(x): x for x in survey.tensors() if found.is_used(x)}
        links = [link for link in survey.links if _is_followed(link, named, recording)]
        hidden = found.others(recording, named.values(), used.difference(inputs.memory))
        # a lazy tensor may be used too, if what it reads is
        lazy = recording.lazy_reading(touched - written, named)
        if hidden or lazy:
            found_there, further = _reached_by_attributes(recording, hidden, lazy)
            links += further
            named |= found_there
            hidden = {key: x for key, x in hidden.items() if key not in found_there}
        self._is_rebound |= any(map(found.is_moved, (*named.values(), *hidden.values())))
        self._tensors = list(named.values())
        self._known = [KnownTensor(x) for x in self._tensors]
        # tensors that no link leads to must stay what they are
        self._hidden = [(weakref.ref(x), KnownMemory(x)) for x in hidden.values()]
        reached = [*survey.tensors()]
        differentiated = [x for x in reached if x.requires_grad]
        self._note_memory(written, inputs, hidden.values(), reached, differentiated)
        self._guards = Guards(links, survey, named, [place.link for place in recording.places])
        self.changed_paths = self._guards.changed_paths

    def _note_memory(
        self,
        written: set[Buffer],
        inputs: Inputs,
        hidden: Iterable[Tensor],
        reached: Iterable[Tensor],
        differentiated: Iterable[Tensor],
    ) -> None:
        """Note the memory of the tensors, which of it the function wrote, and where the inputs are
        in it.
        """
        bases = [base for x in (*self._tensors, *hidden) for base in _memory_below(x)]
        # a tensor that is an argument too: what the function does to both depends on that
        known = inputs.memory
        bases += [base for x in reached for base in _memory_below(x) if base in known]
        self.written = [x for x in self._tensors if not written.isdisjoint(_memory_below(x))]
        """The tensors that the function wrote to."""
        self._assigned = {
            i for i, x in enumerate(inputs.memories) if not written.isdisjoint(x.known)
        }
        # with these as an argument, the gradient by both is that of one tensor
        leaves = {base for x in differentiated for base in _memory_below(x)}
        self._memory = {*bases, *leaves}
        # the memory that no other input may be in
        self._apart = written.intersection(bases) | leaves
        self._aliases = self._aliases_of(inputs)
        self.reads_inputs = bool(self._aliases)
        """Whether inputs are in the memory of these tensors."""

    def is_unchanged(self, inputs: Inputs) -> bool:
        """Whether the function would use the same tensors and values, and arguments are in the
        memory of these tensors only where they were. Pending writes to the tensors are realized.
        """
        if self._is_rebound or not self._guards.are_unchanged():
            return False
        for x in self._known:
            if not x.is_in_place():
                if not self._settle():
                    return False
                break
        if self._hidden and not self._hidden_are_in_place():
            return False
        return self._fits(inputs)

    def _aliases_of(self, inputs: Inputs) -> dict[int, tuple[Buffer, ...]]:
        """The memory of these tensors that inputs are in, by the number of the input."""
        memory = self._memory
        return {
            i: tuple([b for b in x.known if b in memory])
            for i, x in enumerate(inputs.memories)
            if not memory.isdisjoint(x.known) and not x.is_borrowed()
        }

    def _fits(self, inputs: Inputs) -> bool:
        """Whether inputs alias these tensors as in the captured call. Another input may alias one
        only if neither is written and the tensor requires no gradient.
        """
        memory = self._memory
        if not self._aliases and all(memory.isdisjoint(x.known) for x in inputs.memories):
            return True
        found = self._aliases_of(inputs)
        more = found.keys() - self._aliases.keys()
        if any(i in self._assigned or not self._apart.isdisjoint(found[i]) for i in more):
            return False
        return all(found.get(i) == known for i, known in self._aliases.items())

    def _settle(self) -> bool:
        """Run pending writes; returns whether all tensors are in their old memory."""
        realize_all([x.tensor for x in self._known if has_pending_write(x.tensor.uop)])
        return all(x.is_in_place() for x in self._known)

    def _hidden_are_in_place(self) -> bool:
        """Whether the live tensors are where they were, and each memory has a live tensor."""
        alive = [(x, ref, known) for ref, known in self._hidden if (x := ref()) is not None]
        realize_all([x for x, _, _ in alive if has_pending_write(x.uop)])
        if not all(known.is_memory_of(x) for x, _, known in alive):
            return False
        if len(alive) == len(self._hidden):
            return True
        memory = {known.base() for _, known in self._hidden}
        self._hidden = [(ref, known) for _, ref, known in alive]
        return {known.base() for _, known in self._hidden} == memory


class _Used:
    """Which of the tensors that existed before a captured function it used.

    `used` is the memory of its items and of its results.
    """

    def __init__(self, recording: Recording, used: set[Buffer]) -> None:
        self._before: dict[int, StoredTensor] = {}
        self._memory: dict[int, bool] = {}
        # the function dropped a tensor that it used: the next call uses another in its place
        self.is_rebound = recording.lazy_was_lost()
        for stored in recording.stored:
            is_used = any(b() in used for b in stored.buffers)
            x = stored.tensor()
            if x is None:
                self.is_rebound |= is_used
            else:
                self._before[id(x)] = stored
                self._memory[id(x)] = is_used

    def is_used(self, x: Tensor) -> bool:
        """Whether the function may have used a tensor, as it may any that is not in memory."""
        return self._memory.get(id(x), True)

    def is_moved(self, x: Tensor) -> bool:
        """Whether the function moved a tensor to other memory: the next call uses that."""
        stored = self._before.get(id(x))
        return stored is not None and not stored.is_in_place(x)

    def others(
        self, recording: Recording, named: Iterable[Tensor], used: set[Buffer]
    ) -> dict[int, Tensor]:
        """The tensors in `used` memory that no named tensor is in, by id."""
        known = {b for x in named for b in _memory_below(x)}
        older = recording.older_in(used - known)
        return {id(x): x for x in older if known.isdisjoint(_memory_below(x))}


def _memory_below(x: Tensor) -> list[Buffer]:
    """The memory that a tensor is in or, if it is lazy, that each call reads to compute it."""
    base = view_base(x.uop)
    nodes = [base] if base.op is Ops.BUFFER else base.toposort()
    return [b for node in nodes if node.op is Ops.BUFFER for b in memory_of(node)]


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
        found = next((x for x in reached_from(holder) if id(x) in hidden), None)
        if found is not None:
            raise JitError(
                f"{find_user_line()}: {found!r} is used by a captured function, in an object of "
                f"type {type(holder).__name__}; another tensor there would not be noticed: pass it "
                "as an argument, or keep it in a list, dict or attribute"
            )
