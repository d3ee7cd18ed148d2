"""Links: the places where a function finds values.

A link is a container and a key, with the value that was there. It reads and writes the value that
is there now. It keeps no tensor alive.
"""

from __future__ import annotations

import weakref
from enum import Enum
from typing import Any

from tinygrad.tensor import Tensor


class Kind(Enum):
    """How a container gives the value of a key."""

    ITEM = 0
    ATTRIBUTE = 1


class Link:
    """`holder[key]`, or the attribute `key` of `holder`, was `value`. Keeps no tensor alive."""

    __slots__ = ("_held", "holder", "is_tensor", "key", "kind")

    def __init__(self, holder: Any, key: Any, kind: Kind, value: Any) -> None:
        self.holder = holder
        self.key = key
        self.kind = kind
        self.is_tensor = isinstance(value, Tensor)
        self._held = weakref.ref(value) if self.is_tensor else value

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
        return Link(self.holder, self.key, self.kind, self.get())

    def get(self) -> Any:
        """The value that is there now. Raises an exception if there is none."""
        if self.kind is Kind.ITEM:
            return self.holder[self.key]
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
        else:
            setattr(self.holder, self.key, value)
