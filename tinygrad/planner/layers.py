"""Which tensors share a layout: those at the same place of alike parts of a model.

In: the inputs of a function, any objects that hold tensors. Out: the tensors in groups of one
layout each, and the lists of alike parts, which can be made shorter for a while. Always true: the
tensors of a group have one shape and dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tinygrad.dtype import DType
from tinygrad.nn.optim import Optimizer
from tinygrad.nn.state import get_parameters, get_state_dict
from tinygrad.planner.optimizers import optimizers_in, parameters_of_state, without
from tinygrad.tensor import Tensor

# fewer parts of one matrix each may well differ: of two linear layers, one can be split along each
# axis
MANY = 8


@dataclass(frozen=True, eq=False)
class Group:
    """Tensors that have one layout: `name` has `*` for the numbers of alike parts.

    `is_data` if it is an argument of the function itself, not a part of one. `parameter` is the
    name of the group that this one is an optimizer's state of.
    """

    name: str
    tensors: Mapping[str, Tensor]
    is_data: bool
    parameter: str | None = None

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of each."""
        return next(iter(self.tensors.values())).shape

    @cached_property
    def dtype(self) -> DType:
        """The dtype of each."""
        return next(iter(self.tensors.values())).dtype


def group_tensors(inputs: Mapping[str, Any]) -> list[Group]:
    """The tensors of `inputs` in groups, each tensor once, under its first name outside of
    optimizers. What an optimizer keeps of a group of parameters is a group.
    """
    alike = set(alike_lists(inputs))
    parameters = _parameters_of_state(inputs)
    groups: dict[tuple[str, DType], dict[str, Tensor]] = {}
    names: dict[int, str] = {}
    owners: dict[str, str] = {}
    named = named_tensors(inputs).items()
    for name, tensor in sorted(named, key=lambda pair: id(pair[1]) in parameters):
        owner = parameters.get(id(tensor))
        if owner is None:
            pattern = _pattern(name, alike)
        else:
            optimizer, parameter = owner
            pattern = f"{optimizer} of {names[parameter]}"
            owners[pattern] = names[parameter]
        names[id(tensor)] = pattern
        groups.setdefault((pattern, tensor.dtype), {})[name] = tensor
    return [
        Group(name, tensors, name in inputs, owners.get(name))
        for (name, _), tensors in groups.items()
    ]


def named_tensors(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Each tensor once, those that are in optimizers alone last."""
    inside = tuple(f"{name}." for name in optimizers_in(inputs))
    named = get_state_dict(dict(inputs))
    found: dict[int, tuple[str, Tensor]] = {}
    for name in sorted(named, key=lambda name: name.startswith(inside)):
        found.setdefault(id(named[name]), (name, named[name]))
    return dict(found.values())


def _parameters_of_state(inputs: Mapping[str, Any]) -> dict[int, tuple[str, int]]:
    """For the id of each tensor of state, the optimizer's name and the id of the parameter."""
    return {
        id(state): (name, id(parameter))
        for name, optimizer in optimizers_in(inputs).items()
        for state, parameter in parameters_of_state(optimizer)
    }


def _pattern(name: str, alike: set[str]) -> str:
    """`name` with `*` in place of the positions in lists of alike parts."""
    parts: list[str] = []
    for part in name.split("."):
        parts.append("*" if ".".join(parts) in alike else part)
    return ".".join(parts)


def alike_lists(inputs: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The lists of alike parts by the pattern of their names; of those inside of alike parts, the
    first.
    """
    return dict(_lists_in(dict(inputs), (), set()))


def _lists_in(obj: Any, path: tuple[str, ...], above: set[int]) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(obj, Tensor | Optimizer) or id(obj) in above or not get_state_dict(obj):
        return
    above = above | {id(obj)}
    if isinstance(obj, list) and _are_alike(obj):
        yield ".".join(path), obj
        yield from _lists_in(obj[0], (*path, "*"), above)
        return
    if isinstance(obj, list | tuple):
        children: Mapping[Any, Any] = dict(enumerate(obj))
    else:
        children = obj if isinstance(obj, Mapping) else getattr(obj, "__dict__", {})
    for name, child in children.items():
        yield from _lists_in(child, (*path, str(name)), above)


def _are_alike(parts: Sequence[Any]) -> bool:
    """Whether parts are of one type with tensors of the same names, shapes and dtypes, and layers
    rather than single matrices.
    """
    kinds = [(type(part), _signature(part)) for part in parts]
    if len(parts) < 2 or any(kind != kinds[0] for kind in kinds[1:]):
        return False
    matrices = [shape for _, shape, _ in kinds[0][1] if len(shape) > 1]
    return len(matrices) > 1 or len(parts) > MANY


def _signature(part: Any) -> list[tuple[str, tuple[int, ...], DType]]:
    return [(name, x.shape, x.dtype) for name, x in get_state_dict(part).items()]


def repeated(inputs: Mapping[str, Any]) -> list[list[list[Any]]]:
    """Lists of alike parts that a shorter list can stand for, those of one length together."""
    by_length: dict[int, list[list[Any]]] = {}
    for name, parts in alike_lists(inputs).items():
        if "*" not in name and len(parts) > 2:
            by_length.setdefault(len(parts), []).append(parts)
    return list(by_length.values())


@contextmanager
def shortened(
    inputs: Mapping[str, Any], lists: Sequence[Sequence[list[Any]]], lengths: Sequence[int]
) -> Iterator[None]:
    """Inside of the block, the lists number i have only their first `lengths[i]` parts, and the
    optimizers of `inputs` know no others.
    """
    cut = [(parts, n) for group, n in zip(lists, lengths, strict=True) for parts in group]
    whole = [list(parts) for parts, _ in cut]
    removed = {id(x) for parts, n in cut for x in get_parameters(parts[n:])}
    removed -= {id(x) for parts, n in cut for x in get_parameters(parts[:n])}
    try:
        for parts, length in cut:
            del parts[length:]
        with without(optimizers_in(inputs).values(), removed):
            yield
    finally:
        for (parts, _), saved in zip(cut, whole, strict=True):
            parts[:] = saved
