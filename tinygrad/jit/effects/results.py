"""The outcome of a call: its result, and the tensors that the function keeps elsewhere.

Input: the result and the places of the captured call. Output: those of another call, made before
its replay, which computes their content. Invariants:

- A result is the same object in each call, overwritten by each. It is a new object if it is a view
  of an argument, or if its size depends on a bound Variable.
- A tensor that the function keeps is not changed by later calls while anything but its place refers
  to it or to an alias.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from sys import getrefcount
from typing import Any, Generic, TypeVar

from tinygrad.device import Buffer
from tinygrad.execution.buffers import (
    bind_buffers,
    copy_of,
    device_buffers,
    memory_of,
    set_tokens,
    tokens_of,
)
from tinygrad.jit.effects.known_references import FROM_A_LIST, KnownReferences
from tinygrad.jit.effects.persistent_results import PersistentResult, restore_all
from tinygrad.jit.effects.places import Place
from tinygrad.jit.effects.recording import Recording, is_within
from tinygrad.jit.effects.templates import (
    CallTensors,
    Templates,
    TensorTemplate,
    is_new_in_each_call,
    value_key,
)
from tinygrad.jit.environment.guards import GuardedPlaces
from tinygrad.jit.inputs import Inputs, tensors_in
from tinygrad.jit.replay.substitution import Substitution
from tinygrad.storage.aliases import aliases_of
from tinygrad.storage.copy_on_write import mark_shared
from tinygrad.storage.views import is_uniform, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

R = TypeVar("R")


class Outcome(Generic[R]):
    """The result of a captured call, and what it left in `places` and as `gradients` of arguments.

    Args:
        others: the other live tensors that the function created.
        written: the memory that its items write, without that of tensors that were there before,
            and of results that are not kept.
        before: the ids of results that were there before.
        views_of_older: the ids of results that are aliases of tensors that were there before.
    """

    def __init__(
        self,
        result: R,
        places: Sequence[Place],
        gradients: Mapping[int, Tensor | None],
        others: Iterable[Tensor],
        written: set[Buffer],
        captured: Inputs,
        before: Collection[int] = (),
        views_of_older: Collection[int] = (),
    ) -> None:
        self._captured = captured
        self._written = written
        results = tensors_in(result)
        kept = {id(x): x for place in places for x in tensors_in(place.value)}
        kept |= {id(x): x for x in gradients.values() if x is not None}
        self._templates = self._make_templates(results, kept.values(), gradients)
        self._result: R = self._templates.of(result)
        self._is_new = is_new_in_each_call(self._result)
        self._set_places(places, gradients)
        tensors = [*results, *kept.values()]
        made = [x for x in tensors if isinstance(self._templates.of(x), TensorTemplate)]
        self._set_memory(made, others)
        same = {id(x): x for x in results if self._templates.of(x) is x and id(x) not in before}
        self._persistent = [PersistentResult(x, id(x) not in views_of_older) for x in same.values()]
        self._latest: _Latest | None = None
        self.inputs = {
            number
            for number, node in enumerate(captured.nodes)
            if any(node in x.uop.toposort() for x in made)
        }
        """The numbers of the inputs that tensors left behind read."""
        self.overwritten = [x.uop for x in results if self._is_apart(x)]
        """The nodes of results that the last call made and that the next one overwrites."""

    def _make_templates(
        self,
        results: Iterable[Tensor],
        kept: Collection[Tensor],
        gradients: Mapping[int, Tensor | None],
    ) -> Templates:
        """Templates of the tensors that cannot be the same objects in each call."""
        substitution = Substitution(self._captured, self._captured)
        left = {id(x) for x in gradients.values()}
        # a result may share memory with a tensor that is kept, of which it is no alias
        kept_memory = {node for x in kept for node in self._below(x)}

        def is_made(x: Tensor) -> bool:
            is_filled = not kept_memory.isdisjoint(self._below(x))
            is_new = id(x) in left or is_uniform(x.uop) or is_filled
            return is_new or substitution.changes(x.uop)

        return Templates(self._captured, results, kept, is_made)

    def _set_places(self, places: Sequence[Place], gradients: Mapping[int, Tensor | None]) -> None:
        """Separate the places that each call fills with new tensors from the others."""
        substitution = Substitution(self._captured, self._captured)
        self._filled: list[tuple[Place, Any]] = []
        # tensors that were there before, and results that are the same in each call
        self._same: list[tuple[Place, Any]] = []
        for place in places:
            template = self._templates.of(place.value)
            places_of_kind = self._filled if is_new_in_each_call(template) else self._same
            places_of_kind.append((place, template))
        self._gradients = {i: self._templates.of(x) for i, x in gradients.items()}
        self.places = [place for place, _ in self._filled]
        """The places that each call fills."""
        self._may_stay = not gradients and all(
            not place.is_appended
            and _is_stored(place.value)
            and not substitution.changes(place.value.uop)
            for place in self.places
        )
        self._may_stay &= not any(x.is_of_argument for x in self._templates.staying)

    def _set_memory(self, made: Iterable[Tensor], others: Iterable[Tensor]) -> None:
        """Let templates refer to BUFFERs of their own in the memory of the captured call."""
        memory = {node: _in_same_memory(node) for x in made for node in self._below(x)}
        self._templates.replace(lambda node: node.substitute(memory))
        self._stand_ins = list(memory.values())
        # the nodes of earlier calls in the memory that the next one writes
        nodes = dict.fromkeys([*memory, *(node for x in others for node in self._below(x))])
        self._earlier = [weakref.ref(node) for node in nodes]
        self.memory = {b for node in nodes for b in memory_of(node)}
        """The memory that these tensors are in."""
        self.temporaries = self._written - self.memory
        """The memory whose content does not outlive a replay."""

    def _below(self, x: Tensor) -> list[UOp]:
        """The BUFFERs that a tensor reads and that a replay overwrites."""
        stored = [node for node in x.uop.toposort() if node.op is Ops.BUFFER and node.is_realized]
        return [node for node in stored if is_within(node, self._written)]

    def _is_apart(self, x: Tensor) -> bool:
        made = self._templates.of(x)
        return (
            isinstance(made, TensorTemplate)
            and made.has_own_memory
            and made not in self._templates.staying
        )

    def references(self) -> Counter[UOp]:
        """How often this object refers to nodes of results."""
        return sum((x.references() for x in self._persistent), Counter())

    def is_same(self, x: Tensor) -> bool:
        """Whether replays overwrite a tensor of the captured call, if it has memory of its own."""
        made = self._templates.of(x)
        return made is x or (made not in self._templates.staying and not made.is_of_argument)

    def captured_result(self) -> R:
        """The result with tensors over the memory of the captured call."""
        substitution = Substitution(self._captured, self._captured)
        result: R = CallTensors(substitution).fill(self._result)
        return result

    def of(self, inputs: Inputs) -> R:
        """The result of the next call. Tensors for it to fill are put in all places; what earlier
        calls left there is copied first, if anything still refers to it.
        """
        for x in self._persistent:
            if not x.is_restored():
                restore_all(self._persistent)
                break
        for place, value in self._same:
            place.put(value)
        stays = self._latest is not None and self._latest.is_unused()
        fills = self._filled or self._gradients or self._earlier
        if not self._is_new and (stays or not fills):
            return self._result
        nodes = {} if stays else {node: _in_same_memory(node) for node in self._stand_ins}
        call = CallTensors(Substitution(self._captured, inputs, nodes), inputs.tensors)
        if stays and self._latest is not None:
            call.made.update(self._latest.made)
            return self._filled_result(call)
        self._latest = None
        for place, template in self._filled:
            place.put(call.fill(template))
        for number, template in self._gradients.items():
            grad = inputs.given[number].grad = call.fill(template)
            if grad is not None:
                # it may be the memory of another tensor
                mark_shared(grad.uop)
        for ref in self._earlier:
            node = ref()
            if node is not None:
                _move_to_copy(node)
        self._earlier = [weakref.ref(node) for node in nodes.values()]
        result = self._filled_result(call)
        if self._may_stay and self._filled:
            made = {x: call.made[x] for x in self._templates.staying if x in call.made}
            self._latest = _Latest(self.places, made)
        return result

    def _filled_result(self, call: CallTensors) -> R:
        if not self._is_new:
            return self._result
        result: R = call.fill(self._result)
        self.overwritten = call.nodes_without(self._templates.staying)
        return result


def outcome_of(result: R, recording: Recording, written: set[Buffer], inputs: Inputs) -> Outcome[R]:
    """What a recorded call left behind; `written` is the memory that its items write."""
    results = tensors_in(result)
    kept = [x for place in recording.places for x in tensors_in(place.value)]
    kept += [x for x in recording.gradients.values() if x is not None]
    keys, memory = {value_key(x) for x in kept}, {view_base(x.uop) for x in kept}
    apart = [x for x in results if value_key(x) not in keys and view_base(x.uop) not in memory]
    own = written - recording.known_memory(apart) - inputs.memory
    others = recording.created([*results, *recording.left()])
    before = {id(x) for x in results if not recording.has_created(x)}
    older = {id(x) for x in results if not all(map(recording.has_created, aliases_of(x)))}
    return Outcome(
        result, recording.places, recording.gradients, others, own, inputs, before, older
    )


def _is_stored(value: Any) -> bool:
    if not isinstance(value, Tensor):
        return False
    return is_uniform(value.uop) or view_base(value.uop).op is Ops.BUFFER


class _Latest:
    """The tensors that the last call left in `places`, and those `made` with them."""

    def __init__(self, places: Sequence[Place], made: dict[TensorTemplate, Tensor]) -> None:
        self.made = made
        self._places = GuardedPlaces([place.link.renewed() for place in places])
        self._tensors: list[Tensor] = [place.value for place in places]
        tensors = [*self._tensors, *made.values()]
        memory = [view_base(x.uop) for x in tensors if not is_uniform(x.uop)]
        self._known = KnownReferences(tensors, memory)
        # of its place, this object, its `made`, `KnownReferences` and `GuardedPlaces`
        self._count = FROM_A_LIST + 4

    def is_unused(self) -> bool:
        """Whether nothing but the places refers to these tensors, so that a call may reuse them."""
        return (
            self._places.hold_same()
            and all(count == self._count for count in map(getrefcount, self._tensors))
            and self._known.are_all()
        )


def _in_same_memory(node: UOp) -> UOp:
    new = UOp.new_buffer(node.device, node.arg.shape, node.dtype)
    set_tokens(new, tokens_of(node))
    return bind_buffers(new, device_buffers(node))


def _move_to_copy(node: UOp) -> None:
    """Give a BUFFER memory of its own, with the same content."""
    copy = copy_of(node)
    bind_buffers(node, device_buffers(copy))
    set_tokens(node, tokens_of(copy))
