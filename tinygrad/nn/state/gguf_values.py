"""A reader of the values in a GGUF file's header.

Input: the bytes of a header, which are not trusted. Output: numbers, strings, and nested lists of
them. Invariants: a count is checked against the remaining bytes before anything of that size is
allocated, and the depth of nested arrays is limited.
"""

from __future__ import annotations

import struct
from typing import Any

from tinygrad.nn.state.file_bytes import FileFormatError, shown

MAX_HEADER_BYTES = 100_000_000
MAX_NESTED_ARRAYS = 8

# the types of values: the format characters of `struct`
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
BOOL, STRING, ARRAY = 7, 8, 9
# the minimum bytes of a value; a string has a length, an array a type and a length
MIN_BYTES = {
    **{number: struct.calcsize(f"<{code}") for number, code in NUMBERS.items()},
    BOOL: 1,
    STRING: 8,
    ARRAY: 12,
}


class HeaderReader:
    """Reads a header from its start. Every method raises FileFormatError for invalid content.

    `where` names the file in messages, and `what` the value that is being read.
    """

    def __init__(self, data: memoryview, where: str) -> None:
        self.data = data
        self.where = where
        self.at = 0

    def error(self, problem: str) -> FileFormatError:
        """The error for this file."""
        return FileFormatError(f"{self.where}: {problem}")

    def take(self, nbytes: int, what: str) -> memoryview:
        """The next bytes."""
        start = self.at
        self._check_left(nbytes, what)
        self.at = start + nbytes
        return self.data[start : self.at]

    def integer(self, code: str, what: str) -> int:
        """An integer of the type that `struct` calls `code`."""
        (value,) = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}"), what))
        return int(value)

    def count(self, what: str, least_bytes: int) -> int:
        """A count of values that follow, of at least `nbytes` bytes each."""
        count = self.integer("Q", what)
        self._check_left(count * least_bytes, f"{what}, {count},")
        return count

    def text(self, what: str) -> str:
        """A string: its length in bytes, and UTF-8."""
        return self._texts(1, what)[0]

    def value(self, what: str) -> Any:
        """A value of any type: its type, then its content."""
        return self._values(self._kind(what), 1, what, 0)[0]

    def _kind(self, what: str) -> int:
        kind = self.integer("I", f"the type of {what}")
        if kind not in MIN_BYTES:
            raise self.error(f"{what} is of type {kind}, which GGUF does not have")
        return kind

    def _values(self, kind: int, count: int, what: str, depth: int) -> list[Any]:
        """Values of one type, at a depth of nested arrays."""
        if kind in NUMBERS:
            code = f"<{count}{NUMBERS[kind]}"
            return list(struct.unpack(code, self.take(struct.calcsize(code), what)))
        if kind == BOOL:
            return self._bools(count, what)
        if kind == STRING:
            return self._texts(count, what)
        if depth == MAX_NESTED_ARRAYS:
            raise self.error(f"{what} has arrays in arrays more than {MAX_NESTED_ARRAYS} deep")
        return [self._array(what, depth + 1) for _ in range(count)]

    def _array(self, what: str, depth: int) -> list[Any]:
        """An array: a type, a length, then the values."""
        kind = self._kind(f"an element of {what}")
        count = self.count(f"the length of {what}", MIN_BYTES[kind])
        return self._values(kind, count, what, depth)

    def _bools(self, count: int, what: str) -> list[bool]:
        values = bytes(self.take(count, what))
        if values.translate(None, b"\0\1"):
            raise self.error(f"{what} has a truth value that is neither 0 nor 1")
        return [value == 1 for value in values]

    def _texts(self, count: int, what: str) -> list[str]:
        """Consecutive strings. Vocabularies are long, so this loop is inlined."""
        found: list[str] = []
        for _ in range(count):
            start = self.at + MIN_BYTES[STRING]
            stop = start + int.from_bytes(self.data[self.at : start], "little")
            if stop > len(self.data):
                self._check_left(stop - self.at, what)
            self.at = stop
            try:
                found.append(str(self.data[start:stop], "utf-8"))
            except UnicodeDecodeError as error:
                text = shown(bytes(self.data[start:stop]))
                raise self.error(f"{what} has {text}, which is not UTF-8") from error
        return found

    def _check_left(self, nbytes: int, what: str) -> None:
        left = len(self.data) - self.at
        if nbytes > left:
            raise self.error(
                f"{what} takes {nbytes} bytes, but {left} are left of a file or of the "
                f"{MAX_HEADER_BYTES} that a header has at most; it was cut off or is not valid"
            )
