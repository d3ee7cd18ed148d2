"""Groups of tensors that share a layout: corresponding tensors of equal layers of a model.

Input: the inputs of a function, any objects that hold tensors. Output: groups of tensors, and the
lists of equal layers, which can be shortened temporarily. Invariant: the tensors of a group have
the same shape and dtype.
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

MIN_SINGLE_MATRIX_LAYERS = 8
"""The maximum length of a list of layers of one matrix each that is not grouped: the best layouts
of two consecutive linear layers differ."""


MAX_WHOLE_LAYERS = 4
"""The maximum length of a list of equal layers that is never shortened: shorter lists would take as
much work, as they are planned with two layers and with three."""


@dataclass(frozen=True, eq=False)
class Group:
    """Tensors that share a layout: `name` has `*` for the numbers of equal layers.

    `is_data` says that it is an argument of the function, not held by one. For an optimizer's
    state, `parameter` is the name of the group of its parameters.
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
    optimizers. An optimizer's state of a group of parameters is a group.
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
    """Each tensor once; those that only optimizers hold are last."""
    inside = tuple(f"{name}." for name in optimizers_in(inputs))
    named = get_state_dict(dict(inputs))
    found: dict[int, tuple[str, Tensor]] = {}
    for name in sorted(named, key=lambda name: name.startswith(inside)):
        found.setdefault(id(named[name]), (name, named[name]))
    return dict(found.values())


def _parameters_of_state(inputs: Mapping[str, Any]) -> dict[int, tuple[str, int]]:
    """The optimizer's name and the id of the parameter, by the id of each tensor of state."""
    return {
        id(state): (name, id(parameter))
        for name, optimizer in optimizers_in(inputs).items()
        for state, parameter in parameters_of_state(optimizer)
    }


def _pattern(name: str, alike: set[str]) -> str:
    """`name` with `*` for positions in lists of equal layers."""
    parts: list[str] = []
    for part in name.split("."):
        parts.append("*" if ".".join(parts) in alike else part)
    return ".".join(parts)


def alike_lists(inputs: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The lists of equal layers by the pattern of their names; of nested ones, those in the first
    layer.
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
    """Whether layers have one type and tensors of equal names, shapes and dtypes, and more than a
    single matrix.
    """
    kinds = [(type(part), _signature(part)) for part in parts]
    if len(parts) < 2 or any(kind != kinds[0] for kind in kinds[1:]):
        return False
    matrices = [shape for _, shape, _ in kinds[0][1] if len(shape) > 1]
    return len(matrices) > 1 or len(parts) > MIN_SINGLE_MATRIX_LAYERS


def _signature(part: Any) -> list[tuple[str, tuple[int, ...], DType]]:
    return [(name, x.shape, x.dtype) for name, x in get_state_dict(part).items()]


def repeated(inputs: Mapping[str, Any]) -> list[list[list[Any]]]:
    """Lists of equal layers that can be shortened, those of equal length together."""
    by_length: dict[int, list[list[Any]]] = {}
    for name, parts in alike_lists(inputs).items():
        if "*" not in name and len(parts) > MAX_WHOLE_LAYERS:
            by_length.setdefault(len(parts), []).append(parts)
    return list(by_length.values())


@contextmanager
def shortened(
    inputs: Mapping[str, Any], lists: Sequence[Sequence[list[Any]]], lengths: Sequence[int]
) -> Iterator[None]:
    """In the block, the lists number i have only their first `lengths[i]` layers, and the
    optimizers of `inputs` only the parameters of these.
    """
    pairs = zip(lists, lengths, strict=True)
    shortened_lists = [(parts, n) for group, n in pairs for parts in group]
    whole = [list(parts) for parts, _ in shortened_lists]
    removed = {id(x) for parts, n in shortened_lists for x in get_parameters(parts[n:])}
    removed -= {id(x) for parts, n in shortened_lists for x in get_parameters(parts[:n])}
    try:
        for parts, length in shortened_lists:
            del parts[length:]
        with without(optimizers_in(inputs).values(), removed):
            yield
    finally:
        for (parts, _), saved in zip(shortened_lists, whole, strict=True):
            parts[:] = saved
