"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BufferedRandom]:
    """A file to write, which becomes `path` when the block ends, and is removed if it raises.

    Readers see the old file or the new one, never a part; of two writers the later one wins. What a
    killed writer leaves is a hidden file beside `path` with a suffix of its own; the next writer of
    `path` removes it. Makes the folder. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside, file, is_locked = _opened_beside(path)
    try:
        with file:
            yield file
            file.flush()
            if is_locked:
                # the lock ends with the file: until then nobody takes this for left behind
                aside.replace(path)
        if not is_locked:
            aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    _remove_left_behind(path)


def _prefix(path: Path) -> str:
    # names have an end: some systems take no more than 255 bytes
    return f".{path.name[:48]}.writing-"


def _opened_beside(path: Path) -> tuple[Path, BufferedRandom, bool]:
    """A new file in the same folder: its name, the file, and whether it could be locked."""
    while True:
        aside = path.with_name(f"{_prefix(path)}{secrets.token_hex(8)}")
        file = open(aside, "x+b")  # noqa: SIM115 (the caller closes it)
        is_locked = _lock(file.fileno(), wait=True)
        # another writer may have removed it before it was locked
        if aside.exists():
            return aside, file, is_locked
        file.close()


def _remove_left_behind(path: Path) -> None:
    """Removes what killed writers of `path` left: files beside it that nobody has locked."""
    prefix = _prefix(path)
    with os.scandir(path.parent) as entries:
        found = [Path(entry.path) for entry in entries if entry.name.startswith(prefix)]
    for aside in found:
        with contextlib.suppress(OSError), open(aside, "rb") as file:
            if _lock(file.fileno(), wait=False):
                aside.unlink(missing_ok=True)


def _lock(descriptor: int, wait: bool) -> bool:
    """Locks an open file until it is closed, or its process ends; whether that worked."""
    try:
        import fcntl  # where there is none, nothing is locked and nothing removed
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
