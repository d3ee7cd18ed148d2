"""`Enum`: enumerations whose members are as cheap to load as any attribute of a class.

Input: a class body of `NAME = auto()`, or of `NAME = OTHER` for another name of a member. Output:
the members, in the order of declaration. Invariant:
members are singletons, also after pickling and copying, so identity is equality. Up to Python 3.11,
the `Enum` of the standard library loads a member by a function call, as its metaclass defines
`__getattr__`; graphs are compared with members at every step. Type checkers see that `Enum`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enum import Enum, auto
else:

    class auto:
        """The place of a member in the body of its class."""

    class _EnumType(type):
        """A metaclass that makes the members of an enumeration."""

        __members__: dict[str, Any]

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _EnumType:
            made = super().__new__(cls, name, bases, body)
            made.__members__ = {}
            found: dict[auto, Any] = {}
            for key, place in body.items():
                if not isinstance(place, auto):
                    continue
                if place not in found:
                    member = found[place] = made.__members__[key] = object.__new__(made)
                    member.name, member.value = key, len(found)
                setattr(made, key, found[place])
            return made

        def __iter__(cls) -> Iterator[Any]:
            return iter(cls.__members__.values())

        def __len__(cls) -> int:
            return len(cls.__members__)

        def __contains__(cls, member: object) -> bool:
            return isinstance(member, cls)

        def __getitem__(cls, name: str) -> Any:
            return cls.__members__[name]

        def __call__(cls, value: int) -> Any:
            """The member with a value. Raises ValueError if there is none."""
            found = next((member for member in cls if member.value == value), None)
            if found is None:
                raise ValueError(f"{value!r} is not the value of a member of {cls.__name__}")
            return found

    class Enum(metaclass=_EnumType):
        """The base class: `name` is a member's name, `value` its number from 1 on."""

        __slots__ = ("name", "value")

        def __repr__(self) -> str:
            return f"<{self}: {self.value}>"

        def __str__(self) -> str:
            return f"{type(self).__name__}.{self.name}"

        def __reduce__(self) -> tuple[Any, ...]:
            return type(self), (self.value,)


__all__ = ["Enum", "auto"]
