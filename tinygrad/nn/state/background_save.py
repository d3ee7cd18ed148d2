"""A file that is written while the program goes on.

Input: bytes that do not change meanwhile. Output: a file that replaces the one at its path when all
processes have written. Invariants: one file is written at a time, in the order of the calls. An
error is raised once, by `wait` or by the next call that saves, else it is shown at exit.
"""

from __future__ import annotations

import atexit
import contextvars
import sys
import threading
from itertools import chain
from pathlib import Path

from tinygrad.execution.wire import current_wire, entered_wire
from tinygrad.nn.state.shard_io import Piece
from tinygrad.nn.state.shared_file import write_together
from tinygrad.storage.files import keep_replaced
from tinygrad.storage.lock import exclusive


class Saving:
    """A file that `async_save` writes: `nbytes` are those of this process, `written` how many of
    them were.
    """

    def __init__(self, path: Path, pieces: list[Piece]) -> None:
        self.path = path
        # the main thread has the wire of the process to itself
        self._wire = current_wire().beside()
        self.nbytes = sum(piece.content.nbytes for piece in pieces)
        self.written = 0
        self._pieces = pieces
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._run,), name=f"saving {path.name}"
        )

    @property
    def progress(self) -> float:
        """The fraction of the bytes of this process that are written."""
        return self.written / self.nbytes

    def done(self) -> bool:
        """Whether the new file is at its path, or saving has failed."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait until the file is at its path. Raises FileError if it could not be written."""
        self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __repr__(self) -> str:
        return f"<Saving {self.path} {self.progress:.0%}>"

    def _run(self) -> None:
        try:
            with entered_wire(self._wire), write_together(self.path) as file:
                for nbytes in chain.from_iterable(piece.write(file) for piece in self._pieces):
                    self.written += nbytes
                # tensors may have been loaded from the old file meanwhile
                exclusive(keep_replaced)(self.path)
        except BaseException as error:
            self._error = error
        finally:
            self._pieces = []


class _Last:
    saving: Saving | None = None


def start_saving(path: Path, pieces: list[Piece]) -> Saving:
    """Start to write pieces, of which each process has its own."""
    saving = _Last.saving = Saving(path, pieces)
    saving._thread.start()
    return saving


def finish_last() -> None:
    """Wait for the last file that was started. Raises its error, unless somebody saw it."""
    if (saving := _Last.saving) is not None:
        _Last.saving = None
        saving.wait()


@atexit.register
def _show_error() -> None:
    try:
        finish_last()
    except BaseException:
        sys.excepthook(*sys.exc_info())
