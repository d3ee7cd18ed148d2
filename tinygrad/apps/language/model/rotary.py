"""Rotary position embedding (arXiv:2104.09864).

Pairs of elements of each head are rotated by angles proportional to the position of the token.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tinygrad.apps.language.model.config import RopeConfig
from tinygrad.device import Device
from tinygrad.errors import ArgumentError
from tinygrad.sharding import Sharding
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import TensorDevice
from tinygrad.uop.ops import UOp


class RotaryEmbedding:
    """Rotates heads by the angles of their positions, from tables computed in float64.

    >>> from tinygrad.apps.language.model.rotary import RotaryEmbedding
    >>> rotary = RotaryEmbedding(RopeConfig(dim=2, base=10000.0, pairs_adjacent=True), 4, "CPU")
    >>> rotary.rotate(Tensor.ones(1, 1, 1, 1, 2), rotary.angles([0], 1)).flatten().tolist()
    [1.0, 1.0]
    """

    def __init__(
        self,
        rope: RopeConfig,
        positions: int,
        device: TensorDevice,
        factors: Tensor | None = None,
    ) -> None:
        """`factors` (dim / 2,) divide the frequencies elementwise."""
        frequencies = rope.base ** -(np.arange(0, rope.dim, 2) / rope.dim) / rope.factor
        if factors is not None:
            frequencies = frequencies / factors.numpy()
        angles = np.outer(np.arange(positions), frequencies)
        self.rope = rope
        self.cosines = _table(np.cos(angles) * rope.magnitude, device)
        self.sines = _table(np.sin(angles) * rope.magnitude, device)

    def angles(self, starts: Sequence[int | UOp], length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines (starts, length, 1, 1, dim / 2) of the positions from each start."""
        cosines, sines = (
            Tensor.stack(*[table[start : start + length] for start in starts])
            for table in (self.cosines, self.sines)
        )
        shape = (len(starts), length, 1, 1, self.rope.dim // 2)
        return cosines.reshape(shape), sines.reshape(shape)

    def rotate(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate the first `dim` elements of heads (rows, length, groups, heads, head_dim)."""
        dim = self.rope.dim
        if dim < x.shape[-1]:
            return self.rotate(x[..., :dim], angles).cat(x[..., dim:], dim=-1)
        return _rotated(x, *angles, self.rope.pairs_adjacent)


def _rotated(x: Tensor, cosines: Tensor, sines: Tensor, pairs_adjacent: bool) -> Tensor:
    """Pairs of the last axis rotated by angles: neighbours, or elements of both halves."""
    # the axis of the two elements of a pair
    axis = -1 if pairs_adjacent else -2
    pairs = x.unflatten(-1, (-1, 2) if pairs_adjacent else (2, -1))
    a, b = (part.squeeze(axis) for part in pairs.split(1, axis))
    both = (a * cosines - b * sines, a * sines + b * cosines)
    return Tensor.stack(*both, dim=axis).flatten(-2)


@functools.lru_cache(8)
def precompute_freqs_cis(dim: int, end: int, theta: float = 10000.0) -> Tensor:
    """Cosines and then sines, (end, dim), of the angles of positions up to `end`.

    >>> from tinygrad.apps.llm import precompute_freqs_cis
    >>> precompute_freqs_cis(2, 1).tolist()
    [[1.0, 0.0]]
    """
    angles = np.outer(np.arange(end), theta ** -(np.arange(0, dim, 2) / dim))
    return _table(np.concatenate([np.cos(angles), np.sin(angles)], -1), Device.DEFAULT)


def apply_rope(x: Tensor, freqs_cis: Tensor | int | UOp, base: float = 10000.0) -> Tensor:
    """Rotate heads (batch, heads, length, head_dim) by a table (length, head_dim) of
    `precompute_freqs_cis`, or from a first position on. Element i is paired with i + head_dim / 2.

    Raises ValueError for an odd head_dim.

    >>> from tinygrad.apps.llm import apply_rope
    >>> apply_rope(Tensor.ones(1, 1, 1, 2), 0).tolist()
    [[[[1.0, 1.0]]]]
    """
    length, dim = x.shape[-2:]
    if dim % 2:
        raise ArgumentError(f"apply_rope: head_dim of {x.shape} is odd; elements are paired")
    if not isinstance(freqs_cis, Tensor):
        start = freqs_cis
        last = start if isinstance(start, int) else int(start.vmax)
        freqs_cis = precompute_freqs_cis(dim, last + length, base)[start : start + length]
    device = x.device.replicated() if isinstance(x.device, Sharding) else x.device
    cosines, sines = freqs_cis.to(device).chunk(2, -1)
    return _rotated(x, cosines, sines, pairs_adjacent=False)


def _table(values: npt.NDArray[np.float64], device: TensorDevice) -> Tensor:
    return Tensor(values.astype(np.float32)).to(device).contiguous().realize()
