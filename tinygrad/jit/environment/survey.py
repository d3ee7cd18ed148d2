"""Survey: what a function reaches by the names in its code.

Input: a function, the object that it is a method of, and the objects among its arguments. Output:
`Link`s: a container, a key, and the value found there, for closure cells, globals, attributes and
items. Invariant: a link is a place that the function can read; code of this library and of Python's
own modules is not followed, nor are attributes that no reachable code names.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import deque
from collections.abc import Container, Iterable
from contextlib import suppress
from enum import Enum
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any

from tinygrad import fast_enum
from tinygrad.dtype import DType
from tinygrad.jit.environment.code_names import names_of
from tinygrad.jit.environment.inspection import (
    OWN_PACKAGES,
    Followed,
    attributes_of,
    functions_of,
    is_descriptor,
    is_library,
    is_library_name,
    is_operator,
    module_of,
    root_of,
    slots_of,
)
from tinygrad.jit.environment.links import Kind, Link
from tinygrad.jit.inputs import comparable
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
MAX_ARRAY_BYTES = 1 << 12
"""The content of an array is followed up to this size."""
# the names by which code reads or writes gradients
_GRADIENTS = frozenset({"backward", "grad"})


class Survey:
    """The `links` that are reachable from `roots`, and the `opaque` objects that were not followed.

    With `all_attributes`, also those of attributes that no code names.
    """

    def __init__(self, roots: Iterable[Any], all_attributes: bool = False) -> None:
        self.links: list[Link] = []
        self.sizes: list[tuple[Any, int]] = []
        """The lists, deques and dicts that were reached, and their lengths."""
        self.arrays: list[tuple[Any, Any]] = []
        """The small arrays that were reached, and keys of their content."""
        self.opaque: list[Any] = []
        self.known: dict[int, Any] = {}
        """The objects that were reached, other than tensors, by id."""
        self._all = all_attributes
        self._names: set[str] = set()
        self._seen: dict[int, Any] = {}
        self._instances: list[_Instance] = []
        # tensors whose gradients were not followed
        self._fresh: list[Tensor] = []
        self._classes: dict[type, _Class] = {}
        self._queue = deque(roots)
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
                self._visit(self._queue.popleft())

    def _name_more(self) -> bool:
        """Follow methods and attributes that are named by now; returns whether there were any."""
        before = len(self.links), len(self._queue), len(self._names)
        for found in self._classes.values():
            self._name_methods(found)
        for instance in self._instances:
            self._name_attributes(instance)
        if self._makes_gradients():
            for x in self._fresh:
                if x.grad is not None or x.requires_grad:
                    self._link(x, "grad", Kind.ATTRIBUTE, x.grad)
            self._fresh = []
        return before != (len(self.links), len(self._queue), len(self._names))

    def _makes_gradients(self) -> bool:
        """Whether code reads or writes gradients, or calls a method of this library that does."""
        if not self._names.isdisjoint(_GRADIENTS):
            return True
        return not all(_GRADIENTS.isdisjoint(found.names) for found in self._classes.values())

    def _link(self, holder: Any, key: Any, kind: Kind, value: Any) -> None:
        if is_library(value):
            return
        self.links.append(Link(holder, key, kind, value))
        self._queue.append(value)

    def _visit(self, x: Any) -> None:
        if type(x) in weakref.ProxyTypes or isinstance(x, SCALARS) or id(x) in self._seen:
            return
        self._seen[id(x)] = x
        if isinstance(x, Tensor):
            self._fresh.append(x)
        elif isinstance(x, FunctionType):
            self._visit_function(x)
        elif isinstance(x, MethodType):
            self._queue.extend((x.__func__, x.__self__))
        elif isinstance(x, functools.partial):
            self._queue.extend((x.func, *x.args, *x.keywords.values()))
        elif isinstance(x, (list, tuple, deque, dict)):
            self._visit_items(x)
            self._visit_instance(x)
        elif isinstance(x, ModuleType):
            self._seen[id(vars(x))] = vars(x)
            self._instances.append(_Instance(vars(x), None, follows_all=False))
        elif isinstance(x, type):
            self._classes.setdefault(x, _Class(x))
        elif root_of(type(x)) == "numpy":
            if getattr(x, "nbytes", 0) <= MAX_ARRAY_BYTES:
                self.arrays.append((x, comparable(x)))
        elif isinstance(x, Followed):
            self._queue.extend(x.roots())
        elif isinstance(x, BuiltinFunctionType):
            self._queue.append(x.__self__)
        else:
            self._visit_instance(x)

    def _visit_function(self, x: FunctionType) -> None:
        names = names_of(x.__code__)
        self._names |= names.attributes
        self._seen[id(x.__globals__)] = x.__globals__
        # of globals()["name"], the name is a constant
        named = names.globals | names.attributes if "globals" in names.globals else names.globals
        for name in sorted(named):
            if name in x.__globals__:
                self._link(x.__globals__, name, Kind.ITEM, x.__globals__[name])
        for cell in x.__closure__ or ():
            self._seen[id(cell)] = cell
            with suppress(ValueError):  # it may be empty
                self._link(cell, "cell_contents", Kind.ATTRIBUTE, cell.cell_contents)
        for name in ("__defaults__", "__kwdefaults__"):
            if getattr(x, name) is not None:
                self._link(x, name, Kind.ATTRIBUTE, getattr(x, name))

    def _visit_items(self, x: Any) -> None:
        items = list(x.items() if isinstance(x, dict) else enumerate(x))
        if not isinstance(x, tuple):
            self.sizes.append((x, len(x)))
        many = len(items) > MAX_ITEMS
        for key, value in items:
            if isinstance(x, tuple) and not isinstance(value, Tensor):
                self._queue.append(value)
            elif not (many and isinstance(value, SCALARS)):
                self._link(x, key, Kind.ITEM, value)

    def _visit_instance(self, x: Any) -> None:
        kind = type(x)
        attributes = attributes_of(x)
        if is_library_name(module_of(kind)):
            if attributes is not None and root_of(kind) in sys.stdlib_module_names:
                # such as a namespace of options; the code of a UserDict names what it is made of
                follows_all = self._all or isinstance(x, Container)
                self._seen[id(attributes)] = attributes
                self._instances.append(_Instance(attributes, None, follows_all))
            elif attributes is None and not isinstance(x, (list, tuple, deque, dict)):
                self.opaque.append(x)
            return
        found = self._classes.setdefault(kind, _Class(kind))
        if attributes is not None:
            self._seen[id(attributes)] = attributes
            self._instances.append(_Instance(attributes, found, self._all))
        for name, value in slots_of(x):
            self._link(x, name, Kind.ATTRIBUTE, value)

    def _name_attributes(self, x: _Instance) -> None:
        names = self._names | x.owner.names if x.owner is not None else self._names
        for name, value in list(x.attributes.items()):
            if name not in x.done and (x.follows_all or name in names):
                x.done.add(name)
                self._link(x.attributes, name, Kind.ITEM, value)

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
                    self._queue.extend(functions)
                if named and not functions and not is_descriptor(member):
                    self._link(kind, name, Kind.ATTRIBUTE, member)
                    x.attributes.append(name)


class _Instance:
    """The attributes of an object or module, and the names of those that were followed."""

    def __init__(self, attributes: dict[str, Any], owner: _Class | None, follows_all: bool) -> None:
        self.attributes = attributes
        self.owner = owner
        self.follows_all = follows_all
        self.done: set[str] = set()


class _Class:
    """A class, what was followed of it, and the names that its methods of this library use."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.names: set[str] = set()
        self.attributes: list[str] = []
        self.done: set[tuple[type, str]] = set()
