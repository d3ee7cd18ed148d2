"""Templates: tensors that are new objects in each call, and how to make them.

Input: the tensors that the captured call left behind, and the inputs of another call. Output: the
tensors of that call. Invariant: aliases in the captured call are aliases in each call. So a view of
an argument is a view of that call's argument, and views of one value see each other's writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.jit.inputs import Inputs, leaves, map_leaves
from tinygrad.jit.replay.substitution import Substitution
from tinygrad.storage.aliases import note_stored, view_of
from tinygrad.storage.copy_on_write import mark_shared
from tinygrad.storage.views import view_base
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import ViewStep


@dataclass(eq=False)
class _Whole:
    """A value that several tensors are views of: argument number `argument`, or a new value."""

    node: UOp
    argument: int | None


@dataclass(eq=False)
class TensorTemplate:
    """A tensor to make for each call: its value `node` is the view by `steps` of `whole`; it has no
    aliases if `whole` is None.
    """

    node: UOp
    requires_grad: bool | None
    steps: tuple[ViewStep, ...] = ()
    whole: _Whole | None = None

    has_own_memory: bool = False
    """Whether a view of an argument has memory of its own, as a slice of a sharded axis has."""

    @property
    def is_of_argument(self) -> bool:
        """Whether it is a view of an argument."""
        return self.whole is not None and self.whole.argument is not None


class Templates:
    """A `TensorTemplate` for each tensor of `results` and `kept` that is new in each call.

    A tensor is new if `is_made(tensor)`, or if one of its aliases is new or an argument. Results
    have no history, so they do not require a gradient.
    """

    def __init__(
        self,
        captured: Inputs,
        results: Iterable[Tensor],
        kept: Collection[Tensor],
        is_made: Callable[[Tensor], bool],
    ) -> None:
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
            is_argument = any(key is value_key(x) for x in captured.tensors)
            if is_argument or any(is_made(x) for x, _ in group.values()):
                self._add(captured, group.values())
                if key in kept_keys:
                    self.staying.update(self._made[number] for number in group)

    def _add(self, captured: Inputs, aliases: Collection[tuple[Tensor, bool | None]]) -> None:
        whole: _Whole | None = None
        for x, requires_grad in aliases:
            argument = _argument_of(x, captured)
            if argument is not None:
                steps = x._steps[len(captured.tensors[argument]._steps) :]
                has_own_memory = view_base(x.uop) not in captured.nodes
                self._made[id(x)] = TensorTemplate(
                    x.uop, None, steps, _Whole(x.uop, argument), has_own_memory
                )
                continue
            if whole is None and x._aliases is not None and len(aliases) > 1:
                whole = _Whole(x._aliases.uop, None)
            self._made[id(x)] = TensorTemplate(x.uop, requires_grad, x._steps, whole)

    def of(self, value: Any) -> Any:
        """A nested value in which templates replace the tensors that are new in each call."""
        if isinstance(value, (Tensor, UOp)):
            return self._made.get(id(value), value)
        return map_leaves(self.of, value)

    def replace(self, change: Callable[[UOp], UOp]) -> None:
        """Change the nodes of all templates."""
        for x in self._made.values():
            x.node = change(x.node)
        for whole in {x.whole for x in self._made.values() if x.whole is not None}:
            whole.node = change(whole.node)


def is_new_in_each_call(template: Any) -> bool:
    """Whether a nested value has templates or bound Variables, so that each call has its own."""
    return any(isinstance(x, (TensorTemplate, UOp)) for x in leaves(template))


class CallTensors:
    """The tensors of one call, each made from its template once.

    `arguments` are the tensors that the call was given; none to make views of values alone.
    """

    def __init__(self, substitution: Substitution, arguments: Sequence[Tensor] = ()) -> None:
        self._substitution = substitution
        self._arguments = arguments
        self._wholes: dict[_Whole, Tensor] = {}
        self._memory: set[UOp] = set()
        self.made: dict[TensorTemplate, Tensor] = {}

    def fill(self, template: Any) -> Any:
        """A nested value with tensors of this call in the place of templates."""
        if isinstance(template, TensorTemplate):
            found = self.made.get(template)
            if found is None:
                found = self.made[template] = self._new(template)
            return found
        if isinstance(template, UOp):
            return self._substitution.node(template)
        return map_leaves(self.fill, template)

    def nodes_without(self, staying: Collection[TensorTemplate]) -> list[UOp]:
        """The nodes of the tensors made, but for templates in `staying` and memory of arguments."""
        return [
            x.uop
            for made, x in self.made.items()
            if made not in staying and (made.has_own_memory or not made.is_of_argument)
        ]

    def _new(self, template: TensorTemplate) -> Tensor:
        node, whole = self._substitution.node(template.node), template.whole
        base = None if whole is None else self._base(whole)
        if whole is None or base is None:
            return self._over(node, template.requires_grad)
        if template.is_of_argument and not template.steps:
            return base
        new = view_of(base, node, self._substitution.steps(template.steps))
        note_stored(new)
        if template.requires_grad is not None:
            new.requires_grad = template.requires_grad
        return new

    def _base(self, whole: _Whole) -> Tensor | None:
        if whole.argument is not None:
            return self._arguments[whole.argument] if self._arguments else None
        if whole not in self._wholes:
            self._wholes[whole] = self._over(self._substitution.node(whole.node), None)
        return self._wholes[whole]

    def _over(self, node: UOp, requires_grad: bool | None) -> Tensor:
        """A tensor that is no alias of others of this call, but may share memory with some."""
        memory = view_base(node)
        if memory in self._memory:
            mark_shared(memory)
        self._memory.add(memory)
        return Tensor(node, requires_grad=requires_grad)


def value_key(tensor: Tensor) -> Any:
    """A key that is equal for the views of one value: their alias group, or the only tensor."""
    return tensor if tensor._aliases is None else tensor._aliases


def _argument_of(tensor: Tensor, captured: Inputs) -> int | None:
    """The number of the argument that a tensor is a view of."""
    for i, x in enumerate(captured.tensors):
        if tensor is x:
            return i
        steps = x._steps
        is_alias = tensor._aliases is not None and tensor._aliases is x._aliases
        if is_alias and tensor._steps[: len(steps)] == steps:
            return i
    return None
