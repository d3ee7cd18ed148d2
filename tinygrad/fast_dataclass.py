"""`dataclass`, `field` and `replace` as in the standard library, for a faster import.

Input: a class with annotated fields, of a module with `from __future__ import annotations`. Output:
the same class with `__init__`, `__repr__`, and unless `eq=False` `__eq__`; a frozen one with
`__hash__` too. Type checkers see the standard library. That compiles six functions for each class,
a fifth of the time that it takes to import this package; here only `__init__` is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:
    _REQUIRED = object()

    class _Field:
        """The options of a field, as given to `field`."""

        def __init__(self, default: Any, factory: Any, repr: bool, hash: bool) -> None:
            self.default, self.default_factory = default, factory
            self.repr, self.hash = repr, hash

    def field(
        *,
        default: Any = _REQUIRED,
        default_factory: Any = None,
        repr: bool = True,
        hash: bool = True,
    ) -> Any:
        """The options of one field."""
        return _Field(default, default_factory, repr, hash)

    def replace(instance: Any, /, **changes: Any) -> Any:
        """A new instance with some of its fields changed."""
        names = type(instance)._fields_
        return type(instance)(**{name: getattr(instance, name) for name in names} | changes)

    def dataclass(
        cls: type | None = None,
        /,
        *,
        frozen: bool = False,
        init: bool = True,
        eq: bool = True,
        repr: bool = True,
    ) -> Any:
        """Make a class of fields. Without `init`, the class has an `__init__` of its own."""

        def decorate(made: type) -> type:
            fields = _fields_of(made)
            made._fields_ = fields
            made.__match_args__ = tuple(fields)
            made.__dataclass_fields__ = _StandardFields()
            if init:
                made.__init__ = _make_init(made, fields, frozen)
            if repr and "__repr__" not in vars(made):
                made.__repr__ = _make_repr([name for name, x in fields.items() if x.repr])
            if eq and "__eq__" not in vars(made):
                made.__eq__ = _make_eq(tuple(fields))
                made.__hash__ = None
            if frozen:
                if eq:
                    made.__hash__ = _make_hash([name for name, x in fields.items() if x.hash])
                made.__setattr__, made.__delattr__ = _refuse_change, _refuse_change
            return made

        return decorate if cls is None else decorate(cls)

    def _fields_of(cls: type) -> dict[str, _Field]:
        found: dict[str, _Field] = {}
        for base in cls.__mro__[:0:-1]:
            found |= vars(base).get("_fields_", {})
        for name, annotation in vars(cls).get("__annotations__", {}).items():
            if annotation.startswith("ClassVar"):
                continue
            given = vars(cls).get(name, _REQUIRED)
            if isinstance(given, _Field):
                if given.default is _REQUIRED:
                    delattr(cls, name)
                else:
                    setattr(cls, name, given.default)
            elif "__slots__" in vars(cls):
                given = _Field(_REQUIRED, None, True, True)
            else:
                given = _Field(given, None, True, True)
            found[name] = given
        return found

    def _make_init(cls: type, fields: dict[str, _Field], frozen: bool) -> Callable[..., None]:
        """`__init__`, which sets the attributes of a frozen instance in its dictionary."""
        values: dict[str, Any] = {"_REQUIRED": _REQUIRED, "_set": object.__setattr__}
        in_dictionary = frozen and cls.__dictoffset__ != 0
        parameters, lines = ["self"], ["fields = self.__dict__"] if in_dictionary else []
        for name, x in fields.items():
            value = name
            if x.default_factory is not None:
                values[f"_make_{name}"] = x.default_factory
                parameters.append(f"{name}=_REQUIRED")
                value = f"_make_{name}() if {name} is _REQUIRED else {name}"
            elif x.default is _REQUIRED:
                parameters.append(name)
            else:
                values[f"_default_{name}"] = x.default
                parameters.append(f"{name}=_default_{name}")
            if in_dictionary:
                lines.append(f"fields[{name!r}] = {value}")
            else:
                lines.append(
                    f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}"
                )
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        body = "\n ".join(lines or ["pass"])
        exec(f"def __init__({', '.join(parameters)}):\n {body}", values)
        made: Callable[..., None] = values["__init__"]
        made.__qualname__ = f"{cls.__qualname__}.__init__"
        made.__module__ = cls.__module__
        return made

    def _make_repr(names: list[str]) -> Callable[[Any], str]:
        def __repr__(self: Any) -> str:
            shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
            return f"{type(self).__qualname__}({shown})"

        return __repr__

    def _make_eq(names: tuple[str, ...]) -> Callable[[Any, object], Any]:
        values_of = attrgetter(*names) if names else type

        def __eq__(self: Any, other: object) -> Any:
            if type(other) is not type(self):
                return NotImplemented
            return values_of(self) == values_of(other)

        return __eq__

    def _make_hash(names: list[str]) -> Callable[[Any], int]:
        values_of = attrgetter(*names) if names else type

        def __hash__(self: Any) -> int:
            return hash(values_of(self))

        return __hash__

    def _refuse_change(self: Any, name: str, *value: Any) -> NoReturn:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot change field {name!r} of a frozen {type(self).__name__}")

    class _StandardFields:
        """`__dataclass_fields__`, for functions of the standard library: made where it is used."""

        def __get__(self, instance: object, owner: Any) -> dict[str, Any]:
            import dataclasses

            found = {}
            for name, x in owner._fields_.items():
                options = {"repr": x.repr, "hash": None if x.hash else False}
                if x.default_factory is not None:
                    options["default_factory"] = x.default_factory
                elif x.default is not _REQUIRED:
                    options["default"] = x.default
                made = found[name] = dataclasses.field(**options)
                made.name, made.type = name, owner.__annotations__.get(name)
                made._field_type = dataclasses._FIELD
            return found


__all__ = ["dataclass", "field", "replace"]
