"""Containers: values that hold others, in arguments, in results and where a function keeps them.

Input: nested lists, tuples, dicts, sets, deques, dataclasses, namespaces, and classes that
`register_container` adds. Output: their leaves, and copies with other leaves. Invariant: a copy has
the type, the attributes and the order of the original, and no code of its class runs for it, unless
it is a registered one.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any, TypeVar

from tinygrad.jit.environment.inspection import (
    attributes_of,
    is_library_name,
    module_of,
    slots_of,
)
from tinygrad.tensor import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class ContainerKind:
    """How to take containers of a type apart, and to make others."""

    values: Callable[[Any], list[Any]]
    """What a container holds, in order."""
    rebuild: Callable[[Any, list[Any]], Any]
    """A new container like this one that holds these values."""
    names: Callable[[Any], list[Any]] = lambda x: []
    """What a function may tell two containers apart by, other than the values, such as keys."""
    may_change: bool = True
    """Whether a container may hold other values later."""


def register_container(
    kind: type[T],
    values: Callable[[T], list[Any]],
    rebuild: Callable[[T, list[Any]], T],
) -> None:
    """Let captured functions take and return objects of class `kind` that hold tensors.

    `values(x)` lists what `x` holds: tensors, numbers, or other containers. `rebuild(x, new)` makes
    an object like `x` that holds `new` in their place. Subclasses are not registered with it.
    Lists, tuples, dicts, sets, deques, dataclasses, `attrs` classes and namespaces need no call.

    >>> class Pair:
    ...     def __init__(self, first, second):
    ...         self.first, self.second = first, second
    >>> register_container(Pair, lambda x: [x.first, x.second], lambda x, new: Pair(*new))
    >>> twice = TinyJit(lambda x: Pair(x, x * 2))
    >>> [twice(Tensor([i])).second.item() for i in range(4)]
    [0, 2, 4, 6]
    """
    _kinds[kind] = ContainerKind(lambda x: list(values(x)), rebuild)


def kind_of(kind: type) -> ContainerKind | None:
    """How to take values of a type apart; None for leaves."""
    try:
        return _kinds[kind]
    except KeyError:
        found = _kinds[kind] = _find_kind(kind)
        return found


def _find_kind(kind: type) -> ContainerKind | None:
    for base, found in _ITEMS.items():
        if issubclass(kind, base):
            return found if kind is base else _with_attributes(found)
    if issubclass(kind, _namespaces()):
        return _OBJECT
    is_record = is_dataclass(kind) or hasattr(kind, "__attrs_attrs__")
    if is_record and not issubclass(kind, Enum) and not is_library_name(module_of(kind)):
        return _OBJECT
    return None


def _namespaces() -> tuple[type, ...]:
    """The classes of namespaces; that of a module that was not imported has no objects."""
    parsed = sys.modules.get("argparse")
    return (SimpleNamespace,) if parsed is None else (SimpleNamespace, parsed.Namespace)


def leaves(x: Any, containers: list[tuple[Any, int]] | None = None) -> list[Any]:
    """The leaves of nested containers; the keys of dicts and the names of attributes are leaves
    too. A container in itself is a leaf.

    The containers are added to `containers`, each before those in it, with the number of values.
    """
    found: list[Any] = []
    _collect(x, found, [] if containers is None else containers, [])
    return found


def _collect(
    x: Any, found: list[Any], containers: list[tuple[Any, int]], around: list[int]
) -> None:
    kind = kind_of(type(x))
    if kind is None or id(x) in around:
        found.append(x)
        return
    values = kind.values(x)
    containers.append((x, len(values)))
    found += kind.names(x)
    around.append(id(x))
    for value in values:
        _collect(value, found, containers, around)
    around.pop()


def tensors_in(x: Any) -> list[Tensor]:
    """The tensors in nested containers."""
    if isinstance(x, Tensor):
        return [x]
    return [leaf for leaf in leaves(x) if isinstance(leaf, Tensor)]


def map_leaves(function: Callable[[Any], Any], x: Any) -> Any:
    """`x`, if it is a container, with `function` applied to each value in it; else `x`."""
    kind = kind_of(type(x))
    if kind is None:
        return x
    old = kind.values(x)
    new = [function(value) for value in old]
    if not kind.may_change and all(a is b for a, b in zip(old, new, strict=True)):
        return x
    return kind.rebuild(x, new)


def may_change(x: Any) -> bool:
    """Whether a caller may change a nested value, or a container in it."""
    containers: list[tuple[Any, int]] = []
    leaves(x, containers)
    kinds = [kind_of(type(y)) for y, _ in containers]
    return any(kind is None or kind.may_change for kind in kinds)


# ---- classes ----


def _new(x: Any) -> Any:
    """An empty object of the class of `x`, made by the type of C that it is based on."""
    base = _base_of(type(x))
    return base.__new__(type(x))


def _base_of(kind: type) -> Any:
    is_heap_type = 1 << 9
    return next(base for base in kind.__mro__ if not base.__flags__ & is_heap_type)


def attributes_and_slots(x: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object, with their names."""
    attributes = attributes_of(x)
    if attributes is not None and attributes is not x:
        yield from attributes.items()
    yield from slots_of(x)


def _set_attributes(x: Any, new: Any, values: list[Any]) -> Any:
    attributes = attributes_of(x)
    if attributes is not None and attributes is x:
        # a dict whose items are its attributes
        object.__setattr__(new, "__dict__", new)
    for (name, _), value in zip(attributes_and_slots(x), values, strict=True):
        if attributes is not None and name in attributes:
            new.__dict__[name] = value
        else:
            object.__setattr__(new, name, value)
    return new


def _with_attributes(kind: ContainerKind) -> ContainerKind:
    """The kind of a subclass, whose objects may also have attributes."""

    def rebuild(x: Any, values: list[Any]) -> Any:
        count = len(kind.values(x))
        return _set_attributes(x, kind.rebuild(x, values[:count]), values[count:])

    return ContainerKind(
        lambda x: [*kind.values(x), *(value for _, value in attributes_and_slots(x))],
        rebuild,
        lambda x: [*kind.names(x), *(name for name, _ in attributes_and_slots(x))],
        kind.may_change,
    )


def _rebuild_dict(x: dict[Any, Any], values: list[Any]) -> Any:
    base = _base_of(type(x))
    if base is dict and type(x) is dict:
        return dict(zip(x, values, strict=True))
    new = _new(x)
    if isinstance(x, defaultdict):
        new.default_factory = x.default_factory
    for key, value in zip(x, values, strict=True):
        base.__setitem__(new, key, value)
    return new


def _rebuild_list(x: list[Any], values: list[Any]) -> Any:
    new = _new(x)
    list.extend(new, values)
    return new


def _rebuild_deque(x: deque[Any], values: list[Any]) -> Any:
    new = _new(x)
    deque.__init__(new, values, x.maxlen)
    return new


def _rebuild_set(x: set[Any], values: list[Any]) -> Any:
    new = _new(x)
    set.update(new, values)
    return new


_ITEMS: dict[type, ContainerKind] = {
    list: ContainerKind(list, _rebuild_list),
    # a named tuple, too
    tuple: ContainerKind(list, lambda x, values: tuple.__new__(type(x), values), may_change=False),
    dict: ContainerKind(lambda x: list(x.values()), _rebuild_dict, list),
    deque: ContainerKind(list, _rebuild_deque),
    set: ContainerKind(list, _rebuild_set),
    frozenset: ContainerKind(
        list, lambda x, values: frozenset.__new__(type(x), values), may_change=False
    ),
}
# by class; those that were registered, and those that were met
_kinds: dict[type, ContainerKind | None] = {}
_OBJECT = ContainerKind(
    lambda x: [value for _, value in attributes_and_slots(x)],
    lambda x, values: _set_attributes(x, _new(x), values),
    lambda x: [name for name, _ in attributes_and_slots(x)],
)
