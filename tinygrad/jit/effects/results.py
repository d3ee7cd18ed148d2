"""The outcome of a call: its result, and the tensors that the function keeps elsewhere.

Input: the result and the places of the captured call. Output: those of another call. Invariants:

- A result is the same object in each call, overwritten by each. It is a new object if it is a view
  of an argument, or if its size depends on a bound Variable.
- A tensor that the function keeps is not changed by later calls while anything but its place refers
  to it or to an alias.

Tensors refer to the memory that a replay writes, and not to a node of its content. That gets a node
when somebody asks for it; what was never asked for was never read.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tinygrad.device import Buffer
from tinygrad.execution.versions import bases_of, owner_of, set_owner
from tinygrad.jit.containers import may_change, tensors_in
from tinygrad.jit.effects.places import Place
from tinygrad.jit.effects.recording import Recording
from tinygrad.jit.effects.templates import (
    Calls,
    CallTensors,
    Templates,
    TensorTemplate,
    is_new_in_each_call,
    value_key,
)
from tinygrad.jit.inputs import Inputs
from tinygrad.jit.replay.substitution import Substitution
from tinygrad.storage.aliases import aliases_of
from tinygrad.storage.content import Content
from tinygrad.storage.live_tensors import Cell, live_tensors
from tinygrad.storage.views import is_uniform, view_base
from tinygrad.tensor import Tensor

R = TypeVar("R")


class _SameResult:
    """A tensor that each call returns. `owns_value`: whether the function created the tensor and
    all of its aliases.
    """

    def __init__(self, tensor: Tensor, owns_value: bool, calls: Calls) -> None:
        self._tensor = tensor
        self.cell = tensor._own_cell()
        self._steps = tensor._steps
        self._content = self.cell.note_content(self.cell.uop) if owns_value else None
        if self._content is not None:
            _name_borrowed(self.cell)
            self._content.named = calls.note_names(tensor._requires_grad)

    def restore(self) -> None:
        """Let the tensor be what it was in the captured call, whatever the caller did to it."""
        x, cell = self._tensor, self.cell
        if x._cell is not cell or x._steps is not self._steps:
            x._join(cell, self._steps)
        content = self._content
        if content is not None and (cell._node is not None or cell.content is not content):
            cell.refer_to(content)

    def name(self) -> None:
        """Let the tensor keep the content of memory that another one writes."""
        if self._content is not None:
            _name_borrowed(self.cell)


class Outcome(Generic[R]):
    """The result of a captured call, and what it left in `places` and as `gradients` of arguments.

    Args:
        others: the other live tensors that the function created.
        written: the memory that its items write, without that of tensors that were there before,
            and of results that are not kept.
        before: the ids of results that were there before.
        views_of_older: the ids of results that are aliases of tensors that were there before.
        older: the ids of objects that were there before.
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
        older: Container[int] = (),
    ) -> None:
        self._captured = captured
        self._written = written
        self._calls = Calls()
        results = tensors_in(result)
        kept = {id(x): x for place in places for x in tensors_in(place.value)}
        kept |= {id(x): x for x in gradients.values() if x is not None}
        self._templates = self._make_templates(results, kept.values(), gradients, views_of_older)
        self._result: R = self._templates.of(result, older)
        # the caller may change a list that it got
        self._is_new = is_new_in_each_call(self._result) or may_change(self._result)
        self._set_places(places, gradients)
        tensors = [*results, *kept.values()]
        made = [x for x in tensors if isinstance(self._templates.of(x), TensorTemplate)]
        same = {id(x): x for x in results if self._templates.of(x) is x and id(x) not in before}
        self._same_results = [
            _SameResult(x, id(x) not in views_of_older, self._calls)
            for x in same.values()
            if _is_stored(x) or id(x) in views_of_older
        ]
        contents = [Content(x.uop) for x in made]
        memory = [m for found in contents for m, _ in found.memory.values()]
        memory += [m for x in others for m, _ in Content(x.uop).memory.values() if m is not None]
        tokens = [t for found in contents for _, known in found.memory.values() for t in known]
        self.memory = self._written.intersection(
            [*(base for x in memory for base in bases_of(x)), *tokens]
        )
        """The memory that these tensors are in."""
        self.temporaries = self._written - self.memory
        """The memory whose content does not outlive a replay."""
        # the cells of tensors of earlier calls in the memory that the next one writes
        new = [x for x in made if not self._templates.of(x).is_of_argument]
        self._earlier = [weakref.ref(x._own_cell()) for x in [*new, *others] if _is_stored(x)]
        self.inputs = {
            number
            for number, known in enumerate(captured.memories)
            if any(m is known.memory for x in contents for m, _ in x.memory.values())
        }
        """The numbers of the inputs that tensors left behind read."""

    def _make_templates(
        self,
        results: Iterable[Tensor],
        kept: Collection[Tensor],
        gradients: Mapping[int, Tensor | None],
        views_of_older: Collection[int],
    ) -> Templates:
        """Templates of the tensors that cannot be the same objects in each call."""
        substitution = Substitution(self._captured, self._captured)
        left = {id(x) for x in gradients.values()}
        # a result may share memory with a tensor that is kept, of which it is no alias
        kept_memory = {base for x in kept for base in self._below(x)}

        def is_made(x: Tensor) -> bool:
            if id(x) in left or not kept_memory.isdisjoint(self._below(x)):
                return True
            if id(x) in views_of_older:
                # a view of an argument, or of a tensor that each call finds
                return False
            return is_uniform(x.uop) or substitution.changes(Content(x.uop))

        return Templates(self._captured, results, kept, is_made, self._calls)

    def _set_places(self, places: Sequence[Place], gradients: Mapping[int, Tensor | None]) -> None:
        """Separate the places that each call fills with new tensors from the others."""
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

    def _below(self, x: Tensor) -> set[Buffer]:
        """The memory of a tensor that a replay overwrites."""
        found = Content(x.uop).memory.values()
        known = {b for m, tokens in found if m is not None for b in (*bases_of(m), *tokens)}
        return self._written.intersection(known)

    def is_same(self, x: Tensor) -> bool:
        """Whether replays overwrite a tensor of the captured call, if it has memory of its own."""
        made = self._templates.of(x)
        return made is x or (made not in self._templates.staying and not made.is_of_argument)

    def is_result(self, x: Tensor | None) -> bool:
        """Whether a tensor is a view of a value that each replay returns in the same object."""
        return x is not None and any(x._cell is same.cell for same in self._same_results)

    def captured_result(self) -> R:
        """The result with tensors over the memory of the captured call."""
        substitution = Substitution(self._captured, self._captured)
        result: R = CallTensors(substitution).fill(self._result)
        return result

    def prepare(self, inputs: Inputs) -> CallTensors | None:
        """Before a replay, let go of what earlier calls left in the memory that it writes; what
        anything else refers to keeps its content. Tensors for the replay to fill, if there are any,
        are put in all places.
        """
        for x in self._same_results:
            x.restore()
        for place, value in self._same:
            place.put(value)
        if not (self._is_new or self._filled or self._gradients or self._earlier):
            return None
        call = CallTensors(Substitution(self._captured, inputs), inputs.tensors)
        for place, template in self._filled:
            place.put(call.fill(template))
        for number, template in self._gradients.items():
            inputs.given[number].grad = call.fill(template)
        if self._earlier:
            for ref in self._earlier:
                cell = ref()
                if cell is not None and cell.live():
                    cell.leave_memory()
            self._earlier.clear()
        return call

    def finish(self, call: CallTensors | None) -> R:
        """The result, once the replay has run."""
        self._calls.last = live_tensors.now()
        for x in self._same_results:
            x.name()
        if call is None:
            return self._result
        result: R = call.fill(self._result) if self._is_new else self._result
        for cell in call.cells():
            _name_borrowed(cell)
            self._earlier.append(weakref.ref(cell))
        return result


def outcome_of(result: R, recording: Recording, written: set[Buffer], inputs: Inputs) -> Outcome[R]:
    """What a recorded call left behind; `written` is the memory that its items write."""
    results = tensors_in(result)
    kept = [x for place in recording.places for x in tensors_in(place.value)]
    kept += [x for x in recording.gradients.values() if x is not None]
    keys, memory = {value_key(x) for x in kept}, {view_base(x.uop) for x in kept}
    apart = [x for x in results if value_key(x) not in keys and view_base(x.uop) not in memory]
    own = written - recording.known_memory(apart, written) - inputs.memory
    others = [
        x
        for x in recording.created([*results, *recording.left()])
        if all(map(recording.has_created, aliases_of(x)))
    ]
    before = {id(x) for x in results if not recording.has_created(x)}
    older = {id(x) for x in results if not all(map(recording.has_created, aliases_of(x)))}
    known = recording.before.known
    return Outcome(
        result, recording.places, recording.gradients, others, own, inputs, before, older, known
    )


def _name_borrowed(cell: Cell) -> None:
    """Name the content of a cell in memory that another cell writes, so that it keeps it."""
    content = cell.content
    if content is None:
        return
    for memory, tokens in content.memory.values():
        owner = owner_of(memory)
        if owner is None:
            set_owner(memory, tokens, cell)
        elif owner is not cell:
            _ = cell.uop
            return


def _is_stored(x: Tensor) -> bool:
    return not is_uniform(x.uop)
