"""Programs of this library, `python -m tinygrad...`, end in one line when they are interrupted.

Importing this module sets the exception hook of such a process, and does nothing in others. It is
imported before the rest of the library, which takes long enough to be interrupted.
"""

from __future__ import annotations

import sys
from types import TracebackType


def report_interrupt() -> None:
    """Write a line that says so; on a terminal, after the line of the `^C`."""
    print("\n" * sys.stderr.isatty() + "interrupted", file=sys.stderr)


def _is_own_program() -> bool:
    """Whether Python is looking for a module of this library, to run it."""
    return sys.argv[:1] == ["-m"] and any("tinygrad." in part for part in sys.orig_argv[1:])


def _hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        # Python then ends by the signal, as shells expect: they show the exit status 130
        report_interrupt()
    else:
        sys.__excepthook__(kind, error, traceback)


if _is_own_program():
    sys.excepthook = _hook
