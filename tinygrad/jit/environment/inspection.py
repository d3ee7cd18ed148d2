"""Inspection of objects and classes, without running their code.

Input: any object. Output: its attributes, the functions of its class, and whether these belong to
Python, to other libraries or to this one, whose code a survey does not follow.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

# packages that hold no tensors of this library; with Python's own, their code is not followed
_FOREIGN = frozenset(
    {"numpy", "torch", "jax", "scipy", "pandas", "matplotlib", "PIL", "tqdm", "pytest"}
)
OWN_PACKAGES = ("tinygrad.nn", "tinygrad.apps")
# methods that no operator calls while a function runs
_NOT_CALLED = frozenset(
    {"__init__", "__new__", "__del__", "__repr__", "__str__", "__reduce__", "__getstate__"}
)


class Followed:
    """An object that stands for others, its `roots`, which a survey follows in its place."""

    roots: Callable[[], list[Any]]


def functions_of(member: Any) -> Iterator[FunctionType]:
    """The functions of a member of a class: of a method, a property or a wrapped method."""
    if isinstance(member, FunctionType):
        yield member
    elif isinstance(member, (staticmethod, classmethod)):
        yield from functions_of(member.__func__)
    elif isinstance(member, property):
        yield from functions_of(member.fget)
    elif isinstance(member, functools.cached_property):
        yield from functions_of(member.func)
    elif isinstance(member, Followed):
        yield from (x for x in member.roots() if isinstance(x, FunctionType))


def is_operator(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in _NOT_CALLED


def is_descriptor(member: Any) -> bool:
    return hasattr(type(member), "__get__")


def attributes_of(x: Any) -> dict[str, Any] | None:
    """The dict of an object's attributes, without calling code of its class."""
    try:
        found = object.__getattribute__(x, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def slots_of(x: Any) -> Iterator[tuple[str, Any]]:
    """The slots of an object that are set, and their values."""
    for base in type(x).__mro__:
        members = {} if is_library_name(module_of(base)) else vars(base)
        slots = {k: m for k, m in members.items() if isinstance(m, MemberDescriptorType)}
        for name, member in slots.items():
            with suppress(AttributeError):
                yield name, member.__get__(x)


def module_of(kind: type) -> str:
    """The module of a class, which some classes replace by other objects."""
    return kind.__module__ if isinstance(kind.__module__, str) else "builtins"


def root_of(kind: type) -> str:
    return module_of(kind).partition(".")[0]


@functools.cache
def is_library_name(module: str) -> bool:
    """Whether a module's code is not followed: Python's own, foreign, and most of this library."""
    root = module.partition(".")[0]
    if root == "tinygrad":
        return not module.startswith(OWN_PACKAGES)
    return root in sys.stdlib_module_names or root in _FOREIGN


def is_library(x: Any) -> bool:
    """Whether a value is a function, class or module that is not followed."""
    if isinstance(x, ModuleType):
        return is_library_name(x.__name__) or x.__name__.partition(".")[0] == "tinygrad"
    if isinstance(x, (FunctionType, type, BuiltinFunctionType)):
        module = getattr(x, "__module__", None) or "builtins"
        return is_library_name(module) or module.partition(".")[0] == "tinygrad"
    return False
