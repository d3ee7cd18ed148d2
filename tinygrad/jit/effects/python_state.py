"""Python values that a call changes: attributes, items, cells, and the content of containers.

Input: what a function reaches by name, and the containers among its arguments, before a call that
is captured. Output: the places in which the call left other values, tensors that a replay puts
there aside. Invariant: a call that changes Python values is not replayed, since the next one may
change them to others; the function runs again.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from tinygrad.device import Device
from tinygrad.dtype import dtypes
from tinygrad.jit.containers import attributes_and_slots
from tinygrad.jit.effects.places import Place
from tinygrad.jit.environment.guards import is_same_value
from tinygrad.jit.environment.inspection import is_library_name, module_of
from tinygrad.jit.environment.survey import Survey
from tinygrad.jit.inputs import comparable
from tinygrad.tensor import Tensor


class RecaptureWarning(UserWarning):
    """A captured function runs at each call, since a Python value that it uses is another one."""


class PythonState:
    """The Python values that a function reaches: those of `survey`, and `arguments`, the containers
    that it is given. Keeps no tensor alive.
    """

    def __init__(self, survey: Survey, arguments: Iterable[Any]) -> None:
        self._survey = survey
        known = [x for key, x in survey.known.items() if key not in survey.internals]
        followed = [x for x in known if _is_mutable(x)]
        given = [x for x in arguments if not isinstance(x, (tuple, frozenset))]
        self._items = [(x, _held_items(x)) for x in [*followed, *given]]
        links = [link for link in survey.links if not isinstance(link.holder, (dict, list, deque))]
        self._links = [(x, _held(x.value)) for x in links if not isinstance(x.holder, Tensor)]
        self._leaves = [(weakref.ref(x), x.requires_grad) for x in survey.tensors()]
        self._settings = _settings()

    def changes(self, places: Collection[Place]) -> list[str]:
        """What the call changed, as a program writes it, other than by putting tensors in
        `places`.
        """
        filled = {place.link.place for place in places}
        now = _settings()
        found = [name for name, old in self._settings.items() if now[name] != old]
        for link, old in self._links:
            if link.place not in filled and not _is_same(old, link.get_or_none()):
                found.append(str(link))
        for x, items in self._items:
            found += [self._path(x, key) for key in _changed(x, items, filled)]
        for x, content in self._survey.arrays:
            if comparable(x) != content:
                found.append(self._path(x))
        if any(
            (x := ref()) is not None and x.requires_grad is not old for ref, old in self._leaves
        ):
            found.append("requires_grad")
        return list(dict.fromkeys(found))

    def _path(self, x: Any, key: Any = None) -> str:
        """How a program writes an item of `x`, or of a list or set, all of it."""
        origin = str(self._survey.origins.get(id(x), "an argument"))
        if not isinstance(x, dict) and not isinstance(key, str):
            return origin
        if isinstance(x, dict) and "__builtins__" in x:
            return str(key)
        is_given = id(x) not in self._survey.origins and isinstance(x, dict)
        is_item = is_given or any(x is container for container, _ in self._survey.sizes)
        return f"{origin}[{key!r}]" if is_item else f"{origin}.{key}"


class _TensorRef(weakref.ref[Tensor]):
    """A tensor that was in a place, not kept alive."""


def _held(value: Any) -> Any:
    return _TensorRef(value) if isinstance(value, Tensor) else value


def _is_same(old: Any, new: Any) -> bool:
    return old() is new if isinstance(old, _TensorRef) else is_same_value(old, new)


def _is_mutable(x: Any) -> bool:
    """Whether an object holds items that are compared: a container, or a class of a program."""
    if isinstance(x, type):
        return not is_library_name(module_of(x))
    return isinstance(x, (dict, list, deque, set))


def _held_items(x: Any) -> dict[Any, Any]:
    return {key: _held(value) for key, value in _items(x)}


def _items(x: Any) -> Iterator[tuple[Any, Any]]:
    """What an object holds, by key or name. Names that Python itself sets are left out."""
    if isinstance(x, set):
        yield from ((comparable(value), value) for value in x)
    elif isinstance(x, (list, deque)):
        yield from enumerate(x)
    else:
        is_namespace = isinstance(x, type)
        items = vars(x) if is_namespace else x if isinstance(x, dict) else None
        for key, value in list(attributes_and_slots(x) if items is None else items.items()):
            if not (isinstance(key, str) and key.startswith("__")):
                yield key, value


def _changed(x: Any, old: dict[Any, Any], filled: Collection[tuple[int, Any]]) -> Iterator[Any]:
    """The keys of `x` that hold another value than `old` by now, and are not `filled`."""
    new = dict(_items(x))
    for key in {**old, **new}:
        is_same = key in old and key in new and _is_same(old[key], new[key])
        if not is_same and (id(x), key) not in filled:
            yield key


def _settings() -> dict[str, Any]:
    return {
        "Tensor.training": Tensor.training,
        "Device.DEFAULT": Device.DEFAULT,
        "dtypes.default_float": dtypes.default_float,
    }
