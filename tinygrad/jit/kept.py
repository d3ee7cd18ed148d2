"""Kept tensors: what a captured function creates and leaves in places other than its result.

Such are gradients, and tensors in attributes, dicts, lists and closure cells. Input: the places,
after the captured call. Output: new tensors there before each replay, which the replay fills.
Invariant: each tensor keeps the content that the call that made it gave it, as long as anything
refers to it. If nothing but the place does, the next replay overwrites it, without a copy.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from sys import getrefcount
from typing import Any

from tinygrad.device import Buffer, copy_buffer
from tinygrad.execution.buffers import bind_buffers, device_buffers
from tinygrad.execution.capture import JitError, capturing
from tinygrad.jit.inputs import Inputs, map_leaves, tensors_in
from tinygrad.jit.paths import Places
from tinygrad.jit.references import FROM_A_LIST, KnownReferences
from tinygrad.jit.substitution import Substitution
from tinygrad.jit.survey import Kind, Link, Survey
from tinygrad.storage.views import is_uniform, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard.move import find_user_line


@dataclass(frozen=True)
class Place:
    """Where a function leaves a tensor, or a container of tensors: in the place of what was there,
    or at the end of a list.
    """

    link: Link
    is_appended: bool

    @property
    def value(self) -> Any:
        """What is there now."""
        return self.link.get()

    @property
    def latest(self) -> Any:
        """What the last call left there."""
        return self.link.holder[-1] if self.is_appended else self.link.get()

    def __str__(self) -> str:
        return f"{self.link.key!r} of a {type(self.link.holder).__name__}"

    def put(self, value: Any) -> None:
        """Leave a value there, as the function does."""
        if self.is_appended:
            self.link.holder.append(value)
        else:
            self.link.set(value)


def find_places(before: Survey, roots: Iterable[Any], fresh: set[int]) -> list[Place]:
    """The places of tensors with ids `fresh`, in containers that were there `before`.

    Raises:
        JitError: a captured function changes a list, or makes an object, in a way that cannot be
            repeated.
    """
    sizes = {id(x): size for x, size in before.sizes}
    found: list[Place] = []
    for link in Survey(roots).links:
        holder, value = link.holder, link.value
        is_old = id(holder) in before.known or (
            isinstance(holder, Tensor) and id(holder) not in fresh
        )
        if not is_old or not _holds(value, fresh, before):
            continue
        is_item = link.kind is Kind.ITEM and not isinstance(holder, dict)
        found.append(Place(link, is_item and link.key >= sizes.get(id(holder), 0)))
    lists = {id(x.link.holder): x.link.holder for x in found if isinstance(x.link.key, int)}
    places = {x.link.place for x in found}
    for link in before.links if capturing() else ():
        if id(link.holder) in lists and link.place not in places and not link.is_unchanged():
            raise JitError(
                f"{find_user_line()}: a captured function keeps tensors in a "
                f"{type(link.holder).__name__}, of which it moves or removes items; a replay "
                "cannot repeat that: return the tensors"
            )
    return found


def _holds(value: Any, fresh: set[int], before: Survey) -> bool:
    """Whether a value is a new tensor, or a new container of new tensors."""
    if id(value) in before.known:
        return False
    if any(id(x) in fresh for x in tensors_in(value)):
        return True
    if isinstance(value, (Tensor, list, tuple, dict)) or not hasattr(value, "__dict__"):
        return False
    if capturing() and any(id(x) in fresh for x in Survey([value], all_attributes=True).tensors()):
        raise JitError(
            f"{find_user_line()}: a captured function keeps tensors in a new object of type "
            f"{type(value).__name__}; a replay cannot make another: keep them in a list, tuple or "
            "dict, or in attributes of an object that exists before"
        )
    return False


class KeptTensors:
    """The tensors that a capture leaves in `places`, and `others` that it created and that live.

    `written` is the memory that its items write, without the one that results and tensors that were
    there before are in.
    """

    def __init__(
        self,
        places: Iterable[Place],
        others: Iterable[Tensor],
        written: set[Buffer],
        captured: Inputs,
    ) -> None:
        self._captured = captured
        self._written = written
        # stand-ins for nodes of the captured call, in the same memory
        self._memory: dict[UOp, UOp] = {}
        self._templates: list[tuple[Place, Any]] = []
        self._same: list[tuple[Place, Any]] = []
        self._may_stay = True
        substitution = Substitution(captured, captured)
        for place in places:
            tensors = tensors_in(place.value)
            moves = any(substitution.changes(x.uop) for x in tensors)
            if moves or any(is_uniform(x.uop) or self._below(x) for x in tensors):
                self._may_stay &= not moves and not place.is_appended and _is_stored(place.value)
                self._templates.append((place, self._template(place.value)))
            else:
                # results, views of them, and tensors that were there before: the same in each call
                self._same.append((place, place.value))
        self.places = [place for place, _ in self._templates]
        """The places that each call fills."""
        nodes = [node for x in others for node in self._below(x)]
        # the nodes of earlier calls in the memory that the next one writes
        self._earlier = [weakref.ref(x) for x in dict.fromkeys([*self._memory, *nodes])]
        found = [b for node in dict.fromkeys([*self._memory, *nodes]) for b in device_buffers(node)]
        self.memory = {b.base or b for b in found}
        """The memory that these tensors are in."""
        self._stand_ins = list(self._memory.values())
        self._memory.clear()
        self._latest: _Latest | None = None

    def _below(self, x: Tensor) -> list[UOp]:
        """The BUFFERs that a tensor reads and that a replay overwrites."""
        stored = [node for node in x.uop.toposort() if node.op is Ops.BUFFER and node.is_realized]
        return [x for x in stored if any((b.base or b) in self._written for b in device_buffers(x))]

    def _template(self, value: Any) -> Any:
        """A value with a `_Leaf` in the place of each tensor."""
        if not isinstance(value, Tensor):
            return map_leaves(self._template, value)
        for node in self._below(value):
            if node not in self._memory:
                self._memory[node] = _in_same_memory(node)
        return _Leaf(value.uop.substitute(self._memory), value.requires_grad)

    def make_room(self, inputs: Inputs) -> None:
        """Put tensors into all places for the next call to fill. What earlier calls left there, and
        anything still refers to, is copied.
        """
        for place, value in self._same:
            place.put(value)
        if self._latest is not None and self._latest.is_unused():
            return
        self._latest = None
        if self._templates or self._earlier:
            self._earlier = self._refilled(inputs)
        if self._may_stay and self._templates:
            self._latest = _Latest(self.places)

    def _refilled(self, inputs: Inputs) -> list[weakref.ref[UOp]]:
        """Put new tensors into all places, and copy what is in the memory of earlier ones that are
        still alive; returns the new nodes in that memory.
        """
        nodes = {node: _in_same_memory(node) for node in self._stand_ins}
        substitution = Substitution(self._captured, inputs)
        for place, template in self._templates:
            place.put(_filled(template, substitution, nodes))
        for ref in self._earlier:
            node = ref()
            if node is not None:
                _move_to_copy(node)
        return [weakref.ref(node) for node in nodes.values()]


def _is_stored(value: Any) -> bool:
    if not isinstance(value, Tensor):
        return False
    return is_uniform(value.uop) or view_base(value.uop).op is Ops.BUFFER


@dataclass(frozen=True)
class _Leaf:
    """A tensor to make for each call."""

    node: UOp
    requires_grad: bool | None


def _filled(template: Any, substitution: Substitution, nodes: dict[UOp, UOp]) -> Any:
    if isinstance(template, _Leaf):
        node = substitution.node(template.node, nodes)
        return Tensor(node, requires_grad=template.requires_grad)
    return map_leaves(lambda x: _filled(x, substitution, nodes), template)


class _Latest:
    """The tensors that the last call left in `places`."""

    def __init__(self, places: list[Place]) -> None:
        self._places = Places([place.link.renewed() for place in places])
        self._tensors: list[Tensor] = [place.value for place in places]
        memory = [view_base(x.uop) for x in self._tensors if not is_uniform(x.uop)]
        self._known = KnownReferences(self._tensors, memory)
        # those of its place, of this object, of `KnownReferences` and of `Places`
        self._count = FROM_A_LIST + 3

    def is_unused(self) -> bool:
        """Whether nothing but the places refers to them."""
        return (
            self._places.hold_same()
            and all(count == self._count for count in map(getrefcount, self._tensors))
            and self._known.are_all()
        )


def _in_same_memory(node: UOp) -> UOp:
    new = UOp.new_buffer(node.device, node.arg.shape, node.dtype)
    return bind_buffers(new, device_buffers(node))


def _move_to_copy(node: UOp) -> None:
    """Give a BUFFER memory of its own, with the same content."""
    copies = [Buffer(b.device, b.size, b.dtype) for b in device_buffers(node)]
    for copy, buffer in zip(copies, device_buffers(node), strict=True):
        copy_buffer(copy, buffer)
    bind_buffers(node, copies)
