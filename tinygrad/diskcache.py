"""A persistent key-value cache of byte strings, shared by concurrent processes.

Each entry is one file, named by the hash of its key. Writes are atomic: a reader sees a complete
entry or none, and a killed writer leaves at most a temporary file. An entry starts with the SHA-256
of its value; an entry that does not match is removed and counts as absent. A cache directory that
cannot be written is not an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from pathlib import Path

from tinygrad.atomic_file import atomic_write
from tinygrad.settings import cache_directory

CHECKSUM_BYTES = 32
FORMAT = "v1"


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _table_path(table: str) -> Path:
    return cache_directory() / "store" / FORMAT / table


def _entry_path(table: str, key: str | bytes) -> Path:
    # the type of the key is hashed too: "a" and b"a" differ
    tagged = b"text:" + key.encode() if isinstance(key, str) else b"bytes:" + key
    name = _digest(tagged).hex()
    return _table_path(table) / name[:2] / name[2:]


def get(table: str, key: str | bytes) -> bytes | None:
    """The value stored under `key`, or None if it is absent or damaged."""
    path = _entry_path(table, key)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    checksum, value = data[:CHECKSUM_BYTES], data[CHECKSUM_BYTES:]
    if checksum == _digest(value):
        return value
    with contextlib.suppress(OSError):
        path.unlink()
    return None


def put(table: str, key: str | bytes, value: bytes) -> None:
    """Stores `value` under `key`. Errors of the file system are ignored."""
    with contextlib.suppress(OSError), atomic_write(_entry_path(table, key)) as file:
        file.write(_digest(value))
        file.write(value)


def clear(table: str | None = None) -> None:
    """Removes all entries of `table`, or of all tables."""
    path = cache_directory() / "store" if table is None else _table_path(table)
    shutil.rmtree(path, ignore_errors=True)
