"""Links: the places where a function finds values.

A link is a container and a key, with the value that was there. It reads and writes the value that
is there now. It keeps no tensor alive.
"""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from enum import Enum
from typing import Any

from tinygrad.tensor import Tensor


class Kind(Enum):
    """How a container gives the value of a key."""

    ITEM = 0
    ATTRIBUTE = 1
    CONTEXT = 2
    """The value of a `ContextVar` in this context."""


def value_in_context(variable: ContextVar[Any]) -> Any:
    """The value of a variable in this context; None if it has none."""
    try:
        return variable.get()
    except LookupError:
        return None


class Link:
    """`holder[key]`, or the attribute `key` of `holder`, was `value`. Keeps no tensor alive.

    `origin` is the link that led to the holder, or its name; `label` is what a program writes after
    that, such as ".rate", and a name alone if it writes nothing before.
    """

    __slots__ = ("_held", "holder", "is_tensor", "key", "kind", "label", "origin")

    def __init__(
        self,
        holder: Any,
        key: Any,
        kind: Kind,
        value: Any,
        origin: Link | str = "",
        label: str | None = None,
    ) -> None:
        self.holder = holder
        self.key = key
        self.kind = kind
        self.is_tensor = isinstance(value, Tensor)
        self._held = weakref.ref(value) if self.is_tensor else value
        self.origin = origin
        self.label = label

    def __str__(self) -> str:
        """How a program writes the place, such as `self.rates[0]`."""
        label = f"[{self.key!r}]" if self.label is None else self.label
        return f"{self.origin}{label}" if label.startswith((".", "[")) else label

    @property
    def value(self) -> Any:
        """The value that was there; None for a tensor that is gone."""
        return self._held() if self.is_tensor else self._held

    @property
    def place(self) -> tuple[int, Any]:
        """A key for the place, whatever its value."""
        return id(self.holder), self.key

    def is_unchanged(self) -> bool:
        """Whether the value is still there."""
        return self.get_or_none() is self.value and not self.is_lost()

    def is_lost(self) -> bool:
        """Whether the value was a tensor that is gone."""
        return self.is_tensor and self._held() is None

    def renewed(self) -> Link:
        """The same place, with the value that is there now."""
        return Link(self.holder, self.key, self.kind, self.get(), self.origin, self.label)

    def get(self) -> Any:
        """The value that is there now. Raises an exception if there is none."""
        if self.kind is Kind.ITEM:
            return self.holder[self.key]
        if self.kind is Kind.CONTEXT:
            return value_in_context(self.holder)
        return getattr(self.holder, self.key)

    def get_or_none(self) -> Any:
        """The value that is there now, or None."""
        try:
            return self.get()
        except (LookupError, AttributeError, ValueError):
            return None

    def set(self, value: Any) -> None:
        """Put a value there."""
        if self.kind is Kind.ITEM:
            self.holder[self.key] = value
        elif self.kind is Kind.CONTEXT:
            self.holder.set(value)
        else:
            setattr(self.holder, self.key, value)
