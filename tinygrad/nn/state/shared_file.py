"""One new file that all processes write, each its own ranges.

Input: a path in a folder that all processes see. Output: an open file in each of them, and the new
file at the path when all have written. Invariants: the path shows the old file or the whole new
one; if one process cannot write, all raise a FileError that names it, and nothing is left behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedRandom
from pathlib import Path

from tinygrad.atomic_file import atomic_write
from tinygrad.execution.wire import current_wire
from tinygrad.runtime.disk import FileError, described
from tinygrad.sharding import current_local_devices


@contextmanager
def write_together(path: Path) -> Iterator[BufferedRandom]:
    """Opens a temporary file that replaces `path` when the block has ended in all processes, unless
    it raises an OSError in one of them. It is the same file in all; each writes a part of it. In a
    single process, the block writes everything. Raises FileError.
    """
    rank = current_local_devices().rank
    if rank is None:
        with described(path, "write it"), atomic_write(path, durable=True) as file:
            yield file
        return
    with ExitStack() as opened:
        with _agreed(path):
            if rank.number == 0:
                file = opened.enter_context(atomic_write(path, durable=True))
        name = current_wire().gather(str(file.name) if rank.number == 0 else "")[0]
        with _agreed(path):
            if rank.number > 0:
                file = opened.enter_context(open(name, "r+b"))
        with _agreed(path):
            yield file
            file.flush()
            os.fsync(file.fileno())
        # the first process renames the file
        with _agreed(path):
            opened.close()


@contextmanager
def _agreed(path: Path) -> Iterator[None]:
    """All processes do something, and wait for each other. If it raises an OSError in one of them,
    all raise a FileError.
    """
    own: FileError | None = None
    try:
        with described(path, "write it"):
            yield
    except FileError as error:
        own = error
    told = current_wire().gather("" if own is None else str(own))
    if own is not None:
        raise own
    failed = [f"on rank {number}: {error}" for number, error in enumerate(told) if error]
    if failed:
        raise FileError(f"{path} was not written, {'; '.join(failed)}")
