"""Paths: the places where a function found what it used, checked before each replay.

Input: links, as they were before a capture. Output: whether the function would find the same
tensors, numbers and objects there. Invariant: what is unchanged is compared by identity in a few
calls of C; numbers are compared by value where the objects differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, is_, itemgetter
from typing import Any

from tinygrad.jit.inputs import comparable
from tinygrad.jit.survey import Kind, Link
from tinygrad.tensor import Tensor

_Getter = Callable[[Any], Sequence[Any]]


class Paths:
    """The `links` to check, the lengths of containers, and the content of arrays.

    Of a tensor that is not among `used`, by id, only shape, dtype and device matter.
    """

    def __init__(
        self,
        links: Iterable[Link],
        sizes: Sequence[tuple[Any, int]],
        arrays: Sequence[tuple[Any, Any]],
        used: set[int],
    ) -> None:
        self._used = used
        by_holder: dict[tuple[int, Kind], list[Link]] = {}
        for link in links:
            by_holder.setdefault((id(link.holder), link.kind), []).append(link)
        self._groups = [_Group(group) for group in by_holder.values()]
        self._containers = [x for x, _ in sizes]
        self._sizes = [size for _, size in sizes]
        self._arrays = arrays

    def are_unchanged(self) -> bool:
        """Whether every place holds what it held."""
        if list(map(len, self._containers)) != self._sizes:
            return False
        for group in self._groups:
            try:
                found = group.get(group.holder)
            except (LookupError, AttributeError, ValueError):
                return False
            if not all(map(is_, found, group.values)) and not self._is_equal(group, found):
                return False
        return all(comparable(x) == content for x, content in self._arrays)

    def _is_equal(self, group: _Group, found: Sequence[Any]) -> bool:
        """Whether other objects in the place of the known ones make no difference."""
        pairs = zip(group.values, found, strict=True)
        if not all(new is old or self._is_alike(old, new) for old, new in pairs):
            return False
        group.values = tuple(found)
        return True

    def _is_alike(self, old: Any, new: Any) -> bool:
        if isinstance(old, Tensor):
            if id(old) in self._used or not isinstance(new, Tensor):
                return False
            return (old.shape, old.dtype, old.device) == (new.shape, new.dtype, new.device)
        return bool(comparable(old) == comparable(new))


class _Group:
    """The places in one container."""

    def __init__(self, links: list[Link]) -> None:
        self.holder = links[0].holder
        self.values = tuple(link.value for link in links)
        keys = [link.key for link in links]
        if len(keys) == 1:
            # with one key, a getter returns the value alone
            keys, self.values = keys * 2, self.values * 2
        self.get: _Getter = (itemgetter if links[0].kind is Kind.ITEM else attrgetter)(*keys)
