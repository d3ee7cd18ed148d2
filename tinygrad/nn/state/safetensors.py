"""The safetensors format: https://github.com/huggingface/safetensors.

A file is the length of its header (8 bytes, little-endian), the header (JSON: each tensor's dtype,
shape and offsets in the data) and the data. Loading maps the file and reads a tensor when it is
used. A header is not trusted: sizes and offsets are checked against the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import prod
from tinygrad.nn.state.file_bytes import (
    File,
    FileFormatError,
    accept_filename,
    bytes_of_file,
    check_shape,
    name_of_file,
    read_bytes,
    shown,
    view_bytes,
)
from tinygrad.tensor import Tensor

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
METADATA = "__metadata__"

DTYPES: dict[str, DType] = {
    "BOOL": dtypes.bool,
    "I8": dtypes.int8,
    "U8": dtypes.uint8,
    "I16": dtypes.int16,
    "U16": dtypes.uint16,
    "I32": dtypes.int32,
    "U32": dtypes.uint32,
    "I64": dtypes.int64,
    "U64": dtypes.uint64,
    "F8_E4M3": dtypes.fp8e4m3,
    "F8_E5M2": dtypes.fp8e5m2,
    "F8_E4M3FNUZ": dtypes.fp8e4m3fnuz,
    "F8_E5M2FNUZ": dtypes.fp8e5m2fnuz,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """One tensor of a file: its bytes are `start` to `stop` of the data."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    start: int
    stop: int


def safe_load(fn: File) -> dict[str, Tensor]:
    """The tensors of a file by name; each stays in the file until it is used or moved.

    Takes a file's name or a tensor of its bytes. Raises FileFormatError, a ValueError, if the file
    is not valid.

    >>> header = b'{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    >>> nn.state.safe_load(Tensor(len(header).to_bytes(8, "little") + header + bytes([7, 8])))[
    ...     "x"
    ... ].tolist()
    [7, 8]
    """
    t = bytes_of_file(fn)
    data_start, header, _ = safe_load_metadata(t)
    entries = _checked_entries(header, int(t.numel()) - data_start, name_of_file(t))
    return {
        entry.name: view_bytes(t, data_start + entry.start, entry.dtype, entry.shape)
        for entry in entries
    }


@accept_filename
def safe_load_metadata(t: Tensor) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """The byte offset of the data, the header's entry of each tensor, and the free metadata.

    Raises FileFormatError, a ValueError, if the file has no valid header.

    >>> header = b'{"__metadata__":{"format":"pt"}}'
    >>> nn.state.safe_load_metadata(Tensor(len(header).to_bytes(8, "little") + header))
    (40, {}, {'format': 'pt'})
    """
    where, size = name_of_file(t), int(t.numel())
    if size < LENGTH_BYTES:
        raise FileFormatError(f"{where}: {size} bytes are no safetensors file, which starts with 8")
    length = int.from_bytes(read_bytes(t, 0, LENGTH_BYTES), "little")
    data_start = LENGTH_BYTES + length
    if data_start > size or length > MAX_HEADER_BYTES:
        raise FileFormatError(
            f"{where}: the header says that it has {length} bytes, but the file has {size} and a "
            f"header at most {MAX_HEADER_BYTES}; this is not a safetensors file, or it was cut off"
        )
    try:
        text = read_bytes(t, LENGTH_BYTES, data_start)
        header = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where}: the header is not valid JSON: {error}") from error
    if not isinstance(header, dict):
        raise FileFormatError(
            f"{where}: the header is a JSON {type(header).__name__}, not an object"
        )
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict):
        raise FileFormatError(f"{where}: {METADATA} is {shown(metadata)}, not an object")
    return data_start, header, metadata


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise FileFormatError(f"it has two entries called {shown(name)}")
        found[name] = value
    return found


def _checked_entries(header: dict[str, Any], data_bytes: int, where: str) -> list[Entry]:
    """The entries, in the header's order. Raises FileFormatError unless each fits, and all of them
    cover the data without overlap or gap.
    """
    entries = [_checked_entry(name, said, data_bytes, where) for name, said in header.items()]
    covered, previous = 0, "the start"
    for entry in sorted(entries, key=lambda entry: (entry.start, entry.stop)):
        if entry.start != covered:
            what = "overlaps" if entry.start < covered else "leaves a gap after"
            raise FileFormatError(
                f"{where}: {shown(entry.name)} at {[entry.start, entry.stop]} {what} {previous}, "
                f"which ends at {covered}"
            )
        covered, previous = entry.stop, shown(entry.name)
    if covered != data_bytes:
        raise FileFormatError(
            f"{where}: {data_bytes - covered} bytes of data after {previous} belong to no tensor"
        )
    return entries


def _checked_entry(name: str, said: Any, data_bytes: int, where: str) -> Entry:
    if not isinstance(said, dict) or not {"dtype", "shape", "data_offsets"} <= said.keys():
        raise FileFormatError(
            f"{where}: {shown(name)} is {shown(said)}; it needs dtype, shape and data_offsets"
        )
    dtype, shape, offsets = said["dtype"], said["shape"], said["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise FileFormatError(
            f"{where}: {shown(name)} has dtype {shown(dtype)}; known are {', '.join(DTYPES)}"
        )
    shape = check_shape(shape, f"{where}: {shown(name)}")
    if not _is_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FileFormatError(
            f"{where}: {shown(name)} has data_offsets {shown(offsets)}, not [start, stop]"
        )
    if offsets[1] > data_bytes:
        raise FileFormatError(
            f"{where}: {shown(name)} has data_offsets {offsets}, but the file has {data_bytes} "
            "bytes of data; it was cut off or is not valid"
        )
    needed = prod(shape) * DTYPES[dtype].itemsize
    if offsets[1] - offsets[0] != needed:
        raise FileFormatError(
            f"{where}: {shown(name)} has data_offsets {offsets}, which are "
            f"{offsets[1] - offsets[0]} bytes, but {dtype} of shape {list(shape)} takes {needed}"
        )
    return Entry(name, DTYPES[dtype], shape, offsets[0], offsets[1])


def _is_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
