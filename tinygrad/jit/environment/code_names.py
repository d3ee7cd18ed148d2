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


@dataclass(frozen=True)
class CodeNames:
    """The names of globals, and of attributes and keys."""

    globals: frozenset[str]
    attributes: frozenset[str]


@lru_cache(maxsize=4096)
def names_of(code: CodeType) -> CodeNames:
    """The names that `code`, and the functions defined in it, use."""
    found: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname in _GLOBAL:
            found.add(step.argval)
    # a global name may be an attribute elsewhere, as in `from module import name`
    attributes = set(code.co_names) - found
    attributes |= {x for x in code.co_consts if isinstance(x, str) and x.isidentifier()}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names = names_of(inner)
            found |= names.globals
            attributes |= names.attributes
    return CodeNames(frozenset(found), frozenset(attributes))
