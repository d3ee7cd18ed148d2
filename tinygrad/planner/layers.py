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
from tinygrad.nn.state import get_state_dict
from tinygrad.tensor import Tensor

# fewer parts of one matrix each may well differ: of two linear layers, one can be split along each
# axis
MANY = 8


@dataclass(frozen=True, eq=False)
class Group:
    """Tensors that have one layout: `name` has `*` for the numbers of alike parts.

    `is_data` if it is an argument of the function itself, not a part of one.
    """

    name: str
    tensors: Mapping[str, Tensor]
    is_data: bool

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of each."""
        return next(iter(self.tensors.values())).shape

    @cached_property
    def dtype(self) -> DType:
        """The dtype of each."""
        return next(iter(self.tensors.values())).dtype


def group_tensors(inputs: Mapping[str, Any]) -> list[Group]:
    """The tensors of `inputs` in groups, each tensor once, under its first name."""
    alike = set(alike_lists(inputs))
    groups: dict[str, dict[str, Tensor]] = {}
    seen: set[int] = set()
    for name, tensor in get_state_dict(dict(inputs)).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            groups.setdefault(_pattern(name, alike), {})[name] = tensor
    return [Group(name, tensors, name in inputs) for name, tensors in groups.items()]


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
    if isinstance(obj, Tensor) or id(obj) in above or not get_state_dict(obj):
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
def shortened(lists: Sequence[Sequence[list[Any]]], lengths: Sequence[int]) -> Iterator[None]:
    """Inside of the block, the lists number i have only their first `lengths[i]` parts."""
    cut = [(parts, n) for group, n in zip(lists, lengths, strict=True) for parts in group]
    whole = [list(parts) for parts, _ in cut]
    try:
        for parts, length in cut:
            del parts[length:]
        yield
    finally:
        for (parts, _), saved in zip(cut, whole, strict=True):
            parts[:] = saved
