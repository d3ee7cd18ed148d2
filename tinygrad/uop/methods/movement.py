"""Movement ops: the same elements under another shape.

A movement that the layout of its source cannot follow is preceded by a reshard
(`reshard/movement.py`).
"""

from __future__ import annotations

from typing import Any, Self, TypeAlias

from tinygrad.helpers import argsort
from tinygrad.sharding import LAYOUT_RULES, Sharding
from tinygrad.uop import GroupOp, Ops, reshard
from tinygrad.uop.args import WindowArg
from tinygrad.uop.node import UNSET, Node
from tinygrad.uop.propagation.shape import movement_shape

AxisPairs: TypeAlias = tuple[tuple[int | Node, int | Node], ...]
"""For each axis, two numbers: elements before and after it, or its start and end."""


class NodeMovementMixin(Node):
    """One method for each movement op. A movement that changes nothing adds no node."""

    __slots__ = ()

    @property
    def base(self) -> Self:
        """The node below all movement."""
        node = self
        while node.op in GroupOp.Movement:
            node = node.src[0]
        return node

    def _movement(self, op: Ops, arg: Any) -> Self:
        source = self
        layout = self.device
        if isinstance(layout, Sharding) and LAYOUT_RULES[op.name](layout, self.shape, arg) is None:
            padded = reshard.reshape_padded(self, arg) if op is Ops.RESHAPE else None
            if padded is not None:
                return padded
            kept = reshard.move_kept(self, op, arg)
            if kept is not None:
                return kept
            source = reshard.reshard_for_movement(self, op, arg)
        new = type(self)(op, self.dtype, (source,), arg)
        if new._shape is UNSET:
            new._shape = movement_shape(op, source.shape, arg)
            if not isinstance(layout, Sharding):
                new._device = layout
        return new

    def reshape(self, shape: tuple[int | Node, ...] | int | Node, *sizes: int | Node) -> Self:
        """The same elements in row-major order under another shape, a tuple or several sizes."""
        if not isinstance(shape, tuple):
            shape = (shape, *sizes)
        if self.shape == shape:
            return self
        return self._movement(Ops.RESHAPE, shape)

    def expand(self, shape: tuple[int | Node, ...]) -> Self:
        """Repeat axes of size 1."""
        return self if self.shape == shape else self._movement(Ops.EXPAND, shape)

    def broadcast_to(self, shape: tuple[int | Node, ...]) -> Self:
        return self.reshape((1,) * len(shape)).expand(shape)

    def permute(self, order: tuple[int, ...] | int, *axes: int) -> Self:
        """Axis `i` of the result is axis `order[i]` of the source; a tuple or several axes."""
        if not isinstance(order, tuple):
            order = (order, *axes)
        if order == tuple(range(len(order))):
            return self
        return self._movement(Ops.PERMUTE, order)

    def pad(self, padding: AxisPairs) -> Self:
        """Zeros before and after each axis."""
        if all(isinstance(p, int) and p == 0 for pair in padding for p in pair):
            return self
        return self._movement(Ops.PAD, padding)

    def shrink(self, bounds: AxisPairs) -> Self:
        """Keep `start:end` of each axis."""
        return self if _is_full_slice(bounds, self.shape) else self._movement(Ops.SHRINK, bounds)

    def flip(self, flips: tuple[bool, ...]) -> Self:
        """Reverse the axes whose flag is set."""
        return self._movement(Ops.FLIP, flips) if any(flips) else self

    def window(self, arg: WindowArg) -> Self:
        """Slide windows over axes, see `WindowArg`."""
        return self._movement(Ops.WINDOW, arg)

    def unwindow(self, arg: WindowArg) -> Self:
        """The adjoint of `window`: put each element of a window back to its source position."""
        return self._movement(Ops.UNWINDOW, arg)

    def inverse_permute(self) -> tuple[int, ...]:
        """The order that undoes this PERMUTE."""
        return tuple(argsort(self.arg))


def _is_full_slice(bounds: AxisPairs, shape: tuple[int | Node, ...]) -> bool:
    # `==` between symbolic sizes is identity, since nodes are interned
    return all(
        isinstance(start, int) and start == 0 and end == size
        for (start, end), size in zip(bounds, shape, strict=True)
    )
