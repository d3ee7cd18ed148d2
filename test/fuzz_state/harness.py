"""What programs use beside the library: results in objects, interrupts, threads, nodes that are
kept, and when code outside of the library may read and write memory.

The reference has functions of the same names, for tensors that are computed at once.
"""

from __future__ import annotations

import contextlib
import contextvars
import signal
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from tinygrad import Tensor, ranks
from tinygrad.execution.realize import BufferCopy, ExecItem

__all__ = [
    "Output",
    "at_once",
    "content_of",
    "interrupted",
    "node_of",
    "pause",
    "refused",
    "settle",
]

T = TypeVar("T")


@dataclass
class Output:
    """A result with a name."""

    y: Any


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """A block that must raise an error of the user's."""
    try:
        yield
    except (RuntimeError, ValueError, IndexError, NotImplementedError):
        return
    raise AssertionError("not refused")


@contextlib.contextmanager
def interrupted(number: int, when: str) -> Iterator[None]:
    """A block in which Ctrl-C comes "before" or "after" item `number` runs, and ends the block.

    Without effect on several ranks, whose items differ.
    """
    if ranks.size() > 1:
        yield
        return
    count = 0

    def interrupting(run: Callable[..., Any]) -> Callable[..., Any]:
        def running(self: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal count
            is_hit = count == number
            count += 1
            if is_hit and when == "before":
                signal.raise_signal(signal.SIGINT)
            result = run(self, *args, **kwargs)
            if is_hit and when == "after":
                signal.raise_signal(signal.SIGINT)
            return result

        return running

    known = {kind: kind.run for kind in (ExecItem, BufferCopy)}
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    for kind, run in known.items():
        setattr(kind, "run", interrupting(run))  # noqa: B010
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        for kind, run in known.items():
            setattr(kind, "run", run)  # noqa: B010
        signal.signal(signal.SIGINT, handler)


def at_once(*calls: Callable[[], Any]) -> None:
    """Calls by threads of their own at the same time; one after the other on several ranks.

    Raises the first error.
    """
    if ranks.size() > 1:
        for call in calls:
            call()
        return
    errors: list[BaseException] = []
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> None:
        start.wait()
        try:
            call()
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        contexts = [contextvars.copy_context() for _ in calls]
        threads = [
            threading.Thread(target=context.run, args=(run, call))
            for context, call in zip(contexts, calls)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]


def pause() -> None:
    """Lets other threads run."""
    time.sleep(0.001)


def settle(names: dict[str, Any]) -> None:
    """Realizes all tensors that code finds from `names`: from here on, code outside of the library
    may read and write their memory.
    """
    found = list(dict.fromkeys(reachable(names, Tensor)))
    if found:
        Tensor.realize(*found)


def reachable(root: Any, kind: type[T]) -> Iterator[T]:
    """All tensors, which are of `kind`, that code finds from `root`: in containers, attributes, and
    the globals and closure cells of functions of a program.
    """
    stack, seen = [root], set()
    while stack:
        x = stack.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, kind):
            yield x
            stack.append(x.grad)  # type: ignore[attr-defined]
        elif isinstance(x, (list, tuple, set, deque)):
            stack.extend(x)
        elif isinstance(x, dict):
            stack.extend(value for key, value in x.items() if key != "__builtins__")
        elif isinstance(x, (types.SimpleNamespace, Output)):
            stack.append(vars(x))
        elif type(x).__name__ == "TinyJit":
            stack.append(x.fxn)
        elif isinstance(x, types.FunctionType):
            if "see" in x.__globals__:
                stack.append(x.__globals__)
            for cell in x.__closure__ or ():
                # a cell may be empty
                with contextlib.suppress(ValueError):
                    stack.append(cell.cell_contents)


def node_of(x: Tensor) -> Any:
    """The node of a stored value, which a user may keep."""
    return x.realize().uop


def content_of(node: Any) -> Any:
    return Tensor(node).numpy()
