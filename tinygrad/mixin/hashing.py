"""Hashes of bytes: Keccak, the permutation of SHA-3 (FIPS 202), and a hash tree.

Input: bytes along the last axis, one message per index of the other axes. Output: their digests.
Messages are hashed in parallel; the blocks of a message, and the rounds of a block, in sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from tinygrad.dtype import dtypes
from tinygrad.errors import ArgumentError
from tinygrad.helpers import prod
from tinygrad.mixin.elementwise.casting import CastMixin
from tinygrad.mixin.indexing.gather import GatherMixin

ROUNDS = 24
LANES = 25
# the tree hashes chunks of this many bytes, in leaves of this many
CHUNK, LEAF = 1 << 20, 1 << 12


@dataclass(frozen=True)
class Sponge:
    """A hash function of the Keccak family: bytes per block, bytes of the digest, and the suffix
    bits that follow the message.
    """

    rate: int
    digest: int
    suffix: int


SPONGES = {
    "sha3_224": Sponge(144, 28, 0x06),
    "sha3_256": Sponge(136, 32, 0x06),
    "shake_128": Sponge(168, 16, 0x1F),
}


class HashMixin(GatherMixin, CastMixin):
    """`keccak`, `hash`."""

    __slots__ = ()

    def keccak(self, cfg: str = "sha3_256") -> Self:
        """Keccak digests of messages along the last axis, (..., n) to (..., digest size).

        `cfg` is "sha3_224", "sha3_256" or "shake_128" (16 bytes). Raises ValueError for another,
        and for a tensor without axes, TypeError unless the elements are uint8.

        >>> Tensor(b"abc").keccak().numpy().tobytes().hex()[:16]
        '3a985da74fe225b2'
        """
        if not isinstance(cfg, str) or cfg not in SPONGES:
            raise ArgumentError(f"keccak: {cfg!r} is not one of {', '.join(SPONGES)}")
        if self.dtype is not dtypes.uint8:
            raise TypeError(f"keccak takes bytes, not {self.dtype}; cast or bitcast to uint8")
        if not self.ndim:
            raise ArgumentError(
                "keccak takes messages along the last axis; reshape one byte to (1,)"
            )
        sponge, count = SPONGES[cfg], prod(self.shape[:-1])
        messages = self.reshape(count, self.shape[-1])
        blocks = messages._padded_blocks(sponge).contiguous().realize()
        state = blocks._slice_axis(1, 0, 1).squeeze(1).zeros_like().contiguous().realize()
        step: _Step | None = None
        for number in range(int(blocks.shape[1])):
            block = blocks._slice_axis(1, number, number + 1).squeeze(1).contiguous().realize()
            if step is None or not step.fits(state, block):
                step = _Step(state, block, _keccak_f(state ^ block))
            # realized block by block, so that all blocks share one cached schedule
            state = step(state, block).realize()
        digest: Self = state.bitcast(dtypes.uint8)._slice_axis(1, 0, sponge.digest)
        return digest.reshape((*self.shape[:-1], sponge.digest))

    def _padded_blocks(self, sponge: Sponge) -> Self:
        """Messages (count, n) as (count, blocks, 25) lanes of 64 bits."""
        size = int(self.shape[1])
        blocks = size // sponge.rate + 1
        total = blocks * sponge.rate
        position = self._positions_along(total)
        suffix = position.eq(size).where(sponge.suffix, 0) ^ position.eq(total - 1).where(0x80, 0)
        padded = self.pad_to(None, total) ^ suffix.cast(dtypes.uint8)
        lanes = padded.contiguous().bitcast(dtypes.uint64)
        return lanes.reshape(-1, blocks, sponge.rate // 8).pad_to(None, None, LANES)

    def hash(self) -> Self:
        """A 16-byte hash of the tensor's bytes: a hash tree of "shake_128".

        The bytes, padded with zeros to a multiple of 1 MiB, are hashed in leaves of 4096 bytes; 256
        digests form a leaf of the next level, up to one digest per MiB. These are hashed in the
        same way, until one is left.

        >>> Tensor(b"abc").hash().shape
        (16,)
        """
        data = self.detach().flatten().contiguous().bitcast(dtypes.uint8)
        while True:
            size = int(data.shape[0])
            chunks = max(1, -(-size // CHUNK))
            leaves = data.pad_to(chunks * CHUNK).reshape(-1, LEAF).keccak("shake_128")
            data = leaves.contiguous().reshape(chunks, LEAF).keccak("shake_128").flatten()
            if chunks == 1:
                return data


class _Step:
    """The graph that takes one block: built once, as each block has one of the same form."""

    def __init__(self, state: Any, block: Any, following: Any) -> None:
        self.sources = (state.uop, block.uop)
        self.following = following.uop

    def fits(self, state: Any, block: Any) -> bool:
        """Whether a state and a block lie where those did that the graph was built for."""
        pairs = zip(self.sources, (state.uop, block.uop), strict=True)
        return all(a.device == b.device and a.shape == b.shape for a, b in pairs)

    def __call__(self, state: Any, block: Any) -> Any:
        """The state after the block."""
        table = dict(zip(self.sources, (state.uop, block.uop), strict=True))
        return state._derive(self.following.substitute(table), block)


def _keccak_f(state: Any) -> Any:
    """Keccak-f[1600] of states (count, 25); lane 5 * y + x."""
    numbers = (_rotations(), _round_constants())
    rotations, constants = (
        type(state)(x, dtype=dtypes.uint64, device=state.device).realize() for x in numbers
    )
    for _ in range(ROUNDS):
        state = _round(state, rotations, constants._slice_axis(0, 0, 1)).contiguous()
        # rotated, so that every round is the same kernel
        constants = constants.roll(-1).contiguous()
    return state


def _round(state: Any, rotations: Any, constant: Any) -> Any:
    rows = state.reshape(-1, 5, 5)
    first, *rest = (rows._slice_axis(1, y, y + 1) for y in range(5))
    parity = first
    for row in rest:
        parity = parity ^ row
    mixed = rows ^ parity.roll(1, 2) ^ _rotate_bits(parity.roll(-1, 2), 1)
    turned = _rotate_bits(mixed.reshape(-1, LANES), rotations)
    # lane (x, y) comes from (x + 3 * y, x)
    position = state.arange(LANES)
    x, y = position % 5, position // 5
    moved = turned._index_select({1: x * 5 + (x + y * 3) % 5}).reshape(-1, 5, 5)
    chosen = moved ^ (moved.roll(-1, 2).bitwise_not() & moved.roll(-2, 2))
    return chosen.reshape(-1, LANES) ^ position.eq(0).where(constant, 0)


def _rotate_bits(lanes: Any, count: Any) -> Any:
    return (lanes << count) | (lanes >> ((64 - count) & 63))


def _rotations() -> list[int]:
    """The rotation of each lane, in bits (FIPS 202, 3.2.2)."""
    result = [0] * LANES
    x, y = 1, 0
    for t in range(24):
        result[5 * y + x] = (t + 1) * (t + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    return result


def _round_constants() -> list[int]:
    """The round constants, from a linear feedback shift register (FIPS 202, 3.2.5)."""
    constants, register = [], 1
    for _ in range(ROUNDS):
        constant = 0
        for j in range(7):
            constant |= (register & 1) << ((1 << j) - 1)
            register = (register << 1) ^ (0x171 if register >> 7 else 0)
        constants.append(constant)
    return constants
