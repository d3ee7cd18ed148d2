"""Names that the code of a function uses: globals, attributes, and constant keys.

Input: code objects. Output: their `CodeNames`, nested functions included. Invariant: a global or an
attribute that the code reads or writes by a literal name is among them, also by `getattr` with a
constant.
"""

from __future__ import annotations

import dis
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
# what finds attributes by names that are computed; `getattr` may be given a constant one
_BY_NAME = frozenset({"attrgetter", "vars", "__dict__", "__getattribute__", "dir"})
# what may stand between `getattr` and its second argument: the first, as in `getattr(self.a, "b")`
_SIMPLE = ("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "PUSH_NULL")
_CALL = ("CALL", "PRECALL")


@dataclass(frozen=True)
class CodeNames:
    """The names of globals, and of attributes and keys."""

    globals: frozenset[str]
    attributes: frozenset[str]
    computes_names: bool
    """Whether the code may use other attributes, by names that it computes."""


@lru_cache(maxsize=4096)
def names_of(code: CodeType) -> CodeNames:
    """The names that `code`, and the functions defined in it, use."""
    steps = list(dis.get_instructions(code))
    # a name that no program can write is one that a tool added to the code
    found = {x.argval for x in steps if x.opname in _GLOBAL and x.argval.isidentifier()}
    # a global name may be an attribute elsewhere, as in `from module import name`
    attributes = set(code.co_names) - found
    attributes |= {x for x in code.co_consts if isinstance(x, str) and x.isidentifier()}
    computes_names = not _BY_NAME.isdisjoint(code.co_names) or any(
        x.opname in _GLOBAL and x.argval == "getattr" and not _names_constant(steps[i + 1 :])
        for i, x in enumerate(steps)
    )
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names = names_of(inner)
            found |= names.globals
            attributes |= names.attributes
            computes_names |= names.computes_names
    return CodeNames(frozenset(found), frozenset(attributes), computes_names)


def _names_constant(steps: list[dis.Instruction]) -> bool:
    """Whether the arguments of `getattr`, which `steps` begin with, name a constant attribute."""
    names = [x.opname for x in steps]
    first = next((i for i, name in enumerate(names) if not name.startswith(_SIMPLE)), len(names))
    if names[first : first + 1] != ["LOAD_CONST"]:
        return False
    # then the call, perhaps after a simple default
    name, *rest = names[first + 1 :]
    return name.startswith(_CALL) or (name.startswith("LOAD_") and rest[0].startswith(_CALL))
