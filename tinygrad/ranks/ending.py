"""How a rank ends: together with the others, or it ends all of them.

Input: the wire of a process that has joined others. Output: hooks on the ways in which Python ends.
Invariant: no rank ends silently while another needs it, except one that is killed, which the
launcher reports.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

from tinygrad.ranks.mpi import MpiWire
from tinygrad.uop.user_line import find_user_line

LAST_WORDS_S = 0.5
"""The time between the report of an error and the end of all ranks."""
PATIENCE_S = 1.0
"""The time for the launcher to end a rank that asks for it."""


class Ends:
    """The ways in which a process ends, from now on: with the other ranks, or as the end of all."""

    def __init__(self, mpi: Any, wire: MpiWire) -> None:
        self._mpi, self._wire = mpi, wire
        self._process = os.getpid()
        self._excepthook = sys.excepthook
        self._exit: Callable[[int], NoReturn] = os._exit
        sys.excepthook = self.abort_on_exception
        vars(os)["_exit"] = self.exit_at_once
        # runs before the exit hook of mpi4py, which was registered first
        atexit.register(self.leave)

    def end_all(self, status: int, reason: str = "") -> None:
        """End all ranks with a status, after a report."""
        self._report(reason)
        self._abort(status)

    def leave(self) -> None:
        """Leave the other ranks, or end them if that fails."""
        try:
            self._wire.leave()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            self._abort(1)

    def abort_on_exception(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        """Report an exception that ends this process, and end all others."""
        self._report("")
        self._excepthook(kind, error, traceback)
        self._abort(1)

    def exit_at_once(self, status: int) -> NoReturn:
        """`os._exit`, which runs no hooks: the launcher would end the other ranks silently."""
        if os.getpid() != self._process:
            # a child process is no rank
            self._exit(status)
        if status:
            self.end_all(status, f"os._exit({status}) at {find_user_line()}")
        self.leave()
        self._mpi.Finalize()
        self._exit(status)

    def _report(self, reason: str) -> None:
        rank = self._wire.rank
        print(f"rank {rank.number} of {rank.size} ends all ranks: {reason}", file=sys.stderr)

    def _abort(self, status: int) -> None:
        sys.stderr.flush()
        # the launcher ends the others at once, which may be at their last words
        time.sleep(LAST_WORDS_S)
        # a launcher on a host that cannot be reached does not end this process
        patience = threading.Timer(PATIENCE_S, self._exit, (status,))
        patience.daemon = True
        patience.start()
        self._mpi.COMM_WORLD.Abort(status)
