"""Text for terminals and generated code: colours, line breaks, identifiers."""

from __future__ import annotations

import os
import re
import string
import sys
from collections.abc import Collection, Sequence

from tinygrad.settings import NO_COLOR

COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def colored(text: str, color: str | None, background: bool = False) -> str:
    """`text` in a terminal colour, the bright one for a name in capitals; unchanged for None.

    >>> text = colored("warm", "red")
    >>> ansistrip(text)
    'warm'
    """
    if color is None or NO_COLOR:
        return text
    code = 30 + COLORS.index(color.lower()) + 10 * background + 60 * color.isupper()
    return f"\x1b[{code}m{text}\x1b[0m"


def highlighted(text: str, color: str) -> str:
    """`text` in a colour if standard output is a terminal, else unchanged.

    >>> print(highlighted("warm", "red"))
    warm
    """
    return colored(text, color) if sys.stdout.isatty() else text


def drop_output() -> None:
    """Drops what is left to print, after a BrokenPipeError: the reader has gone, as `head` does.

    Python would report the error again when it exits.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def ansistrip(text: str) -> str:
    """`text` without colour codes.

    >>> ansistrip("\\x1b[31mred\\x1b[0m")
    'red'
    """
    return ANSI.sub("", text)


def ansilen(text: str) -> int:
    """The width of `text` on a terminal.

    >>> ansilen("\\x1b[31mred\\x1b[0m")
    3
    """
    return len(ansistrip(text))


def word_wrap(text: str, width: int = 80) -> str:
    """`text` with line breaks so that no line is wider than `width`; colour codes have no width.

    >>> word_wrap("abcde", 2)
    'ab\\ncd\\ne'
    """
    return "\n".join(_wrap_line(line, width) for line in text.split("\n"))


def _wrap_line(line: str, width: int) -> str:
    pieces: list[str] = []
    column = 0
    for token in re.findall(rf"{ANSI.pattern}|.", line):
        if not ANSI.fullmatch(token):
            if column == width:
                pieces.append("\n")
                column = 0
            column += 1
        pieces.append(token)
    return "".join(pieces)


def aligned(rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> str:
    """Rows of equal length as a table; the columns in `numbers` are right-aligned.

    >>> print(aligned([("a", "long"), ("10", "b")], numbers={0}))
     a  long
    10  b
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if number in numbers else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def strip_parens(text: str) -> str:
    """`text` without its outer parentheses, if the first one is closed by the last character.

    >>> strip_parens("(a + b)"), strip_parens("(a) + (b)")
    ('a + b', '(a) + (b)')
    """
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]


IDENTIFIER_CHARACTERS = frozenset(string.ascii_letters + string.digits + "_")


def to_function_name(text: str) -> str:
    """`text` as a C identifier: colour codes are removed, other characters become hexadecimal.

    >>> to_function_name("a b")
    'a20b'
    """
    return "".join(
        character if character in IDENTIFIER_CHARACTERS else f"{ord(character):02X}"
        for character in ansistrip(text)
    )
