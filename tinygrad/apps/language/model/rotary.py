"""Rotary position embedding (arXiv:2104.09864).

Pairs of elements of each head are rotated by angles proportional to the position of the token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tinygrad.apps.language.model.config import RopeConfig
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
        # the axis of the two elements of a pair
        axis = -1 if self.rope.pairs_adjacent else -2
        pairs = x.unflatten(-1, (-1, 2) if self.rope.pairs_adjacent else (2, -1))
        a, b = (part.squeeze(axis) for part in pairs.split(1, axis))
        cosines, sines = angles
        both = (a * cosines - b * sines, a * sines + b * cosines)
        return Tensor.stack(*both, dim=axis).flatten(-2)


def _table(values: npt.NDArray[np.float64], device: TensorDevice) -> Tensor:
    return Tensor(values.astype(np.float32)).to(device).contiguous().realize()
