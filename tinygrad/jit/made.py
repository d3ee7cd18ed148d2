"""Made tensors: those that a replay makes anew, and the values that they are views of.

Input: tensors that the captured call left behind, and the inputs of another call. Output: the
tensors of that call. Invariant: tensors that are views of one value, or of an argument, in the
captured call are so in each call, so that they see each other's writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.jit.inputs import Inputs, leaves, map_leaves
from tinygrad.jit.substitution import Substitution
from tinygrad.storage.aliases import note_stored, view_of
from tinygrad.storage.copy_on_write import mark_shared
from tinygrad.storage.views import view_base
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import ViewStep


@dataclass(eq=False)
class _Whole:
    """A value that several tensors are views of: that of argument number `argument`, or new."""

    node: UOp
    argument: int | None


@dataclass(eq=False)
class Made:
    """A tensor to make for each call, with the value `node`: the view by `steps` of `whole`, or of
    nothing else.
    """

    node: UOp
    requires_grad: bool | None
    steps: tuple[ViewStep, ...] = ()
    whole: _Whole | None = None

    is_apart: bool = False
    """Whether it is a view of an argument in memory of its own, as a slice of a sharded axis is."""

    @property
    def is_of_argument(self) -> bool:
        """Whether it is a view of an argument."""
        return self.whole is not None and self.whole.argument is not None


class Templates:
    """What the captured call left behind: its values with a `Made` for each tensor to make.

    `results` and `kept` are all tensors in them. A tensor is made if `is_made`, or if one of its
    aliases is, or is an argument. Results have no history, so they do not require a gradient.
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
        self._made: dict[int, Made] = {}
        self.staying: set[Made] = set()
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
                is_apart = view_base(x.uop) not in captured.nodes
                self._made[id(x)] = Made(x.uop, None, steps, _Whole(x.uop, argument), is_apart)
                continue
            if whole is None and x._aliases is not None and len(aliases) > 1:
                whole = _Whole(x._aliases.uop, None)
            self._made[id(x)] = Made(x.uop, requires_grad, x._steps, whole)

    def of(self, value: Any) -> Any:
        """A value with the tensors to make replaced; others stay what they are."""
        if isinstance(value, (Tensor, UOp)):
            return self._made.get(id(value), value)
        return map_leaves(self.of, value)

    def replace(self, change: Callable[[UOp], UOp]) -> None:
        """Change the nodes that tensors are made of."""
        for x in self._made.values():
            x.node = change(x.node)
        for whole in {x.whole for x in self._made.values() if x.whole is not None}:
            whole.node = change(whole.node)


def is_anew(template: Any) -> bool:
    """Whether a template holds tensors to make, or bound Variables."""
    return any(isinstance(x, (Made, UOp)) for x in leaves(template))


class CallTensors:
    """The tensors of one call."""

    def __init__(self, substitution: Substitution, arguments: Sequence[Tensor] = ()) -> None:
        self._substitution = substitution
        self._arguments = arguments
        self._wholes: dict[_Whole, Tensor] = {}
        self._memory: set[UOp] = set()
        self.made: dict[Made, Tensor] = {}

    def fill(self, template: Any) -> Any:
        """A value with the tensors of this call."""
        if isinstance(template, Made):
            found = self.made.get(template)
            if found is None:
                found = self.made[template] = self._new(template)
            return found
        if isinstance(template, UOp):
            return self._substitution.node(template)
        return map_leaves(self.fill, template)

    def nodes_without(self, staying: Collection[Made]) -> list[UOp]:
        """The nodes of tensors that are neither among `staying` nor in the memory of arguments."""
        return [
            x.uop
            for made, x in self.made.items()
            if made not in staying and (made.is_apart or not made.is_of_argument)
        ]

    def _new(self, template: Made) -> Tensor:
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
    """What tensors that are views of one value have in common."""
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
