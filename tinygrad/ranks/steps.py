"""Steps: what all ranks do, in order, and how ranks that did different things are found.

Input: the digest of each step, equal on all ranks. Output: a digest of all steps so far, and errors
that name the lines of both ranks where these digests differ.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import threading
from typing import NamedTuple

from tinygrad.uop.user_line import Place, find_user_line, line_of

DIGESTS = (1 << 61) - 1
"""Digests of all steps so far are below this prime."""


class RanksError(RuntimeError):
    """Processes cannot join, did not do the same, or do not answer."""


class Step(NamedTuple):
    """Step number `number` of the program: the digest of all steps so far, a description, and the
    user's line, or its place until the line is asked for.
    """

    number: int
    digest: int
    what: str
    place: str | Place

    @property
    def line(self) -> str:
        """The user's line."""
        return self.place if isinstance(self.place, str) else line_of(self.place)

    def told(self) -> tuple[int, int, str, str]:
        """What is sent to other ranks."""
        return self.number, self.digest, self.what, self.line


new_step = functools.partial(tuple.__new__, Step)
"""Makes a `Step` in a third of the time of its constructor."""
_POINT = int.from_bytes(hashlib.blake2b(b"steps", digest_size=7).digest(), "little")


@functools.lru_cache(256)
def digest_number(digest: bytes) -> int:
    """A digest as a number. All replays of a function have one digest, so few are computed."""
    return int.from_bytes(hashlib.blake2b(digest, digest_size=7).digest(), "little")


def next_digest(digest: int, step: bytes) -> int:
    """The digest of all steps, with one more: a polynomial modulo a prime."""
    return (digest * _POINT + digest_number(step)) % DIGESTS


def line_of_main_thread() -> str:
    """The user's line at which the main thread is.

    The frame is released at once: it would keep the local values of a function alive after its
    return, and which tensors are alive decides what is computed.
    """
    return find_user_line(sys._current_frames().get(threading.main_thread().ident or 0))


def describe_rank(rank: int, line: str | None) -> str:
    """What a rank told: nothing, that it waits, or the line at which it is."""
    if line is None:
        return f"rank {rank} does not answer"
    return f"rank {rank} is at {line}" if line else f"rank {rank} waits too"


def describe_divergence(own: int, mine: Step, other: int, theirs: Step, what: str) -> str:
    return (
        f"ranks diverged at step {mine.number}: rank {own} does {mine.what} at {mine.line}, rank "
        f"{other} does {theirs.what} at {theirs.line}. All ranks must run the same program: let "
        f"every rank compute and read a value, not one of them (waiting for {what})"
    )
