"""Survey: what a function reaches by the names in its code.

Input: a function, the object that it is a method of, and the objects among its arguments. Output:
`Link`s: a container, a key, and the value found there, for closure cells, globals, attributes and
items. Invariant: a link is a place that the function can read; code of this library and of Python's
own modules is not followed, nor are attributes that no reachable code names.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections import deque
from collections.abc import Container, Iterable
from contextlib import suppress
from contextvars import ContextVar
from enum import Enum
from itertools import chain, repeat
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

from tinygrad import fast_enum
from tinygrad.dtype import DType
from tinygrad.jit.environment.code_names import names_of
from tinygrad.jit.environment.inspection import (
    OWN_PACKAGES,
    CachedFunction,
    Followed,
    attributes_of,
    functions_of,
    is_descriptor,
    is_library,
    is_library_name,
    is_operator,
    module_of,
    nbytes_of,
    root_of,
    slots_of,
)
from tinygrad.jit.environment.links import Kind, Link, value_in_context
from tinygrad.jit.inputs import comparable
from tinygrad.settings import ENVIRONMENT
from tinygrad.sharding import Sharding
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp

SCALARS = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    Enum,
    fast_enum.Enum,
    UOp,
    DType,
    Sharding,
)
"""Types of values that do not change in place; UOps, dtypes and layouts are interned."""
MAX_ITEMS = 1024
"""The numbers in a list or dict are followed up to this count."""
MAX_ARRAY_BYTES = 1 << 20
"""The content of an array is followed up to this size."""
# the names by which code reads or writes gradients
_GRADIENTS = frozenset({"backward", "grad"})
# those by which it reads the variables of the process
_PROCESS = frozenset({"environ", "getenv"})
# what a function is, other than its name
_OF_FUNCTION = ("__code__", "__defaults__", "__kwdefaults__")
_CONTAINERS = (list, tuple, deque, dict, set, frozenset)


class Survey:
    """The `links` that are reachable from `roots`, and the `opaque` objects that were not followed.

    With `all_attributes`, also those of attributes that no code names.
    """

    def __init__(self, roots: Iterable[Any], all_attributes: bool = False) -> None:
        self.links: list[Link] = []
        self.sizes: list[tuple[Any, int]] = []
        """The lists, deques, dicts and sets that were reached, and their lengths."""
        self.keys: list[tuple[Any, tuple[Any, ...]]] = []
        """The dicts and sets that were reached, and what iterating over them gives."""
        self.arrays: list[tuple[Any, Any]] = []
        """The small arrays that were reached, and keys of their content."""
        self.opaque: list[Any] = []
        self.internals: set[int] = set()
        """The ids of dicts with the attributes of objects of Python's own classes."""
        self.known: dict[int, Any] = {}
        """The objects that were reached, other than tensors, by id."""
        self._all = all_attributes
        self._names: set[str] = set()
        self._computes_names = False
        self._seen: dict[int, Any] = {}
        self.origins: dict[int, Link | str] = {}
        """The links that led to objects, or their names, by id."""
        self._instances: list[_Instance] = []
        # tensors whose gradients were not followed
        self._fresh: list[tuple[Tensor, Link | str]] = []
        self._classes: dict[type, _Class] = {}
        names = chain(["self"], repeat("an argument"))
        self._queue: deque[tuple[Any, Link | str]] = deque(zip(roots, names))
        self._run()
        self.absent: list[tuple[dict[str, Any], str]] = [
            (x.attributes, name)
            for x in self._instances
            for name in (x.owner.attributes if x.owner is not None else ())
            if name not in x.attributes
        ]
        """The attributes that objects have of their classes alone, by the dict of the object."""
        # keep no tensor alive, but all other objects, so that no id is used twice
        self.known = {key: x for key, x in self._seen.items() if not isinstance(x, Tensor)}
        self._seen, self._fresh, self._instances, self._classes = {}, [], [], {}

    def tensors(self) -> list[Tensor]:
        """The tensors that were reached and are alive."""
        found = [link.value for link in self.links if link.is_tensor and not link.is_lost()]
        return list({id(x): x for x in found}.values())

    def _run(self) -> None:
        while self._queue or self._name_more():
            while self._queue:
                x, self._origin = self._queue.popleft()
                self._visit(x)

    def _name_more(self) -> bool:
        """Follow methods and attributes that are named by now; returns whether there were any."""
        before = len(self.links), len(self._queue), len(self._names)
        for found in self._classes.values():
            self._name_methods(found)
        for instance in self._instances:
            self._name_attributes(instance)
        if self._makes_gradients():
            for x, origin in self._fresh:
                if x.grad is not None or x.requires_grad:
                    self._link(x, "grad", Kind.ATTRIBUTE, x.grad, ".grad", origin)
            self._fresh = []
        return before != (len(self.links), len(self._queue), len(self._names))

    def _makes_gradients(self) -> bool:
        """Whether code reads or writes gradients, or calls a method of this library that does."""
        if not self._names.isdisjoint(_GRADIENTS):
            return True
        return not all(_GRADIENTS.isdisjoint(found.names) for found in self._classes.values())

    def _link(
        self,
        holder: Any,
        key: Any,
        kind: Kind,
        value: Any,
        label: str | None = None,
        origin: Link | str | None = None,
    ) -> None:
        if is_library(value):
            return
        link = Link(holder, key, kind, value, self._origin if origin is None else origin, label)
        self.links.append(link)
        self._queue.append((value, link))

    def _follow(self, *values: Any) -> None:
        """Follow what is no other place than the present one."""
        self._queue.extend((x, self._origin) for x in values)

    def _know(self, x: Any) -> None:
        self._seen[id(x)] = x
        self.origins[id(x)] = self._origin

    def _visit(self, x: Any) -> None:
        if type(x) in weakref.ProxyTypes or isinstance(x, SCALARS) or id(x) in self._seen:
            return
        self._know(x)
        if isinstance(x, Tensor):
            self._fresh.append((x, self._origin))
        elif isinstance(x, FunctionType):
            self._visit_function(x)
        elif isinstance(x, MethodType):
            self._follow(x.__func__, x.__self__)
        elif isinstance(x, functools.partial):
            self._follow(x.func, *x.args, *x.keywords.values())
        elif isinstance(x, _CONTAINERS):
            self._visit_items(x)
            self._visit_instance(x)
        elif isinstance(x, ModuleType):
            self._know(vars(x))
            self._instances.append(_Instance(vars(x), None, False, self._origin))
        elif isinstance(x, type):
            self._classes.setdefault(x, _Class(x))
        elif root_of(type(x)) in {"numpy", "array"} or isinstance(x, bytearray):
            if nbytes_of(x) <= MAX_ARRAY_BYTES:
                self.arrays.append((x, comparable(x)))
        elif isinstance(x, (ContextVar, threading.local)):
            self._visit_context(x)
        elif isinstance(x, Followed):
            self._follow(*x.roots())
        elif isinstance(x, BuiltinFunctionType):
            self._follow(x.__self__)
        elif isinstance(x, CachedFunction):
            self._follow(x.__wrapped__)
        else:
            self._visit_instance(x)

    def _visit_function(self, x: FunctionType) -> None:
        names = names_of(x.__code__)
        self._names |= names.attributes
        self._computes_names |= names.computes_names
        self._know(x.__globals__)
        # of globals()["name"], the name is a constant
        named = names.globals | names.attributes if "globals" in names.globals else names.globals
        for name in sorted(named):
            if name in x.__globals__:
                self._link(x.__globals__, name, Kind.ITEM, x.__globals__[name], name)
        if not (names.globals | names.attributes).isdisjoint(_PROCESS):
            self._queue.append((ENVIRONMENT, "os.environ"))
        for name, cell in zip(x.__code__.co_freevars, x.__closure__ or (), strict=True):
            self._know(cell)
            with suppress(ValueError):  # it may be empty
                self._link(cell, "cell_contents", Kind.ATTRIBUTE, cell.cell_contents, name)
        if vars(x):
            self._know(vars(x))
            self._instances.append(_Instance(vars(x), None, False, self._origin))
        for name in _OF_FUNCTION:
            value, label = getattr(x, name), f"{x.__name__}.{name}"
            self.links.append(Link(x, name, Kind.ATTRIBUTE, value, label=label))
            if not isinstance(value, CodeType):
                self._queue.append((value, self.links[-1]))

    def _visit_context(self, x: ContextVar[Any] | threading.local) -> None:
        """Follow what a thread or task has for itself, tensors aside."""
        self.opaque.append(x)
        if isinstance(x, ContextVar):
            value = value_in_context(x)
            if not isinstance(value, Tensor):
                self._link(x, "get", Kind.CONTEXT, value, ".get()")
            return
        self._classes.setdefault(type(x), _Class(type(x)))
        for name, value in vars(x).items():
            if not isinstance(value, Tensor):
                self._link(x, name, Kind.ATTRIBUTE, value, f".{name}")

    def _visit_items(self, x: Any) -> None:
        items = list(x.items() if isinstance(x, dict) else enumerate(x))
        many = len(items) > MAX_ITEMS
        if not isinstance(x, (tuple, frozenset)):
            self.sizes.append((x, len(x)))
        if isinstance(x, (dict, set)) and not many and not any(isinstance(k, Tensor) for k in x):
            self.keys.append((x, tuple(x)))
        if isinstance(x, (set, frozenset)):
            # the place of an item in it has no name
            self.opaque.append(x)
            return
        for key, value in items:
            if isinstance(x, tuple) and not isinstance(value, Tensor):
                self._follow(value)
            elif not (many and isinstance(value, SCALARS)):
                self._link(x, key, Kind.ITEM, value)

    def _visit_instance(self, x: Any) -> None:
        kind = type(x)
        attributes = attributes_of(x)
        if is_library_name(module_of(kind)):
            if attributes is not None and root_of(kind) in sys.stdlib_module_names:
                # such as a namespace of options; the code of a UserDict names what it is made of
                follows_all = self._all or isinstance(x, Container)
                self._know(attributes)
                if not (follows_all or isinstance(x, SimpleNamespace)):
                    self.internals.add(id(attributes))
                self._instances.append(_Instance(attributes, None, follows_all, self._origin))
            elif attributes is None and not isinstance(x, _CONTAINERS):
                self.opaque.append(x)
            return
        found = self._classes.setdefault(kind, _Class(kind))
        if attributes is not None:
            self._know(attributes)
            self._instances.append(_Instance(attributes, found, self._all, self._origin))
        for name, value in slots_of(x):
            self._link(x, name, Kind.ATTRIBUTE, value, f".{name}")

    def _name_attributes(self, x: _Instance) -> None:
        names = self._names | x.owner.names if x.owner is not None else self._names
        follows_all = x.follows_all or (self._computes_names and x.owner is not None)
        for name, value in list(x.attributes.items()):
            if name not in x.done and (follows_all or name in names):
                x.done.add(name)
                self._link(x.attributes, name, Kind.ITEM, value, f".{name}", x.origin)

    def _name_methods(self, x: _Class) -> None:
        """Follow the methods and attributes of a class that are named by now."""
        for kind in x.kind.__mro__:
            if is_library_name(module_of(kind)) or module_of(kind) == "builtins":
                continue
            own = module_of(kind).startswith(OWN_PACKAGES)
            for name, member in list(vars(kind).items()):
                named = name in self._names or name in x.names
                if (kind, name) in x.done or not (named or is_operator(name)):
                    continue
                x.done.add((kind, name))
                functions = list(functions_of(member))
                if own:
                    x.names.update(*(names_of(f.__code__).attributes for f in functions))
                else:
                    self._queue.extend((f, "") for f in functions)
                if named and not functions and not is_descriptor(member):
                    label = f"{kind.__name__}.{name}"
                    self._link(kind, name, Kind.ATTRIBUTE, member, label)
                    x.attributes.append(name)


class _Instance:
    """The attributes of an object or module, and the names of those that were followed."""

    def __init__(
        self,
        attributes: dict[str, Any],
        owner: _Class | None,
        follows_all: bool,
        origin: Link | str,
    ) -> None:
        self.attributes = attributes
        self.owner = owner
        self.follows_all = follows_all
        self.origin = origin
        self.done: set[str] = set()


class _Class:
    """A class, what was followed of it, and the names that its methods of this library use."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.names: set[str] = set()
        self.attributes: list[str] = []
        self.done: set[tuple[type, str]] = set()
