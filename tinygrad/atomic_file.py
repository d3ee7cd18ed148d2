"""Atomic replacement of files.

Input: the path of a file, and a block that writes its new content. Output: the path has the old
content or the new one, never a part of it, also if the process is killed. The next writer removes
the temporary files of killed ones.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path


@contextlib.contextmanager
def atomic_write(path: Path, durable: bool = False) -> Iterator[BufferedRandom]:
    """Opens a temporary file that replaces `path` when the block ends, unless the block raises.

    Readers see the old file or the new one, never a part. The last of several writers wins. A
    killed writer leaves a hidden temporary file in the same folder, which the next writer of `path`
    removes. With `durable`, the new file survives a power failure too. Creates the folder. Raises
    OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, file, is_locked = _open_temporary(path)
    try:
        with file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            if is_locked:
                # closing the file ends the lock, and an unlocked file counts as stale
                temporary.replace(path)
        if not is_locked:
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _remove_stale(path)
    if durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Makes a rename in `folder` durable, if directories can be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _prefix(path: Path) -> str:
    # some file systems limit names to 255 bytes
    return f".{path.name[:48]}.writing-"


def _open_temporary(path: Path) -> tuple[Path, BufferedRandom, bool]:
    """Creates a file in the same folder. Returns its path, the file and whether it is locked."""
    while True:
        temporary = path.with_name(f"{_prefix(path)}{os.urandom(8).hex()}")
        file = open(temporary, "x+b")  # noqa: SIM115 (the caller closes it)
        is_locked = _lock(file.fileno(), wait=True)
        # another writer may have removed the file before it was locked
        if temporary.exists():
            return temporary, file, is_locked
        file.close()


def _remove_stale(path: Path) -> None:
    """Removes temporary files of killed writers of `path`: those that no process has locked."""
    prefix = _prefix(path)
    with os.scandir(path.parent) as entries:
        found = [Path(entry.path) for entry in entries if entry.name.startswith(prefix)]
    for temporary in found:
        with contextlib.suppress(OSError), open(temporary, "rb") as file:
            if _lock(file.fileno(), wait=False):
                temporary.unlink(missing_ok=True)


def _lock(descriptor: int, wait: bool) -> bool:
    """Locks an open file until it is closed or the process ends. Returns whether that worked."""
    try:
        import fcntl  # missing on Windows: no locks, and stale files stay
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
