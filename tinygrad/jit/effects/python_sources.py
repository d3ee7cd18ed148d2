"""Iterators and random generators of Python: sources of other values at each call.

Input: what a function reaches by name, before a call that is captured. Output: an error if the call
took values from a source, since each replay would use the values of the captured call.
"""

from __future__ import annotations

import pickle
import random
import sys
import threading
from collections.abc import Iterable, Iterator
from operator import length_hint
from typing import Any

from tinygrad.execution.capture import JitError
from tinygrad.jit.environment.inspection import is_library_name, module_of, root_of
from tinygrad.uop.user_line import find_user_line


class PythonSources:
    """The sources among `reached`, and the global generators, with their states before a call."""

    def __init__(self, reached: Iterable[Any]) -> None:
        found = [x for x in reached if _is_iterator(x) or _is_generator(x)]
        self._states = [(x, _state(x)) for x in found]
        self._numbers = _global_states()

    def check(self) -> None:
        """Raise JitError if the call took values from one of them, or may have."""
        numbers = _global_states()
        known = self._numbers.keys() & numbers.keys()
        used = [f"the {name}" for name in sorted(known) if self._numbers[name] != numbers[name]]
        for x, before in self._states:
            # how far a Python generator came is unknown
            if before is None or _state(x) != before:
                used.append(f"an object of type {type(x).__name__}")
        if used:
            raise JitError(
                f"{find_user_line()}: a captured function takes values from {', '.join(used)}; "
                "every later call would compute with the same values: take them before the call "
                "and pass them as tensors, or draw with Tensor.rand and its like"
            )


def _global_states() -> dict[str, object]:
    """The states of the generators that all code shares; none if other threads may draw, too."""
    if threading.active_count() > 1:
        return {}
    found: dict[str, object] = {"random generator of Python": random.getstate()}
    if "numpy.random" in sys.modules:
        state = sys.modules["numpy.random"].get_state(legacy=False)
        found["random generator of numpy"] = pickle.dumps(state)
    return found


def _is_iterator(x: Any) -> bool:
    """Whether a value is an iterator whose class is not followed; a file, as of a log, is none."""
    if not isinstance(x, Iterator) or root_of(type(x)) == "_io":
        return False
    return is_library_name(module_of(type(x)))


def _is_generator(x: Any) -> bool:
    """Whether a value is a generator of random numbers with a state."""
    if isinstance(x, random.Random):
        return not isinstance(x, random.SystemRandom)
    return root_of(type(x)) == "numpy" and type(x).__name__ in {"Generator", "RandomState"}


def _state(x: Any) -> object:
    """What changes when a value is taken, or None if that is unknown."""
    if _is_generator(x):
        return pickle.dumps(x)
    if type(x).__name__ == "count":
        return repr(x)
    # an iterator of another package may have a length that does not shrink
    left = length_hint(x, -1) if root_of(type(x)) == "builtins" else -1
    return None if left < 0 else left
