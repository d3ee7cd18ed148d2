"""Threefry-2x32 with 20 rounds: random bits from a counter and a key.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: Parallel random numbers: as easy
as 1, 2, 3 (2011).
"""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.uop.ops import UOp

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD1_1BDA


def threefry(x: UOp, y: UOp) -> UOp:
    """64 random bits from a counter and a key, all uint64, word 0 of each in the lower half."""
    words = list(_split(x))
    key = _split(y)
    keys = (*key, key[0] ^ key[1] ^ PARITY)
    words = [words[0] + keys[0], words[1] + keys[1]]
    for block in range(5):
        for distance in ROTATIONS[block % 2]:
            total = words[0] + words[1]
            words = [total, _rotate_left(words[1], distance) ^ total]
        words[0] = words[0] + keys[(block + 1) % 3]
        words[1] = words[1] + (keys[(block + 2) % 3] + (block + 1))
    return words[0].cast(dtypes.uint64) | (words[1].cast(dtypes.uint64) << 32)


def _split(x: UOp) -> tuple[UOp, UOp]:
    return x.cast(dtypes.uint32), (x >> 32).cast(dtypes.uint32)


def _rotate_left(x: UOp, distance: int) -> UOp:
    return (x << distance) | (x >> (32 - distance))
