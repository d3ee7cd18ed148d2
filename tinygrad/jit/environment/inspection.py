"""Inspection of objects and classes, without running their code.

Input: any object. Output: its attributes, the functions of its class, and whether these belong to
Python, to other libraries or to this one, whose code a survey does not follow.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections import deque
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from contextvars import ContextVar
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

from tinygrad.tensor import Tensor

# packages that hold no tensors of this library; with Python's own, their code is not followed
_ARRAYS = ("numpy", "torch", "jax", "scipy", "pandas", "matplotlib", "PIL")
# tools that rewrite code, observe it, or print what it does
_TOOLS = (
    *("pytest", "_pytest", "pluggy", "pytest_cov", "xdist", "hypothesis", "coverage", "tox"),
    *("debugpy", "pydevd", "_pydevd_bundle", "_pydevd_frame_eval", "_pydev_bundle"),
    *("IPython", "ipykernel", "ipdb", "pdbpp", "pudb", "icecream", "snoop"),
    *("beartype", "typeguard"),
    *("line_profiler", "memory_profiler", "pyinstrument", "viztracer", "scalene", "yappi"),
    *("loguru", "structlog", "rich", "tqdm", "colorama", "termcolor", "absl", "tensorboard"),
    *("tensorboardX", "wandb", "mlflow", "comet_ml", "neptune", "clearml", "aim", "sentry_sdk"),
)
_FOREIGN = frozenset((*_ARRAYS, *_TOOLS))
# the maximum number of objects searched for what an object refers to
_MAX_SEARCHED = 100_000
OWN_PACKAGES = ("tinygrad.nn", "tinygrad.apps")
# methods that no operator calls while a function runs
_NOT_CALLED = frozenset(
    {"__init__", "__new__", "__del__", "__repr__", "__str__", "__reduce__", "__getstate__"}
)


CachedFunction = type(functools.cache(len))
"""The type of functions that `functools.cache` and `functools.lru_cache` make."""


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


def nbytes_of(x: Any) -> int:
    """The bytes of an array; 0 for another object of its library."""
    try:
        return memoryview(x).nbytes
    except (TypeError, ValueError, BufferError):
        return 0


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
    if isinstance(x, FunctionType) and "__name__" not in x.__globals__:
        # of a program that `exec` runs
        return False
    if isinstance(x, (FunctionType, type, BuiltinFunctionType)):
        module = getattr(x, "__module__", None) or "builtins"
        return is_library_name(module) or module.partition(".")[0] == "tinygrad"
    return False


def reached_from(holder: Any, ignored: Container[int] = ()) -> Iterator[Any]:
    """What an object refers to, directly or not, other than classes, modules, and through objects
    with an `ignored` id. Up to `_MAX_SEARCHED` objects are searched.
    """
    queue, seen = deque([holder]), {id(holder)}
    while queue and len(seen) < _MAX_SEARCHED:
        for x in _held_by(queue.popleft()):
            yield x
            if id(x) in seen or id(x) in ignored or not gc.is_tracked(x):
                continue
            is_module = isinstance(x, dict) and "__builtins__" in x
            if not is_module and not isinstance(x, (type, ModuleType, Tensor)):
                seen.add(id(x))
                queue.append(x)


def _held_by(holder: Any) -> list[Any]:
    """The objects that an object refers to; of a `ContextVar`, its current value."""
    if isinstance(holder, ContextVar):
        return [holder.get(None)]
    return gc.get_referents(holder)
