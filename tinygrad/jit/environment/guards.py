"""Guards: a check before each replay that the function would find the values that it found.

Input: links, the places and the values before the capture. Output: whether a replay may run. All
unchanged values are compared by identity, in a few calls of C. Only a value that is another object
is compared by content.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any

from tinygrad.jit.environment.links import Kind, Link, value_in_context
from tinygrad.jit.environment.survey import Survey
from tinygrad.jit.inputs import comparable
from tinygrad.storage.gradients.grad_mode import marks
from tinygrad.tensor import Tensor

# a holder with at least this many places is read by a call of its own
_MANY = 4


class Guards:
    """What must be unchanged since `survey` was made, before the captured call: the values of
    `links`, the sizes, keys and arrays, and whether tensors require gradients. What was not there
    must still be missing.

    A tensor of `used` must be the same object. Of any other tensor, only shape, dtype, device and
    whether it requires a gradient must be the same. A list to which the function appends may be
    longer; `added` are the places that it filled.
    """

    def __init__(
        self,
        links: Iterable[Link],
        survey: Survey,
        used: Collection[int],
        added: Iterable[Link] = (),
    ) -> None:
        self._used = set(used)
        self._places = GuardedPlaces(links)
        sizes = [(x, n) for x, n in survey.sizes if len(x) == n or isinstance(x, (dict, set))]
        self._containers = [x for x, _ in sizes]
        self._sizes = [size for _, size in sizes]
        self._keyed = [x for x, _ in survey.keys]
        self._keys = [key for _, found in survey.keys for key in found]
        known = {link.place for link in survey.links}
        new = [x for x in added if isinstance(x.holder, dict) and x.place not in known]
        self._absent = [*survey.absent, *((link.holder, link.key) for link in new)]
        self._arrays = survey.arrays
        self._tensors = [(weakref.ref(x), x.requires_grad) for x in survey.tensors()]
        self._marks = marks.changes
        self._origins = survey.origins

    def are_unchanged(self) -> bool:
        """Whether every place holds what it held."""
        if list(map(len, self._containers)) != self._sizes:
            return False
        if not self._places.hold_same(self._is_alike):
            return False
        if self._keyed and not self._have_same_keys():
            return False
        if marks.changes != self._marks and not self._require_same_gradients():
            return False
        if self._absent and any(name in attributes for attributes, name in self._absent):
            return False
        return not self._arrays or all(comparable(x) == found for x, found in self._arrays)

    def changed_paths(self) -> list[str]:
        """The places that hold other Python values by now, as a program writes them."""
        sized = zip(self._containers, self._sizes, strict=True)
        changed: list[Any] = [x for x, size in sized if len(x) != size]
        changed += [x for x, found in self._arrays if comparable(x) != found]
        if not changed and not self._have_same_keys():
            changed += self._keyed
        found = [str(self._origins.get(id(x), "")) for x in changed]
        return found + [str(link) for link in self._places.changed(self._is_alike)]

    def _have_same_keys(self) -> bool:
        """Whether dicts and sets have the same keys in the same order."""
        if all(map(is_, chain.from_iterable(self._keyed), self._keys)):
            return True
        pairs = zip(chain.from_iterable(self._keyed), self._keys, strict=True)
        return all(new is old or comparable(new) == comparable(old) for new, old in pairs)

    def _require_same_gradients(self) -> bool:
        """Whether each tensor that was reached requires a gradient if it did before."""
        now = marks.changes
        found = ((ref(), old) for ref, old in self._tensors)
        if any(x is not None and x.requires_grad is not old for x, old in found):
            return False
        self._marks = now
        return True

    def _is_alike(self, old: Any, new: Any) -> bool:
        """Whether the function runs the same kernels with `new` in the place of `old`."""
        if isinstance(old, Tensor) and old is not new:
            if id(old) in self._used or not isinstance(new, Tensor):
                return False
            kinds = [(x.shape, x.dtype, x.device, x.requires_grad) for x in (old, new)]
            return kinds[0] == kinds[1]
        return is_same_value(old, new, self._is_alike)


def is_same_value(old: Any, new: Any, is_same: Callable[[Any, Any], bool] | None = None) -> bool:
    """Whether two Python values cannot be told apart, other than by identity; `is_same` compares
    what lists, tuples and dicts hold.
    """
    if old is new:
        return True
    if type(old) is type(new) and isinstance(old, (list, tuple, dict)) and len(old) == len(new):
        pairs = list(zip(old, new))
        if isinstance(old, dict):
            pairs += zip(old.values(), new.values())
        return all(map(is_same or is_same_value, *zip(*pairs))) if pairs else True
    return bool(comparable(old) == comparable(new))


class GuardedPlaces:
    """Places with the values that they hold, read in few calls."""

    def __init__(self, links: Iterable[Link]) -> None:
        by_holder: dict[tuple[int, Kind], list[Link]] = {}
        for link in links:
            by_holder.setdefault((id(link.holder), link.kind), []).append(link)
        by_keys: dict[tuple[Any, ...], list[list[Link]]] = {}
        for group in by_holder.values():
            # with others of the same keys, or alone
            keys = (group[0].kind, *(link.key for link in group))
            by_keys.setdefault(keys if len(group) < _MANY else (id(group),), []).append(group)
        self._groups: list[_Group] = []
        for groups in by_keys.values():
            if len(groups) < _MANY:
                self._groups.append(_Group(groups))
            else:
                self._groups += [_Group([[link] for link in links]) for links in zip(*groups)]

    def hold_same(self, is_alike: Callable[[Any, Any], bool] | None = None) -> bool:
        """Whether each place holds the same object, or one for which `is_alike(old, new)`."""
        for group in self._groups:
            try:
                if not all(map(is_, group.read(), group.values)) and (
                    is_alike is None or not group.update(is_alike)
                ):
                    return False
            except (LookupError, AttributeError, ValueError):
                return False
            if group.renewed and not group.renewed_are_same():
                return False
        return True

    def changed(self, is_alike: Callable[[Any, Any], bool]) -> list[Link]:
        """The places that hold another value by now, tensors aside."""
        return [
            link
            for group in self._groups
            for link, old in zip(group.links, group.values, strict=True)
            if not link.is_tensor
            and (new := link.get_or_none()) is not old
            and not isinstance(new, Tensor)
            and not is_alike(old, new)
        ]


class _Group:
    """Places with the same keys in several holders, and their values, read by few calls."""

    def __init__(self, links: Sequence[Sequence[Link]]) -> None:
        self.links = [link for of_holder in links for link in of_holder]
        self.values = [link.value for link in self.links]
        self.renewed: dict[int, list[tuple[Any, list[Any]]]] = {}
        """The lists and dicts that took the place of equal ones, by number, and what they held."""
        get, holders = _getter(links[0]), [of_holder[0].holder for of_holder in links]
        self.read: Callable[[], Iterable[Any]]
        if len(links[0]) == 1:
            self.read = partial(map, get, holders)
        elif len(holders) == 1:
            self.read = partial(get, holders[0])
        else:
            self.read = lambda: chain.from_iterable(map(get, holders))

    def update(self, is_alike: Callable[[Any, Any], bool]) -> bool:
        """Whether all new values are alike; if so, they are what later checks compare with."""
        found = list(self.read())
        pairs = list(zip(self.values, found, strict=True))
        if not all(new is x or is_alike(x, new) for x, new in pairs):
            return False
        self.values = found
        for i, (old, new) in enumerate(pairs):
            if new is not old and isinstance(new, (list, tuple, dict)):
                self.renewed[i] = list(_mutable_in(new))
        return True

    def renewed_are_same(self) -> bool:
        """Whether these lists and dicts still hold what they held."""
        return all(_same_items(x, items) for found in self.renewed.values() for x, items in found)


def _mutable_in(x: Any) -> Iterator[tuple[Any, list[Any]]]:
    """The lists and dicts in a nested value, with what they hold."""
    if isinstance(x, (list, tuple, dict)):
        items = list(x.values() if isinstance(x, dict) else x)
        if not isinstance(x, tuple):
            yield x, items
        for item in items:
            yield from _mutable_in(item)


def _same_items(x: Any, items: list[Any]) -> bool:
    values = x.values() if isinstance(x, dict) else x
    return len(x) == len(items) and all(map(is_, values, items))


def _getter(links: Sequence[Link]) -> Callable[[Any], Any]:
    if links[0].kind is Kind.CONTEXT:
        return value_in_context
    make = itemgetter if links[0].kind is Kind.ITEM else attrgetter
    return make(*[link.key for link in links])
