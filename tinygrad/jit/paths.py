"""Paths: the places where a function found what it used, checked before each replay.

Input: links, as they were before a capture. Output: whether the function would find the same
tensors, numbers and objects there. Invariant: what is unchanged is compared by identity in a few
calls of C; numbers are compared by value where the objects differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter, is_, itemgetter
from typing import Any, Self

from tinygrad.jit.inputs import comparable
from tinygrad.jit.links import Kind, Link
from tinygrad.tensor import Tensor

# with at least this many places, a container is read at once
_MANY = 4


class Paths:
    """The `links` to check, the lengths of containers, the content of arrays, and attributes that
    must be `absent`.

    Of a tensor that is not among `used`, by id, only shape, dtype and device matter.
    """

    def __init__(
        self,
        links: Iterable[Link],
        sizes: Sequence[tuple[Any, int]],
        arrays: Sequence[tuple[Any, Any]],
        used: set[int],
        absent: Sequence[tuple[dict[str, Any], str]] = (),
    ) -> None:
        self._used = used
        self._absent = absent
        self._places = Places(links)
        self._containers = [x for x, _ in sizes]
        self._sizes = [size for _, size in sizes]
        self._arrays = arrays

    def are_unchanged(self) -> bool:
        """Whether every place holds what it held."""
        if list(map(len, self._containers)) != self._sizes:
            return False
        if not self._places.hold_same(self._is_alike):
            return False
        if any(name in attributes for attributes, name in self._absent):
            return False
        return all(comparable(x) == content for x, content in self._arrays)

    def _is_alike(self, old: Any, new: Any) -> bool:
        """Whether another object in the place of the known one makes no difference."""
        if isinstance(old, Tensor):
            if id(old) in self._used or not isinstance(new, Tensor):
                return False
            return (old.shape, old.dtype, old.device) == (new.shape, new.dtype, new.device)
        if isinstance(old, (list, tuple)) and type(old) is type(new) and len(old) == len(new):
            pairs = zip(old, new, strict=True)
            return all(b is a or self._is_alike(a, b) for a, b in pairs)
        return bool(comparable(old) == comparable(new))


class Places:
    """Places, and the values that are there."""

    def __init__(self, links: Iterable[Link]) -> None:
        by_holder: dict[tuple[int, Kind], list[Link]] = {}
        for link in links:
            by_holder.setdefault((id(link.holder), link.kind), []).append(link)
        self._groups: list[_Group] = []
        by_key: dict[tuple[Any, Kind], list[Link]] = {}
        for group in by_holder.values():
            if len(group) >= _MANY:
                self._groups.append(_Group.of_holder(group))
            else:
                for link in group:
                    by_key.setdefault((link.key, link.kind), []).append(link)
        self._groups += map(_Group.of_key, by_key.values())

    def hold_same(self, is_alike: Callable[[Any, Any], bool] | None = None) -> bool:
        """Whether each place holds the same object, or one that `is_alike`."""
        for group in self._groups:
            try:
                if all(map(is_, group.read(), group.values)):
                    continue
                if is_alike is None or not group.update(is_alike):
                    return False
            except (LookupError, AttributeError, ValueError):
                return False
        return True


class _Group:
    """Places that are read at once, and their values."""

    def __init__(self, read: Callable[[], Iterable[Any]], links: Sequence[Link]) -> None:
        self.read = read
        self.values = [link.value for link in links]

    @classmethod
    def of_holder(cls, links: Sequence[Link]) -> Self:
        """Places in one container."""
        return cls(partial(_getter(links), links[0].holder), links)

    @classmethod
    def of_key(cls, links: Sequence[Link]) -> Self:
        """One key in several containers."""
        return cls(partial(map, _getter(links[:1]), [link.holder for link in links]), links)

    def update(self, is_alike: Callable[[Any, Any], bool]) -> bool:
        """Take over what is in the places now, if it is alike."""
        found = list(self.read())
        if not all(new is x or is_alike(x, new) for x, new in zip(self.values, found, strict=True)):
            return False
        self.values = found
        return True


def _getter(links: Sequence[Link]) -> Callable[[Any], Any]:
    make = itemgetter if links[0].kind is Kind.ITEM else attrgetter
    return make(*[link.key for link in links])
