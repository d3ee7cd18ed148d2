"""The GGUF format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.

A file is a header (metadata by key, then each tensor's type, shape and offset) and the data.
Loading maps the file and reads the header; a tensor is read when it is used. A header is not
trusted: sizes and offsets are checked against the file.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tinygrad.device import Device
from tinygrad.helpers import prod, round_up
from tinygrad.nn.state.file_bytes import (
    FileFormatError,
    accept_filename,
    bytes_of_file,
    check_shape,
    is_on_disk,
    name_of_file,
    peek_bytes,
    shown,
)
from tinygrad.nn.state.ggml import block_format
from tinygrad.nn.state.gguf_parts import names_of_parts
from tinygrad.nn.state.gguf_values import MAX_HEADER_BYTES, HeaderReader
from tinygrad.tensor import Tensor

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_AXES = 4
ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT_BYTES = 32
# the format requires multiples of it
SMALLEST_ALIGNMENT_BYTES = 8

# a key, a type and a value; a name, a number of axes, a type and an offset
MIN_METADATA_BYTES = 8 + 4 + 1
MIN_TENSOR_BYTES = 8 + 4 + 4 + 8


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file: its blocks are `nbytes` bytes, starting at `offset` of the data."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int
    nbytes: int


@accept_filename
def gguf_load(tensor: Tensor) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The metadata of a GGUF file by key, and its tensors by name.

    Takes a file's name or a tensor of its bytes. The tensors are lazy, on the device of `tensor`,
    or on the default device if it is a file, which is then read tensor by tensor. Quantised ones
    are float32, dequantised in their consumers; shapes are row-major, (rows, columns).

    If a file on disk is part of a split model, as `llm-00001-of-00002.gguf`, all parts in its
    folder are loaded, with the metadata of the first. Raises FileFormatError, a ValueError, if a
    file is invalid or has unsupported content, FileNotFoundError for a part that is missing.

    >>> a_file_of_nothing = b"GGUF" + (3).to_bytes(4, "little") + bytes(16)
    >>> nn.state.gguf_load(Tensor(a_file_of_nothing))
    ({}, {})
    """
    parts, headers = [tensor], [gguf_load_metadata(tensor)]
    if is_on_disk(tensor) and headers[0][1].get("split.count", 0) not in (0, 1):
        name = name_of_file(tensor)
        parts = [bytes_of_file(part) for part in names_of_parts(name)]
        headers = [gguf_load_metadata(part) for part in parts]
        check_parts(name, headers[0][1], [entries for _, _, entries in headers])
    loaded = {
        name: _loaded(part, data_start, entry)
        for part, (data_start, _, entries) in zip(parts, headers, strict=True)
        for name, entry in entries.items()
    }
    return headers[0][1], loaded


def check_parts(where: str, metadata: dict[str, Any], entries: Sequence[Collection[str]]) -> None:
    """Raises FileFormatError unless these tensors, by part, are all of one model, whose first part
    has this metadata.
    """
    count = metadata.get("split.count", 1)
    if count not in (0, len(entries)):
        raise FileFormatError(
            f"{where}: a model of {shown(count)} files, of which {len(entries)} are there; give "
            "the path of a file whose name ends in -00001-of-00002.gguf or the like"
        )
    different = len(set().union(*entries))
    total = sum(map(len, entries))
    expected = metadata.get("split.tensors.count", total)
    if not different == total == expected:
        raise FileFormatError(
            f"{where}: {shown(expected)} weights in {len(entries)} files, of which {different} are "
            "there; the files are not of one model"
        )


def _loaded(t: Tensor, data_start: int, entry: TensorEntry) -> Tensor:
    format = block_format(entry.ggml_type)
    if entry.nbytes == 0:
        return Tensor.empty(*entry.shape, dtype=format.dtype)
    start = data_start + entry.offset
    # with the axes of the tensor, so that sharding these shards the blocks
    blocks = (*entry.shape[:-1], -1, format.nbytes)
    data = t[start : start + entry.nbytes].reshape(blocks)
    if is_on_disk(t):
        data = data.to(Device.DEFAULT)
    return format.dequantize(data).reshape(entry.shape)


@accept_filename
def gguf_load_metadata(tensor: Tensor) -> tuple[int, dict[str, Any], dict[str, TensorEntry]]:
    """The byte offset of the data, the metadata by key, and the entry of each tensor by name.

    For consumers of quantised blocks. Raises FileFormatError as `gguf_load`.
    """
    size = int(tensor.numel())
    header = peek_bytes(tensor, 0, min(size, MAX_HEADER_BYTES))
    reader = HeaderReader(header, name_of_file(tensor))
    _check_version(reader)
    tensor_count = reader.count("the number of tensors", MIN_TENSOR_BYTES)
    metadata = _metadata(reader)
    alignment = _alignment(reader, metadata)
    entries: dict[str, TensorEntry] = {}
    for _ in range(tensor_count):
        entry = _entry(reader, alignment)
        if entry.name in entries:
            raise reader.error(f"the tensor {shown(entry.name)} is there twice")
        entries[entry.name] = entry
    data_start = round_up(reader.at, alignment)
    _check_places(reader, list(entries.values()), size - data_start)
    return data_start, metadata, entries


def _check_version(reader: HeaderReader) -> None:
    magic = bytes(reader.take(4, "the magic number"))
    if magic != MAGIC:
        raise reader.error(f"a GGUF file starts with {MAGIC!r}, not {magic!r}")
    version = reader.integer("I", "the version")
    if version & 0xFFFF == 0 and version:
        raise reader.error("this GGUF file is big-endian; only little-endian ones are supported")
    if version not in VERSIONS:
        raise reader.error(f"GGUF version {version} is not supported; {VERSIONS} are")


def _metadata(reader: HeaderReader) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(reader.count("the number of metadata entries", MIN_METADATA_BYTES)):
        key = reader.text("a key")
        if key in metadata:
            raise reader.error(f"the key {shown(key)} is there twice")
        metadata[key] = reader.value(shown(key))
    return metadata


def _alignment(reader: HeaderReader, metadata: dict[str, Any]) -> int:
    alignment = metadata.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT_BYTES)
    if type(alignment) is not int or alignment <= 0 or alignment % SMALLEST_ALIGNMENT_BYTES:
        raise reader.error(
            f"{ALIGNMENT_KEY} is {shown(alignment)}, "
            f"not a positive multiple of {SMALLEST_ALIGNMENT_BYTES}"
        )
    return alignment


# ---- tensors ----


def _entry(reader: HeaderReader, alignment: int) -> TensorEntry:
    """The header's entry of the next tensor. Raises FileFormatError if it is invalid."""
    name = reader.text("the name of a tensor")
    what = f"the tensor {shown(name)}"
    axes = reader.integer("I", what)
    if axes > MAX_AXES:
        raise reader.error(f"{what} has {axes} axes; a GGUF file has at most {MAX_AXES}")
    # the file lists the contiguous axis first
    shape = tuple(reader.integer("Q", what) for _ in range(axes))[::-1]
    ggml_type, offset = reader.integer("I", what), reader.integer("Q", what)
    if offset % alignment:
        raise reader.error(f"{what} is at {offset} of the data, no multiple of {alignment}")
    nbytes = _nbytes(reader, what, shape, ggml_type)
    return TensorEntry(name, shape, ggml_type, offset, nbytes)


def _nbytes(reader: HeaderReader, what: str, shape: tuple[int, ...], ggml_type: int) -> int:
    """The bytes of a tensor's blocks. Raises FileFormatError if its rows are not whole blocks."""
    check_shape(shape, f"{reader.where}: {what}")
    try:
        format = block_format(ggml_type)
    except ValueError as error:
        raise reader.error(f"{what}: {error}") from error
    columns = shape[-1] if shape else 1
    if columns % format.elements:
        raise reader.error(
            f"{what} of shape {shape} has rows that are no whole blocks of {format.elements}, as "
            f"{format.name} is in"
        )
    return prod(shape) // format.elements * format.nbytes


def _check_places(reader: HeaderReader, entries: list[TensorEntry], data_bytes: int) -> None:
    """Raises FileFormatError if a tensor is not inside the data, or two overlap."""
    # an empty tensor has no position
    filled = sorted((e for e in entries if e.nbytes), key=lambda entry: entry.offset)
    for entry in filled:
        if entry.offset + entry.nbytes > data_bytes:
            raise reader.error(
                f"{_shown_place(entry)}, but the file has {max(data_bytes, 0)} bytes of data; it "
                "was cut off or is not valid"
            )
    for first, second in pairwise(filled):
        if second.offset < first.offset + first.nbytes:
            raise reader.error(f"{_shown_place(first)} and {_shown_place(second)}: they overlap")


def _shown_place(entry: TensorEntry) -> str:
    stop = entry.offset + entry.nbytes
    return f"the tensor {shown(entry.name)} is at {[entry.offset, stop]} of the data"
