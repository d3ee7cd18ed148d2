"""The tar format (POSIX.1-2001 pax, ustar, GNU long names, V7): files in an archive as tensors.

Input: a tensor of the bytes of an uncompressed archive. Output: a view of those bytes for each
regular file. Headers are not trusted: checksums are verified, and sizes checked against the
archive. An archive ends with a block of zeros; without one it was truncated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tinygrad.dtype import dtypes
from tinygrad.helpers import round_up
from tinygrad.nn.state.file_bytes import (
    FileFormatError,
    accept_filename,
    name_of_file,
    read_bytes,
    shown,
    view_bytes,
)
from tinygrad.tensor import Tensor

BLOCK_BYTES = 512
# header types other than regular files; unknown types are skipped with their content
FILE_TYPES = frozenset({b"0", b"\0", b"7"})
TYPES_WITHOUT_CONTENT = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})
LONG_NAME, PAX, PAX_FOR_ALL, SPARSE = b"L", b"x", b"g", b"S"


@dataclass(frozen=True)
class Member:
    """A header's name and type, and the position of its content."""

    name: str
    kind: bytes
    start: int
    stop: int


@accept_filename
def tar_extract(t: Tensor) -> dict[str, Tensor]:
    """The regular files of a tar archive by name, each `(bytes,)` of uint8.

    Takes a file's name or a tensor of its bytes. Each file is a view: of an archive on disk, only
    headers are read until it is used. The last of several files of one name is returned. Raises
    FileFormatError, a ValueError, if the archive is not valid, was cut off, or is compressed.

    >>> import io, tarfile
    >>> with tarfile.open(fileobj=(packed := io.BytesIO()), mode="w") as archive:
    ...     (header := tarfile.TarInfo("greeting")).size = 2
    ...     archive.addfile(header, io.BytesIO(b"hi"))
    >>> bytes(nn.state.tar_extract(Tensor(packed.getvalue()))["greeting"].data())
    b'hi'
    """
    return {
        member.name: view_bytes(t, member.start, dtypes.uint8, (member.stop - member.start,))
        for member in _files(t)
    }


def _files(t: Tensor) -> Iterator[Member]:
    """The regular files, with long names and pax headers applied."""
    for_all: dict[str, str] = {}
    for_next: dict[str, str] = {}
    position = 0
    while (member := _member(t, position, for_all | for_next)) is not None:
        if member.kind == LONG_NAME:
            content = read_bytes(t, member.start, member.stop)
            for_next["path"] = _text(content.partition(b"\0")[0])
        elif member.kind in {PAX, PAX_FOR_ALL}:
            records = _pax_records(t, member)
            (for_next if member.kind == PAX else for_all).update(records)
        else:
            for_next = {}
            if member.kind == SPARSE:
                raise FileFormatError(
                    f"{name_of_file(t)}: {shown(member.name)} is a sparse file, which is not read"
                )
            if member.kind in FILE_TYPES and not member.name.endswith("/"):
                yield member
        position = round_up(member.stop, BLOCK_BYTES)


def _member(t: Tensor, position: int, said: dict[str, str]) -> Member | None:
    """The member whose header is at a byte offset; None at the end of the archive."""
    where, size = name_of_file(t), int(t.numel())
    if position + BLOCK_BYTES > size:
        raise FileFormatError(f"{where}: the tar archive of {size} bytes was cut off")
    header = read_bytes(t, position, position + BLOCK_BYTES)
    if not any(header):
        return None
    checksum = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    if _octal(header[148:156]) != checksum:
        raise FileFormatError(
            f"{where}: there is no tar header at byte {position}; this is not a tar archive, "
            "it is compressed, or it is damaged"
        )
    kind = header[156:157]
    name = _text(header[:100].partition(b"\0")[0])
    prefix = _text(header[345:500].partition(b"\0")[0])
    if prefix and header[257:263] == b"ustar\0":
        name = f"{prefix}/{name}"
    length = _number(header[124:136], where)
    if kind not in {LONG_NAME, PAX, PAX_FOR_ALL}:
        name = said.get("path", name)
        length = _decimal(said["size"], where) if "size" in said else length
    start = position + BLOCK_BYTES
    stop = start + (0 if kind in TYPES_WITHOUT_CONTENT else length)
    if stop > size:
        raise FileFormatError(
            f"{where}: {shown(name)} has {length} bytes from byte {start} on, but the archive has "
            f"{size} in all; it was cut off"
        )
    return Member(name, kind, start, stop)


def _pax_records(t: Tensor, member: Member) -> dict[str, str]:
    """The records `length key=value` of a pax header."""
    records: dict[str, str] = {}
    where = name_of_file(t)
    content = read_bytes(t, member.start, member.stop)
    position = 0
    while position < len(content) and content[position]:
        digits = content[position : position + 20].partition(b" ")[0]
        stop = position + _decimal(_text(digits), where)
        record = content[position + len(digits) + 1 : stop]
        key, equals, value = record.partition(b"=")
        if stop > len(content) or not equals or not value.endswith(b"\n"):
            raise FileFormatError(f"{where}: a pax header has no record at byte {position}")
        records[_text(key)] = _text(value[:-1])
        position = stop
    if any(key.startswith("GNU.sparse") for key in records):
        raise FileFormatError(f"{where}: {shown(records)} is a sparse file, which is not read")
    return records


def _number(field: bytes, where: str) -> int:
    """A number in a header: octal digits, or binary if the first bit is set."""
    found = int.from_bytes(field[1:], "big") if field[0] == 0x80 else _octal(field)
    if found is None:
        raise FileFormatError(f"{where}: a tar header has {field!r} for a number")
    return found


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    return int(digits or b"0", 8) if all(digit in b"01234567" for digit in digits) else None


def _decimal(text: str, where: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 20:
        raise FileFormatError(f"{where}: a pax header has {shown(text)} for a number")
    return int(text)


def _text(content: bytes) -> str:
    """A name; bytes that are not UTF-8 are kept as surrogates, as in Python's `tarfile`."""
    return content.decode("utf-8", "surrogateescape")
