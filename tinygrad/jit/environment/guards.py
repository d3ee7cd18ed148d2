"""Guards: a check before each replay that the function would find the values that it found.

Input: links, the places and the values before the capture. Output: whether a replay may run. All
unchanged values are compared by identity, in a few calls of C. Only a value that is another object
is compared by content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter, is_, itemgetter
from typing import Any, Self

from tinygrad.jit.environment.links import Kind, Link
from tinygrad.jit.inputs import comparable
from tinygrad.tensor import Tensor

# a container with at least this many guarded places is read by one `itemgetter` or `attrgetter`
_MANY = 4


class Guards:
    """What must be unchanged: the values of `links`, the `sizes` of containers, the content of
    `arrays`. The attributes `absent` must still be missing.

    A tensor whose id is in `used` must be the same object. Of any other tensor, only shape, dtype
    and device must be the same.
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
        self._places = GuardedPlaces(links)
        self._containers = [x for x, _ in sizes]
        self._sizes = [size for _, size in sizes]
        self._arrays = arrays

    def are_unchanged(self) -> bool:
        """Whether every place holds what it held."""
        if list(map(len, self._containers)) != self._sizes:
            return False
        if not self._places.hold_same(self._is_alike):
            return False
        if self._absent and any(name in attributes for attributes, name in self._absent):
            return False
        return not self._arrays or all(comparable(x) == found for x, found in self._arrays)

    def _is_alike(self, old: Any, new: Any) -> bool:
        """Whether the function runs the same kernels with `new` in the place of `old`."""
        if isinstance(old, Tensor):
            if id(old) in self._used or not isinstance(new, Tensor):
                return False
            return (old.shape, old.dtype, old.device) == (new.shape, new.dtype, new.device)
        if isinstance(old, (list, tuple)) and type(old) is type(new) and len(old) == len(new):
            pairs = zip(old, new, strict=True)
            return all(b is a or self._is_alike(a, b) for a, b in pairs)
        return bool(comparable(old) == comparable(new))


class GuardedPlaces:
    """Places with the values that they hold, read in few calls."""

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
        """Whether each place holds the same object, or one for which `is_alike(old, new)`."""
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
    """Places that one call of `read` reads, and their values."""

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
        """Whether all new values are alike; if so, they are what later checks compare with."""
        found = list(self.read())
        if not all(new is x or is_alike(x, new) for x, new in zip(self.values, found, strict=True)):
            return False
        self.values = found
        return True


def _getter(links: Sequence[Link]) -> Callable[[Any], Any]:
    make = itemgetter if links[0].kind is Kind.ITEM else attrgetter
    return make(*[link.key for link in links])
