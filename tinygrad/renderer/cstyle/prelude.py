"""Preludes: the named functions that the kernels of a GPU dialect are written with.

A prelude is a file of paragraphs, each a definition of one name: a function, a macro or a type. A
kernel's source has those that it uses, and they alone have intrinsics and inline assembly.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "preludes"
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"//[^\n]*\n")
_DEFINED = re.compile(r"#define (\w+)|struct (\w+) \{|typedef .*\b(\w+);\s*$|(\w+)\(")


@functools.cache
def read_prelude(file: str) -> Mapping[str, str]:
    """The definitions of a prelude, as text by name. Equal names are overloads."""
    definitions: dict[str, str] = {}
    for paragraph in (FOLDER / file).read_text().split("\n\n"):
        text = paragraph.strip() + "\n"
        code = _COMMENT.sub("", text)
        if code:
            name = _defined_name(code)
            definitions[name] = definitions.get(name, "") + text
    return definitions


def _defined_name(code: str) -> str:
    found = _DEFINED.search(code)
    assert found is not None, f"no definition in {code!r}"
    return next(name for name in found.groups() if name)


def used_definitions(text: str, definitions: Mapping[str, str]) -> str:
    """The definitions that `text` uses, directly or not, in order of dependency."""
    found: dict[str, str] = {}

    def visit(source: str) -> None:
        for name in _IDENTIFIER.findall(source):
            if name in definitions and name not in found:
                found[name] = ""  # a definition may contain its own name
                visit(definitions[name])
                del found[name]
                found[name] = definitions[name]

    visit(text)
    return "".join(found.values())
