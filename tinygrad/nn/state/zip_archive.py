"""The zip format (PKWARE's APPNOTE): files in an archive as tensors.

Input: a tensor of the bytes of an archive. Output: for each file a tensor of bytes: a view if it is
stored, an inflated copy if it is deflated. Python's `zipfile` reads the directory; every offset and
size in it is checked against the file.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable

from tinygrad.dtype import dtypes
from tinygrad.nn.state.file_bytes import (
    FileFormatError,
    accept_filename,
    is_on_disk,
    memory_of,
    name_of_file,
    peek_bytes,
    read_bytes,
    shown,
    view_bytes,
)
from tinygrad.nn.state.tensor_io import TensorIO
from tinygrad.runtime.disk import DiskRegion
from tinygrad.tensor import Tensor

LOCAL_HEADER_BYTES = 30
LOCAL_HEADER_MAGIC = b"PK\3\4"
ENCRYPTED = 1
# files that exceed both of these are refused; the maximum ratio of deflate is 1032
MAX_INFLATED_BYTES = 1 << 28
MAX_INFLATED_RATIO = 200


@accept_filename
def zip_extract(t: Tensor) -> dict[str, Tensor]:
    """The files of a zip archive by name, each `(bytes,)` of uint8.

    Takes a file's name or a tensor of its bytes. A stored file is a view; its checksum is verified
    when a part of it is first read. A deflated file is inflated now. Raises FileFormatError, a
    ValueError, if the archive is invalid, damaged, truncated or encrypted, uses another
    compression, or inflates to far more than its own size.

    >>> import io, zipfile
    >>> with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
    ...     archive.writestr("greeting", b"hi")
    >>> bytes(nn.state.zip_extract(Tensor(packed.getvalue()))["greeting"].data())
    b'hi'
    """
    members = _directory(t)
    _check_inflated_size(t, members)
    return {member.filename: _content(t, member, start) for member, start in _located(t, members)}


def _directory(t: Tensor) -> list[zipfile.ZipInfo]:
    """The entries of the archive's directory."""
    where = name_of_file(t)
    try:
        with zipfile.ZipFile(TensorIO(t)) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
    except (
        *(zipfile.BadZipFile, NotImplementedError, struct.error),
        *(ValueError, OverflowError, EOFError, IndexError),
    ) as error:
        raise FileFormatError(
            f"{where}: this is not a zip archive, or is damaged: {error}"
        ) from error
    names: set[str] = set()
    for member in members:
        if member.filename in names:
            raise FileFormatError(f"{where}: there are two files called {shown(member.filename)}")
        names.add(member.filename)
    return members


def _located(t: Tensor, members: list[zipfile.ZipInfo]) -> list[tuple[zipfile.ZipInfo, int]]:
    """Each file and the byte offset of its content, in the order of the directory.

    Raises FileFormatError if one is out of bounds, or two overlap.
    """
    starts = {member.filename: _content_start(t, member) for member in members}
    covered = 0
    for member in sorted(members, key=lambda member: member.header_offset):
        if member.header_offset < covered:
            raise FileFormatError(
                f"{name_of_file(t)}: {shown(member.filename)} overlaps another file of the archive"
            )
        covered = starts[member.filename] + member.compress_size
    return [(member, starts[member.filename]) for member in members]


def _content_start(t: Tensor, member: zipfile.ZipInfo) -> int:
    """The offset of a file's content: after its own header, which has its own length."""
    where, name, size = name_of_file(t), shown(member.filename), int(t.numel())
    start = member.header_offset
    if not 0 <= start <= size - LOCAL_HEADER_BYTES:
        raise FileFormatError(f"{where}: {name} is at byte {start}, the archive has {size}")
    header = read_bytes(t, start, start + LOCAL_HEADER_BYTES)
    if header[:4] != LOCAL_HEADER_MAGIC:
        raise FileFormatError(f"{where}: there is no file at byte {start}, where {name} should be")
    name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
    content: int = start + LOCAL_HEADER_BYTES + name_bytes + extra_bytes
    if content + member.compress_size > size:
        raise FileFormatError(
            f"{where}: {name} has {member.compress_size} bytes from byte {content} on, but the "
            f"archive has {size} in all; it was cut off"
        )
    return content


def _check_inflated_size(t: Tensor, members: list[zipfile.ZipInfo]) -> None:
    declared = sum(m.file_size for m in members if m.compress_type != zipfile.ZIP_STORED)
    if declared > max(MAX_INFLATED_BYTES, MAX_INFLATED_RATIO * int(t.numel())):
        raise FileFormatError(
            f"{name_of_file(t)}: {t.numel()} bytes would inflate to {declared}, which looks like a "
            "zip bomb; if it is none, unpack the archive with another program"
        )


def _content(t: Tensor, member: zipfile.ZipInfo, start: int) -> Tensor:
    where, name = name_of_file(t), shown(member.filename)
    if member.flag_bits & ENCRYPTED:
        raise FileFormatError(f"{where}: {name} is encrypted")
    if member.compress_type == zipfile.ZIP_STORED:
        if member.file_size != member.compress_size:
            raise FileFormatError(
                f"{where}: {name} is stored as {member.compress_size} bytes, but should have "
                f"{member.file_size}"
            )
        # torch.save can be told to write 0 for each checksum
        if member.CRC:
            _check_when_read(t, member, start)
        return view_bytes(t, start, dtypes.uint8, (member.file_size,))
    if member.compress_type != zipfile.ZIP_DEFLATED:
        raise FileFormatError(
            f"{where}: {name} is compressed by method {member.compress_type}; only files that are "
            "stored (0) or deflated (8) are read"
        )
    return Tensor(_inflated(t, member, start))


def _inflated(t: Tensor, member: zipfile.ZipInfo, start: int) -> bytes:
    """The content of a deflated file, limited to its declared size."""
    where, name = name_of_file(t), shown(member.filename)
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    packed = read_bytes(t, start, start + member.compress_size)
    try:
        # 0 means no limit
        content = inflater.decompress(packed, member.file_size + 1)
    except zlib.error as error:
        raise FileFormatError(f"{where}: {name} is damaged: {error}") from error
    if len(content) != member.file_size or not inflater.eof:
        raise FileFormatError(
            f"{where}: {name} does not inflate to the {member.file_size} bytes that it declares"
        )
    _checksum_test(t, member)(memoryview(content))
    return content


def _check_when_read(t: Tensor, member: zipfile.ZipInfo, start: int) -> None:
    """Verify the checksum of a stored file: when it is read, if it is on disk, else now."""
    stop, test = start + member.file_size, _checksum_test(t, member)
    if not is_on_disk(t):
        test(peek_bytes(t, start, stop))
        return
    region = memory_of(t).handle
    assert isinstance(region, DiskRegion), "files are on DISK"
    region.file.check_before_reading(region.offset + start, region.offset + stop, test)


def _checksum_test(t: Tensor, member: zipfile.ZipInfo) -> Callable[[memoryview], None]:
    """A function of the content, which raises FileFormatError if the checksum is another one."""
    message = (
        f"{name_of_file(t)}: {shown(member.filename)} is damaged: its checksum is wrong; fetch or "
        "save the file again"
    )

    def test(content: memoryview) -> None:
        if zlib.crc32(content) != member.CRC:
            raise FileFormatError(message)

    return test
