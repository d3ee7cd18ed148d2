"""Places where a function keeps tensors, other than its result: attributes, dicts, lists, cells.

Input: what the function reaches by name before a call, and after it. Output: the places in which
the call left a tensor. A replay puts its own tensors there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tinygrad.execution.capture import JitError, capturing
from tinygrad.jit.containers import kind_of, leaves, tensors_in
from tinygrad.jit.environment.inspection import is_library, reached_from
from tinygrad.jit.environment.links import Kind, Link
from tinygrad.jit.environment.survey import SCALARS, Survey
from tinygrad.tensor import Tensor
from tinygrad.uop.user_line import find_user_line


@dataclass(frozen=True)
class Place:
    """Where a function leaves a tensor, or a container of tensors.

    It replaces the value there or, if `is_appended`, goes to the end of a list.
    """

    link: Link
    is_appended: bool

    @property
    def value(self) -> Any:
        """What is there now."""
        return self.link.get()

    @property
    def latest(self) -> Any:
        """What the last call left there."""
        return self.link.holder[-1] if self.is_appended else self.link.get()

    def __str__(self) -> str:
        return f"{self.link.key!r} of a {type(self.link.holder).__name__}"

    def put(self, value: Any) -> None:
        """Leave a value there, as the function does."""
        if self.is_appended:
            self.link.holder.append(value)
        else:
            self.link.set(value)


def find_places(
    before: Survey, roots: Iterable[Any], created: set[int], arguments: set[int]
) -> list[Place]:
    """The places in which a call left tensors, in containers that existed `before` the call.

    `created` and `arguments` are the ids of the tensors that the call created or was given.

    Raises:
        JitError: a captured function changes a list, or makes an object, in a way that cannot be
            repeated.
    """
    sizes = {id(x): size for x, size in before.sizes}
    known = {link.place: link.value for link in before.links}
    moved = created | arguments
    found: list[Place] = []
    for link in Survey(roots).links:
        holder, value = link.holder, link.value
        is_old = id(holder) in before.known or (
            isinstance(holder, Tensor) and id(holder) not in created
        )
        is_same = known.get(link.place) is value
        if not is_old or is_same or not _holds(value, moved, before):
            continue
        is_item = link.kind is Kind.ITEM and not isinstance(holder, dict)
        found.append(Place(link, is_item and link.key >= sizes.get(id(holder), 0)))
    lists = {id(x.link.holder): x.link.holder for x in found if isinstance(x.link.key, int)}
    places = {x.link.place for x in found}
    for link in before.links if capturing() else ():
        if id(link.holder) in lists and link.place not in places and not link.is_unchanged():
            raise JitError(
                f"{find_user_line()}: a captured function keeps tensors in a "
                f"{type(link.holder).__name__}, of which it moves or removes items; a replay "
                "cannot repeat that: return the tensors"
            )
    return found


def _holds(value: Any, fresh: set[int], before: Survey) -> bool:
    """Whether a value is one of the `fresh` tensors, by id, or a new container of some."""
    if id(value) in before.known:
        return False
    if capturing():
        check_can_repeat("keeps", value, fresh, before)
    return any(id(x) in fresh for x in tensors_in(value))


def check_can_repeat(verb: str, value: Any, fresh: Collection[int], before: Survey) -> None:
    """Raise JitError if a value, which a captured function keeps or returns, has an object made by
    it that holds one of the `fresh` tensors, by id: a replay cannot make another.
    """
    for x in leaves(value):
        if isinstance(x, (Tensor, *SCALARS)) or id(x) in before.known or is_library(x):
            continue
        if any(id(y) in fresh for y in reached_from(x, before.known)):
            fix = "use a dataclass, namespace, list or dict, or call register_container of "
            fix += "tinygrad.jit for the class"
            if kind_of(type(x)) is not None:
                fix = "let it not hold itself"
            raise JitError(
                f"{find_user_line()}: a captured function {verb} tensors in a new object of type "
                f"{type(x).__name__}; a replay cannot make another: {fix}"
            )
