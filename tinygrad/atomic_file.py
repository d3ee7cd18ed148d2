"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BufferedRandom]:
    """A file to write, which becomes `path` when the block ends, and is removed if it raises.

    Readers see the old file or the new one, never a part; of two writers the later one wins; a
    killed one leaves only its own file beside `path`. Makes the folder. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".writing-{secrets.token_hex(8)}")
    try:
        with open(aside, "x+b") as file:
            yield file
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
