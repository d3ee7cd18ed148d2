"""Templates: tensors that are new objects in each call, and how to make them.

Input: the tensors that the captured call left behind, and the inputs of another call. Output: the
tensors of that call. Invariant: aliases in the captured call are aliases in each call. So a view of
an argument is a view of that call's argument, and views of one value see each other's writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.jit.containers import kind_of, leaves, map_leaves
from tinygrad.jit.inputs import Inputs
from tinygrad.jit.replay.substitution import Substitution
from tinygrad.storage.content import Content
from tinygrad.storage.gradients.grad_mode import GradState, Leaf
from tinygrad.storage.gradients.history import histories
from tinygrad.storage.live_tensors import Cell, live_tensors
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import ViewStep


class Calls:
    """When a captured function was last called, in the count of `live_tensors.now`."""

    def __init__(self) -> None:
        self.last = live_tensors.now()

    def note_names(self, state: GradState) -> Callable[[Iterable[UOp]], None]:
        """What to do with BUFFERs that results get when somebody asks for them: they have no
        history.
        """
        requires_grad = None if state is None else bool(state)
        return lambda buffers: histories.captured_in(buffers, requires_grad, self.last)


@dataclass(eq=False)
class _Whole:
    """A value that several tensors are views of: that of argument number `argument`, or what is in
    memory.
    """

    content: Content
    argument: int | None = None


@dataclass(eq=False)
class TensorTemplate:
    """A tensor to make for each call: the view by `steps` of `whole`."""

    whole: _Whole
    steps: tuple[ViewStep, ...]
    requires_grad: bool | None

    @property
    def is_of_argument(self) -> bool:
        """Whether it is a view of an argument."""
        return self.whole.argument is not None


class Templates:
    """A `TensorTemplate` for each tensor of `results` and `kept` that is new in each call.

    A tensor is new if it is a view of an argument, or if it or one of its aliases `is_made`.
    Results have no history, so they do not require a gradient.
    """

    def __init__(
        self,
        captured: Inputs,
        results: Iterable[Tensor],
        kept: Collection[Tensor],
        is_made: Callable[[Tensor], bool],
        calls: Calls,
    ) -> None:
        self._calls = calls
        groups: dict[Any, dict[int, tuple[Tensor, bool | None]]] = {}
        for x in results:
            groups.setdefault(value_key(x), {})[id(x)] = x, None
        for x in kept:
            groups.setdefault(value_key(x), {})[id(x)] = x, x.requires_grad
        self._made: dict[int, TensorTemplate] = {}
        self.staying: set[TensorTemplate] = set()
        """The tensors that are kept, and their aliases."""
        kept_keys = {value_key(x) for x in kept}
        for key, group in groups.items():
            new = group
            if not any(is_made(x) for x, _ in group.values()):
                new = {i: x for i, x in group.items() if _argument_of(x[0], captured) is not None}
            self._add(captured, new.values())
            if key in kept_keys:
                self.staying.update(self._made[number] for number in new)

    def _add(self, captured: Inputs, aliases: Collection[tuple[Tensor, bool | None]]) -> None:
        whole: _Whole | None = None
        for x, requires_grad in aliases:
            argument = _argument_of(x, captured)
            if argument is not None:
                steps = x._steps[len(captured.tensors[argument]._steps) :]
                self._made[id(x)] = TensorTemplate(_Whole(Content(x.uop), argument), steps, None)
                continue
            if x._cell is None or len(aliases) == 1:
                own, steps = _Whole(Content(x.uop)), ()
            else:
                own = whole = whole or _Whole(Content(x._cell.uop))
                steps = x._steps
            own.content.named = self._calls.note_names(x._requires_grad)
            self._made[id(x)] = TensorTemplate(own, steps, requires_grad)

    def of(self, value: Any, older: Container[int] = ()) -> Any:
        """A nested value in which templates replace the tensors that are new in each call.

        Containers that are older than the call, by id, are the same in each.
        """
        if isinstance(value, (Tensor, UOp)):
            return self._made.get(id(value), value)
        if id(value) in older and kind_of(type(value)) is not None:
            return _Older(value)
        return map_leaves(lambda x: self.of(x, older), value)


@dataclass(eq=False)
class _Older:
    """A container that is older than the captured call, and that each call returns itself."""

    value: Any


def is_new_in_each_call(template: Any) -> bool:
    """Whether a nested value has templates or bound Variables, so that each call has its own."""
    return any(isinstance(x, (TensorTemplate, UOp, _Older)) for x in leaves(template))


class CallTensors:
    """The tensors of one call, each made from its template once.

    `arguments` are the tensors that the call was given; none to make views of values alone.
    """

    def __init__(self, substitution: Substitution, arguments: Sequence[Tensor] = ()) -> None:
        self._substitution = substitution
        self._arguments = arguments
        self._cells: dict[_Whole, Cell] = {}
        self.made: dict[TensorTemplate, Tensor] = {}

    def fill(self, template: Any) -> Any:
        """A nested value with tensors of this call in the place of templates."""
        if isinstance(template, TensorTemplate):
            found = self.made.get(template)
            if found is None:
                found = self.made[template] = self._new(template)
            return found
        if isinstance(template, _Older):
            return template.value
        if isinstance(template, UOp):
            return self._substitution.node(template)
        return map_leaves(self.fill, template)

    def cells(self) -> list[Cell]:
        """The cells of new values."""
        return list(self._cells.values())

    def _new(self, template: TensorTemplate) -> Tensor:
        whole, steps = template.whole, self._substitution.steps(template.steps)
        if whole.argument is not None:
            if not self._arguments:
                return Tensor(self._substitution.content(whole.content).node())
            base = self._arguments[whole.argument]
            if not steps:
                return base
            derived = base._requires_grad and True
            return Tensor._member(base._own_cell(), (*base._steps, *steps), derived)
        cell = self._cells.get(whole)
        if cell is None:
            cell = self._cells[whole] = Cell.over(self._substitution.content(whole.content))
        state: GradState = template.requires_grad
        if state and whole.content.memory:
            # without a node, as that would name what the replay is about to overwrite; and no guard
            # of a capture knows the new tensor, so that this is no change of marks
            state = Leaf(live_tensors.now())
        new = Tensor._member(cell, steps, None if state is True else state)
        if state is True:
            new.requires_grad = True
        return new


def value_key(tensor: Tensor) -> Any:
    """A key that is equal for the views of one value: their cell, or the only tensor."""
    return tensor if tensor._cell is None else tensor._cell


def _argument_of(tensor: Tensor, captured: Inputs) -> int | None:
    """The number of the argument that a tensor is a view of: of several, by the fewest steps."""
    found: int | None = None
    length = -1
    for i, x in enumerate(captured.tensors):
        if tensor is x:
            return i
        steps = x._steps
        is_alias = tensor._cell is not None and tensor._cell is x._cell
        if is_alias and len(steps) > length and tensor._steps[: len(steps)] == steps:
            found, length = i, len(steps)
    return found
