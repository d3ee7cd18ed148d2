"""Ctrl-C while memory is overwritten: it waits until what ran is noted.

Python runs the handler of a signal between any two instructions, also between a kernel and the note
that it ran. Input: a block of code. Output: in it, an interrupt is kept, and raised at its end.
"""

from __future__ import annotations

import importlib
import signal
import threading
from types import FrameType
from typing import Any

# the functions of `signal`, without enums: a tenth of the time
_signal: Any = importlib.import_module("_signal")
_MAIN = threading.main_thread().ident


class _Interrupts:
    """The interrupts of the main thread, which alone runs handlers."""

    def __init__(self) -> None:
        self._depth = 0
        self._handler: Any = None
        self._came = False

    @property
    def wants_end(self) -> bool:
        """Whether one waits that ends the program, if nothing catches it."""
        return self._came and self._handler is signal.default_int_handler

    def __enter__(self) -> None:
        if threading.get_ident() != _MAIN:
            return
        if self._depth == 0:
            handler = _signal.getsignal(_signal.SIGINT)
            self._handler = handler if callable(handler) else None
            if self._handler is not None:
                _signal.signal(_signal.SIGINT, self._keep)
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        if threading.get_ident() != _MAIN:
            return
        self._depth -= 1
        if self._depth == 0 and self._handler is not None:
            handler, came = self._handler, self._came
            self._handler, self._came = None, False
            _signal.signal(_signal.SIGINT, handler)
            if came:
                signal.raise_signal(signal.SIGINT)

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._came = True


interrupts_kept = _Interrupts()
