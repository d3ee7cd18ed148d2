"""Visualization of shardings: which device holds which shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinygrad.mixin.core import TensorCore
from tinygrad.sharding.drawing import Drawing
from tinygrad.uop.arguments import is_integer


class VisualizationMixin(TensorCore):
    """`visualize_sharding`."""

    __slots__ = ()

    def visualize_sharding(
        self, axes: Sequence[int] | None = None, at: Mapping[int, int] | None = None
    ) -> Drawing:
        """Draw which device holds which shard: as text when printed, as SVG in a notebook and by
        `.svg()`. Nothing is computed.

        `axes` are the one or two axes to draw, vertical first; by default sharded axes, then the
        last ones. `at` selects an index along others, as in `{0: 3}`; without it, there is a table
        for each shard. Raises ShardingError for axes out of range.

        >>> print(Tensor.ones(4, 2).shard(("CPU", "CPU:1"), axis=0).visualize_sharding())
        (4, 2) on Sharding(CPU:0-1, axis=0), (2, 2) each
             0:2
            ┌───────┐
        0:2 │  CPU  │
            ├───────┤
        2:4 │ CPU:1 │
            └───────┘
        """
        if axes is not None and not (isinstance(axes, Sequence) and all(map(is_integer, axes))):
            raise TypeError(f"visualize_sharding: axes={axes!r} must be a sequence of integers")
        chosen = None if axes is None else tuple(axes)
        return Drawing(self.device, self.shape, chosen, at)
