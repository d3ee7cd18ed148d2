"""Seeing where a tensor is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinygrad.mixin.core import TensorCore
from tinygrad.sharding.drawing import Drawing


class DrawingMixin(TensorCore):
    """`visualize_sharding`."""

    __slots__ = ()

    def visualize_sharding(
        self, axes: Sequence[int] | None = None, at: Mapping[int, int] | None = None
    ) -> Drawing:
        """A picture of which device holds which block of this tensor: text where it is printed or
        shown at a prompt, SVG in a notebook (and by `.svg()`). Nothing is computed.

        `axes` are one or two to show, from top to bottom and from left to right; by default those
        that are split, then the last ones. `at` picks an index along others, as in `{0: 3}`;
        without one, there is a table for each block. Raises ShardingError for axes that there are
        not.

        >>> print(Tensor.ones(4, 2).shard(("CPU", "CPU:1"), axis=0).visualize_sharding())
        (4, 2) on Sharding(CPU:0-1, axis=0), (2, 2) each
             0:2
            ┌───────┐
        0:2 │  CPU  │
            ├───────┤
        2:4 │ CPU:1 │
            └───────┘
        """
        chosen = None if axes is None else tuple(axes)
        return Drawing(self.device, self.shape, chosen, at)
