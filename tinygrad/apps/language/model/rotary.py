"""Rotary positions (arXiv:2104.09864): pairs of elements of a head are turned by angles that grow
with the position of the token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tinygrad.apps.language.model.config import Rope
from tinygrad.sharding import Sharding
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp


class Rotary:
    """Turns the heads of tokens by the angles of their positions, which are computed in float64.

    >>> from tinygrad.apps.language.model.rotary import Rotary
    >>> rotary = Rotary(Rope(dim=2, base=10000.0, pairs_adjacent=True), 4, "CPU")
    >>> rotary.turned(Tensor.ones(1, 1, 1, 1, 2), rotary.angles([0], 1)).flatten().tolist()
    [1.0, 1.0]
    """

    def __init__(
        self,
        rope: Rope,
        positions: int,
        device: str | Sharding,
        factors: Tensor | None = None,
    ) -> None:
        """`factors` (dim / 2,) divide the frequencies one by one."""
        frequencies = rope.base ** -(np.arange(0, rope.dim, 2) / rope.dim) / rope.factor
        if factors is not None:
            frequencies = frequencies / factors.numpy()
        angles = np.outer(np.arange(positions), frequencies)
        self.rope = rope
        self.cosines = _table(np.cos(angles) * rope.magnitude, device)
        self.sines = _table(np.sin(angles) * rope.magnitude, device)

    def angles(self, starts: Sequence[int | UOp], length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines, (starts, length, 1, 1, dim / 2), of positions from each start on."""
        cosines, sines = (
            Tensor.stack(*[table[start : start + length] for start in starts])
            for table in (self.cosines, self.sines)
        )
        shape = (len(starts), length, 1, 1, self.rope.dim // 2)
        return cosines.reshape(shape), sines.reshape(shape)

    def turned(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """The tensor (rows, length, groups, heads, dim of a head), its first elements turned."""
        dim = self.rope.dim
        if dim < x.shape[-1]:
            return self.turned(x[..., :dim], angles).cat(x[..., dim:], dim=-1)
        # the axis of the two elements that are turned together
        axis = -1 if self.rope.pairs_adjacent else -2
        pairs = x.unflatten(-1, (-1, 2) if self.rope.pairs_adjacent else (2, -1))
        a, b = (part.squeeze(axis) for part in pairs.split(1, axis))
        cosines, sines = angles
        both = (a * cosines - b * sines, a * sines + b * cosines)
        return Tensor.stack(*both, dim=axis).flatten(-2)


def _table(values: npt.NDArray[np.float64], device: str | Sharding) -> Tensor:
    return Tensor(values.astype(np.float32)).to(device).contiguous().realize()
