"""Saving tensors as safetensors, at once or while the program goes on.

Input: tensors by name. Output: a file, which replaces the one at its path when all of it is
written. Invariant: the file has the values that the tensors had when the function was called.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from tinygrad.device import RemoteBuffer
from tinygrad.execution.wire import current_wire
from tinygrad.helpers import round_up
from tinygrad.nn.state.background_save import Saving, finish_last, start_saving
from tinygrad.nn.state.file_bytes import FileFormatError, memory_of
from tinygrad.nn.state.safetensors import LENGTH_BYTES, METADATA, NAMES
from tinygrad.nn.state.shard_io import Piece, shard_pieces
from tinygrad.nn.state.shared_file import write_together
from tinygrad.sharding import Sharding
from tinygrad.storage.files import keep_replaced
from tinygrad.tensor import Tensor

ALIGNMENT_BYTES = 8


def safe_save(
    tensors: dict[str, Tensor], fn: str | os.PathLike[str], metadata: dict[str, Any] | None = None
) -> None:
    """Write the tensors to the file `fn`, atomically.

    A sharded tensor is saved as its global value, shard by shard, without gathering it. The host
    holds one tensor, or one shard, at a time. Several processes call this together, with a path in
    a folder that all of them see, and each writes its own shards. Raises ValueError for a name or a
    dtype that the format does not support, FileError, an OSError, if the file cannot be written.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "model.safetensors"
    ...     nn.state.safe_save({"x": Tensor([1.0, 2.0])}, path)
    ...     print(nn.state.safe_load(path)["x"].tolist())
    [1.0, 2.0]
    """
    finish_last()
    path = pathlib.Path(fn)
    header = _header(tensors, metadata)
    keep_replaced(path)
    with write_together(path) as file:
        for piece in _pieces(tensors, header):
            for _ in piece.write(file):
                pass


def async_save(
    tensors: dict[str, Tensor], fn: str | os.PathLike[str], metadata: dict[str, Any] | None = None
) -> Saving:
    """Write the tensors to the file `fn`, as `safe_save` does, while the program goes on.

    Returns when the values are copied to the host's memory: what is written to the tensors later is
    not in the file. The result tells the progress. The file replaces the old one when all processes
    have written; what fails is raised by `wait()`, or by the next call that saves, which waits too.
    Raises what `safe_save` raises for names and dtypes, and OutOfMemoryError.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "model.safetensors"
    ...     x = Tensor([1.0, 2.0])
    ...     saving = nn.state.async_save({"x": x}, path)
    ...     _ = x.assign(x + 1).realize()
    ...     saving.wait()
    ...     print(saving.progress, nn.state.safe_load(path)["x"].tolist())
    1.0 [1.0, 2.0]
    """
    finish_last()
    path = pathlib.Path(fn)
    header = _header(tensors, metadata)
    keep_replaced(path)
    # one that saves alone would wait for ever
    current_wire().note(hashlib.blake2b(header).digest(), "an async_save")
    return start_saving(path, [piece.copied() for piece in _pieces(tensors, header)])


def _header(tensors: dict[str, Tensor], metadata: dict[str, Any] | None) -> bytes:
    """The length and the header, padded with spaces so that the data is aligned."""
    for name, value in (metadata or {}).items():
        if not isinstance(value, str):
            raise FileFormatError(
                f"metadata {name!r} is {value!r}, but safetensors holds text; give str() of it, or "
                "json.dumps()"
            )
    if not isinstance(tensors, dict):
        raise TypeError(f"safe_save takes a dict of tensors, not a {type(tensors).__name__}")
    header: dict[str, Any] = {METADATA: metadata} if metadata else {}
    offset = 0
    for name, tensor in tensors.items():
        if name == METADATA:
            raise FileFormatError(
                f"a tensor cannot be called {METADATA}: safetensors means its own use"
            )
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is of type {type(tensor).__name__}; give a Tensor of it")
        if tensor.dtype not in NAMES:
            raise FileFormatError(f"{name} is of {tensor.dtype}, which safetensors has no name for")
        stop = offset + tensor.numel() * tensor.dtype.itemsize
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, stop],
        }
        offset = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(round_up(LENGTH_BYTES + len(text), ALIGNMENT_BYTES) - LENGTH_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _pieces(tensors: dict[str, Tensor], header: bytes) -> Iterator[Piece]:
    """The header, which all processes write alike, and the bytes of the global values, row-major,
    as far as this process has them.
    """
    yield Piece([0], memoryview(header), is_copy=True)
    position = len(header)
    for tensor in tensors.values():
        nbytes = int(tensor.numel()) * tensor.dtype.itemsize
        if nbytes and isinstance(tensor.device, Sharding):
            yield from shard_pieces(tensor, tensor.device, position)
        elif nbytes:
            memory = memory_of(tensor)
            if not isinstance(memory, RemoteBuffer):
                yield Piece([position], memory.as_memoryview(), is_copy=False)
        position += nbytes
