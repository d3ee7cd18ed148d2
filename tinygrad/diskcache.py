"""A persistent key-value cache of byte strings, and of Python values, shared by processes.

Each entry is one file, named by the hash of its key. Writes are atomic: a reader sees a complete
entry or none, and a killed writer leaves at most a temporary file. An entry starts with the SHA-256
of its value; an entry that does not match is removed and counts as absent. A cache directory that
cannot be written is not an error.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tinygrad.atomic_file import atomic_write
from tinygrad.settings import CACHELEVEL, cache_directory

CHECKSUM_BYTES = 32
FORMAT = "v1"

T = TypeVar("T")


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


def has(table: str, key: str | bytes) -> bool:
    """Whether something is stored under `key`, which may be damaged."""
    return _entry_path(table, key).exists()


def put(table: str, key: str | bytes, value: bytes) -> None:
    """Stores `value` under `key`. Errors of the file system are ignored."""
    with contextlib.suppress(OSError), atomic_write(_entry_path(table, key)) as file:
        file.write(_digest(value))
        file.write(value)


def clear(table: str | None = None) -> None:
    """Removes all entries of `table`, or of all tables."""
    path = cache_directory() / "store" if table is None else _table_path(table)
    import shutil

    shutil.rmtree(path, ignore_errors=True)


# ---- Python values ----


def diskcache_get(table: str, key: Any) -> Any:
    """The value stored under `key` (anything with a stable repr), or None.

    >>> _ = diskcache_put("squares", 3, 9)
    >>> diskcache_get("squares", 3), diskcache_get("squares", 4)
    (9, None)
    """
    if CACHELEVEL < 1:
        return None
    data = get(table, repr(key))
    return None if data is None else pickle.loads(data)


def diskcache_put(table: str, key: Any, value: T) -> T:
    """Stores a value that can be pickled, and returns it.

    >>> diskcache_put("squares", 3, 9)
    9
    """
    if CACHELEVEL >= 1:
        put(table, repr(key), pickle.dumps(value))
    return value


def diskcache_clear() -> None:
    """Empties the disk cache.

    >>> _ = diskcache_put("squares", 3, 9)
    >>> diskcache_clear()
    >>> diskcache_get("squares", 3) is None
    True
    """
    clear()


def diskcache(function: Callable[..., T]) -> Callable[..., T]:
    """Makes a pure function remember its results across processes.

    >>> runs = []
    >>> @diskcache
    ... def remembered_square(x):
    ...     runs.append(x)
    ...     return x * x
    >>> remembered_square(3), remembered_square(3), len(runs) < 2
    (9, 9, True)
    """

    @functools.wraps(function)
    def remembering(*args: Any, **kwargs: Any) -> T:
        table = f"cache_{function.__name__}"
        found = diskcache_get(table, (args, kwargs))
        if found is not None:
            result: T = found
            return result
        return diskcache_put(table, (args, kwargs), function(*args, **kwargs))

    return remembering
