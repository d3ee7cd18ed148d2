"""The wire of a thread that works beside the main one, as one that saves a file.

Input: a communicator of its own. Output: values of all ranks. Invariant: it sleeps while it waits,
and leaves the wire of the main thread alone.
"""

from __future__ import annotations

import pickle
import time
from typing import Any

from tinygrad.execution.wire import NoWire

POLL_S = 0.005
"""The time between two looks at whether all ranks have answered."""


class BesideWire(NoWire):
    """Gathers values of all ranks, and sends no messages of devices."""

    def __init__(self, communicator: Any) -> None:
        self._communicator = communicator

    def gather(self, value: Any) -> list[Any]:
        """The value of each rank, on all ranks."""
        import numpy as np

        own = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = np.empty(self._communicator.size, np.int64)
        self._wait(self._communicator.Iallgather(np.array([own.size]), sizes))
        contents = np.empty((sizes.size, sizes.max()), np.uint8)
        padded = np.zeros(sizes.max(), np.uint8)
        padded[: own.size] = own
        self._wait(self._communicator.Iallgather(padded, contents))
        return [pickle.loads(content.tobytes()) for content in contents]

    def _wait(self, request: Any) -> None:
        while not request.Test():
            time.sleep(POLL_S)
