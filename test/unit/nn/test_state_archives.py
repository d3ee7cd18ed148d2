"""Byte tensors as files; tar and zip archives, valid and damaged."""

from __future__ import annotations

import io
import tarfile
import zipfile

import numpy as np
import pytest

from tinygrad import GlobalCounters, Tensor, dtypes
from tinygrad.nn.state import (
    FileFormatError,
    TensorIO,
    accept_filename,
    tar_extract,
    zip_archive,
    zip_extract,
)
from tinygrad.runtime.disk import DiskAllocator

FILES = {
    "a.txt": b"hello",
    "folder/b.bin": bytes(range(256)) * 3,
    "empty": b"",
    f"{'long/' * 40}name": b"far away",
    "ünïcode": b"u",
}


def tar_of(files: dict[str, bytes], tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tar_format) as archive:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "a.txt"
        archive.addfile(link)
        for name, content in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return packed.getvalue()


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.mkdir("folder")
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def contents(tensors: dict[str, Tensor]) -> dict[str, bytes]:
    return {name: bytes(tensor.to("CPU").data()) for name, tensor in tensors.items()}


def patched(content: bytes, position: int, new: bytes) -> bytes:
    """`content` with bytes replaced at a position; negative positions count from the end."""
    position %= len(content)
    return content[:position] + new + content[position + len(new) :]


# ---- TensorIO ----


@pytest.fixture(params=["memory", "disk", "part"])
def bytes_0_to_99(request, tmp_path) -> Tensor:
    content = bytes(range(100))
    if request.param == "memory":
        return Tensor(content)
    (tmp_path / "file").write_bytes(content if request.param == "disk" else b"xyz" + content + b"x")
    whole = Tensor(tmp_path / "file")
    return whole if request.param == "disk" else whole[3:103]


def test_reading_and_seeking(bytes_0_to_99):
    file = TensorIO(bytes_0_to_99)
    assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
    assert file.read(3) == bytes([0, 1, 2])
    assert file.tell() == 3
    assert file.read(0) == b""
    assert file.seek(-2, io.SEEK_END) == 98
    assert file.read() == bytes([98, 99])
    assert (file.read(), file.read(5)) == (b"", b"")
    assert file.seek(-90, io.SEEK_CUR) == 10
    buffer = bytearray(4)
    assert (file.readinto(buffer), bytes(buffer)) == (4, bytes([10, 11, 12, 13]))
    assert file.seek(1000) == 1000
    assert (file.read(1), file.readinto(buffer)) == (b"", 0)
    file.seek(9)
    assert file.readline() == bytes([9, 10])
    assert file.readall() == bytes(range(11, 100))


def test_invalid_operations_on_a_file_are_errors(bytes_0_to_99):
    file = TensorIO(bytes_0_to_99)
    with pytest.raises(ValueError, match="no byte -1"):
        file.seek(-1)
    with pytest.raises(ValueError, match="whence"):
        file.seek(0, 7)
    with pytest.raises(io.UnsupportedOperation):
        file.write(b"x")
    file.close()
    for use in (file.read, file.tell, lambda: file.seek(0)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_libraries_read_it(bytes_0_to_99):
    with io.BufferedReader(TensorIO(bytes_0_to_99)) as buffered:
        assert buffered.peek(1)[:1] == b"\0"
        assert buffered.read() == bytes(range(100))


@pytest.mark.parametrize("tensor", [Tensor([1.0]), Tensor([[1]], dtype=dtypes.uint8), Tensor(1)])
def test_a_file_is_a_tensor_of_bytes(tensor):
    for use in (TensorIO, tar_extract, zip_extract):
        with pytest.raises(ValueError, match="a file is a tensor of bytes"):
            use(tensor)


def test_a_file_on_several_devices_is_an_error_that_names_the_fix():
    with pytest.raises(ValueError, match=r"move them with .to\('CPU'\)"):
        TensorIO(Tensor(b"1234").shard(("CPU", "CPU:1")))


def test_a_function_of_bytes_takes_names_and_keywords(tmp_path):
    @accept_filename
    def size(content: Tensor) -> int:
        """Bytes."""
        return int(content.numel())

    (tmp_path / "file").write_bytes(b"1234")
    assert size(tmp_path / "file") == size(str(tmp_path / "file")) == 4
    assert size(content=Tensor(b"12")) == 2
    assert (size.__name__, size.__doc__) == ("size", "Bytes.")
    with pytest.raises(FileNotFoundError):
        size(tmp_path / "missing")


# ---- archives ----

TAR_FORMATS = [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]


@pytest.mark.parametrize("tar_format", TAR_FORMATS)
def test_the_files_of_a_tar_archive(tmp_path, tar_format):
    (tmp_path / "a.tar").write_bytes(tar_of(FILES, tar_format))
    assert contents(tar_extract(tmp_path / "a.tar")) == FILES
    assert contents(tar_extract(Tensor(tmp_path / "a.tar"))) == FILES


def test_of_two_files_with_one_name_the_last_counts():
    first, second = tar_of({"a": b"1"}), tar_of({"a": b"2"})
    without_end = first[: first.rindex(b"1") // 512 * 512 + 512]
    assert contents(tar_extract(Tensor(without_end + second))) == {"a": b"2"}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_files_of_a_zip_archive(tmp_path, method):
    (tmp_path / "a.zip").write_bytes(zip_of(FILES, method))
    assert contents(zip_extract(str(tmp_path / "a.zip"))) == FILES
    assert contents(zip_extract(Tensor(tmp_path / "a.zip"))) == FILES


def test_a_zip_archive_after_other_bytes():
    assert contents(zip_extract(Tensor(b"#!/bin/sh\n" + zip_of(FILES)))) == FILES


def test_lazy_bytes_are_computed_once():
    content = Tensor(tar_of(FILES)) + 1 - 1
    before = GlobalCounters.kernel_count
    assert contents(tar_extract(content)) == FILES
    assert GlobalCounters.kernel_count == before + 1


@pytest.mark.parametrize(("pack", "extract"), [(tar_of, tar_extract), (zip_of, zip_extract)])
def test_files_of_an_archive_on_disk_are_not_read(tmp_path, monkeypatch, pack, extract):
    (tmp_path / "archive").write_bytes(pack({"big": b"x" * 100_000, "small": b"y"}))
    mapped: list[int] = []
    as_memoryview = DiskAllocator.as_memoryview

    def counted(self, allocation, offset, nbytes):
        mapped.append(nbytes)
        return as_memoryview(self, allocation, offset, nbytes)

    monkeypatch.setattr(DiskAllocator, "as_memoryview", counted)
    files = extract(tmp_path / "archive")
    assert str(files["big"].device).startswith("DISK:")
    assert 0 < sum(mapped) < 10_000
    assert bytes(files["small"].to("CPU").data()) == b"y"


# ---- invalid archives ----


@pytest.mark.parametrize("tar_format", TAR_FORMATS)
def test_a_tar_archive_truncated_anywhere(tar_format):
    content = tar_of({"a.txt": b"hello", "n" * 99: b"1234"}, tar_format)
    end = content.rindex(b"1234") + 512 - content.rindex(b"1234") % 512
    for length in range(0, end, 37):
        with pytest.raises(FileFormatError, match="cut off"):
            tar_extract(Tensor(content[:length]))


def tar_with(position: int, new: bytes) -> bytes:
    """An archive of one file with a changed header and its checksum."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        header = tarfile.TarInfo("a.txt")
        header.size = 5
        archive.addfile(header, io.BytesIO(b"hello"))
    content = patched(patched(packed.getvalue(), position, new), 148, b" " * 8)
    return patched(content, 148, b"%06o\0 " % sum(content[:512]))


def pax_with(record: bytes) -> bytes:
    """An archive of one file with this record of a pax header before it."""
    extra = patched(tar_of({}, tarfile.USTAR_FORMAT)[:512], 0, b"PaxHeader\0")
    extra = patched(extra, 124, b"%011o\0" % len(record))
    extra = patched(patched(extra, 156, b"x"), 148, b" " * 8)
    extra = patched(extra, 148, b"%06o\0 " % sum(extra))
    return extra + record.ljust(512, b"\0") + tar_with(0, b"a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a tar archive" * 100, "no tar header at byte 0"),
        (tar_with(124, b"77777777777\0"), "8589934591 bytes from byte 512 on"),
        (tar_with(124, b"\x80" + b"\xff" * 11), "it was cut off"),
        (tar_with(124, b"\xff" * 12), "for a number"),
        (tar_with(124, b"-0000000005\0"), "for a number"),
        (tar_with(156, b"S"), "a sparse file"),
        (patched(tar_with(0, b"a"), 3, b"?"), "no tar header"),
        (pax_with(b"99 path=b\n"), "no record at byte 0"),
        (pax_with(b"9 path=b!"), "no record at byte 0"),
        (pax_with(b"0 path=b\n"), "no record at byte 0"),
        (pax_with(b"-9 path=b\n"), "'-9' for a number"),
        (pax_with(b"11 size=-5\n"), "'-5' for a number"),
        (pax_with(b"22 GNU.sparse.major=1\n"), "sparse"),
    ],
)
def test_an_invalid_tar_archive(content, message):
    with pytest.raises(FileFormatError, match=message):
        tar_extract(Tensor(content))


def test_a_pax_header_describes_the_next_file():
    assert contents(tar_extract(Tensor(pax_with(b"9 path=b\n")))) == {"b": b"hello"}
    assert contents(tar_extract(Tensor(pax_with(b"9 size=3\n")))) == {"a.txt": b"hel"}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_archive_truncated_anywhere(method):
    content = zip_of({"a.txt": b"hello" * 10}, method)
    for length in range(0, len(content), 5):
        with pytest.raises(FileFormatError, match="not a zip archive"):
            zip_extract(Tensor(content[:length]))


STORED = zip_of({"a": b"hello"})
DEFLATED = zip_of({"a": b"hello" * 100}, zipfile.ZIP_DEFLATED)


def in_directory(content: bytes, position: int, new: bytes) -> bytes:
    """An archive with a changed directory entry of its last file."""
    return patched(content, content.rindex(b"PK\1\2") + position, new)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (in_directory(STORED, 42, b"\xff\xff\xff\x7f"), "'a' is at byte 2147483647"),
        (in_directory(STORED, 42, b"\x05\0\0\0"), "no file at byte 5"),
        (in_directory(STORED, 20, b"\xff\xff\xff\x7f"), "it was cut off"),
        (in_directory(STORED, 24, b"\x06\0\0\0"), "stored as 5 bytes, but should have 6"),
        (in_directory(STORED, 8, b"\1"), "encrypted"),
        (in_directory(STORED, 10, b"\x0c"), "compressed by method 12"),
        (in_directory(DEFLATED, 24, b"\xf3\1\0\0"), "does not inflate to the 499 bytes"),
        (in_directory(DEFLATED, 24, b"\xf5\1\0\0"), "does not inflate to the 501 bytes"),
        (in_directory(DEFLATED, 16, b"\0\0\0\0"), "checksum"),
        (in_directory(DEFLATED, 24, b"\xff\xff\xff\x7f"), "zip bomb"),
        (in_directory(STORED, 10, b"\x08"), "is damaged|does not inflate"),
        (zip_of({"a": b"1", "b": b"2"}).replace(b"b", b"a"), "two files called 'a'"),
    ],
)
def test_an_invalid_zip_archive(content, message):
    with pytest.raises(FileFormatError, match=message):
        zip_extract(Tensor(content))


@pytest.mark.parametrize("place", ["file", "memory"])
def test_a_changed_byte_of_a_stored_file_is_an_error_where_it_is_read(tmp_path, place):
    content = np.arange(5000).astype(np.uint8).tobytes()
    packed = zip_of({"empty": b"", "b": b"1", "a": content})

    def extracted(archive: bytes) -> dict[str, Tensor]:
        if place == "memory":
            return zip_extract(Tensor(archive))
        (tmp_path / "a.zip").write_bytes(archive)
        return zip_extract(tmp_path / "a.zip")

    assert extracted(packed)["a"].numpy().tobytes() == content
    start = packed.index(content)
    changed = [patched(packed, start + at, bytes([content[at] ^ 64])) for at in (0, 99, 4999)]
    for archive in (*changed, in_directory(packed, 16, b"\1\2\3\4")):
        for read in (Tensor.numpy, lambda x: x[:2].tolist(), lambda x: x.bitcast("int")[5].item()):
            with pytest.raises(FileFormatError, match="'a' is damaged: its checksum"):
                read(extracted(archive)["a"])
    # no checksum
    assert extracted(in_directory(packed, 16, bytes(4)))["a"].numpy().tobytes() == content


def test_other_files_of_a_damaged_archive_and_what_is_written_to_it_are_read(tmp_path):
    content = np.arange(100, dtype=np.uint8)
    packed = zip_of({"a": b"hello", "b": content.tobytes(), "c": b"world"})
    (tmp_path / "a.zip").write_bytes(patched(packed, packed.index(content.tobytes()), b"\7"))
    files = zip_extract(tmp_path / "a.zip")
    for _ in range(2):
        assert [bytes(files[name].data()) for name in "ac"] == [b"hello", b"world"]
        with pytest.raises(FileFormatError, match="'b' is damaged"):
            files["b"].tolist()
    files["a"][:1].assign(Tensor([74], dtype=dtypes.uint8))
    assert bytes(files["a"].data()) == b"Jello"


def test_files_of_a_zip_archive_that_overlap():
    content = zip_of({"a": b"1", "b": b"2"})
    start = content[content.rindex(b"PK\1\2") :][42:46]
    first = content.index(b"PK\1\2", content.index(b"PK\1\2") + 1)
    assert content[first + 42 : first + 46] != start
    with pytest.raises(FileFormatError, match="overlaps another file"):
        zip_extract(Tensor(patched(content, first + 42, start)))


def test_a_zip_bomb_is_refused_before_it_is_inflated(tmp_path, monkeypatch):
    monkeypatch.setattr(zip_archive, "MAX_INFLATED_BYTES", 1 << 20)
    parts = {str(number): bytes(1 << 17) for number in range(9)}
    (tmp_path / "bomb.zip").write_bytes(zip_of(parts, zipfile.ZIP_DEFLATED))
    with pytest.raises(FileFormatError, match=r"bomb\.zip: .*looks like a zip bomb"):
        zip_extract(tmp_path / "bomb.zip")
