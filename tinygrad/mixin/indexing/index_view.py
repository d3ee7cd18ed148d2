"""Parsed indices: the view of each axis, and the kinds of items that an index may have.

Input: the items of `x[...]`. Output: a `View`: a range of each axis, and the index tensors. Raises
IndexError, TypeError or ValueError for an item that is no index of its axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.errors import ArgumentError, ArgumentIndexError
from tinygrad.helpers import all_int, flatten
from tinygrad.mixin.core import TensorCore
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import broadcast_shape
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.slice_assign import ViewStep


@dataclass(frozen=True)
class AxisView:
    """The index of one axis: every `stride`-th of the elements `start` to `end`, in reverse order
    if `flip`. Without `keep`, the axis is dropped.
    """

    start: sint
    end: sint
    flip: bool = False
    stride: int = 1
    keep: bool = True

    @property
    def count(self) -> sint:
        """The number of elements selected."""
        if self.stride == 1:
            size = self.end - self.start
            return size.ssimplify() if isinstance(size, UOp) else size
        return -(-int(self.end - self.start) // self.stride)


@dataclass(frozen=True)
class View:
    """A parsed index: a view of each axis, and for each axis of the result the source axis, or None
    for a new one. `tensors` are the index tensors, by axis of the result.
    """

    axes: tuple[AxisView, ...]
    result: tuple[int | None, ...]
    tensors: dict[int, Any]

    @property
    def shape(self) -> tuple[sint, ...]:
        """The shape of the view, before it is indexed by tensors."""
        return tuple(1 if axis is None else self.axes[axis].count for axis in self.result)

    @property
    def strides(self) -> dict[int, int]:
        """The step of each axis that has one."""
        return {axis: a.stride for axis, a in enumerate(self.axes) if a.stride != 1}

    @property
    def steps(self) -> tuple[ViewStep, ...] | None:
        """The movement to the view, of elements at known places; None for any other."""
        axes = self.axes
        if self.tensors or not all(a.stride == 1 and all_int((a.start, a.end)) for a in axes):
            return None
        bounds = tuple((a.start, a.end) for a in axes)
        flips = tuple(a.flip for a in axes)
        return (Ops.SHRINK, bounds), (Ops.FLIP, flips), (Ops.RESHAPE, self.shape)


def indexed_shape(shape: tuple[sint, ...], tensors: dict[int, Any]) -> tuple[sint, ...]:
    """The shape after indexing a view of `shape` by tensors."""
    if not tensors:
        return shape
    common = common_shape(tensors)
    dims = sorted(tensors)
    rest = [size for i, size in enumerate(shape) if i not in tensors]
    at = dims[0] if are_adjacent(dims) else 0
    return (*rest[:at], *common, *rest[at:])


def common_shape(tensors: Mapping[int, TensorCore]) -> tuple[sint, ...]:
    """The shape of index tensors that broadcast to each other. Raises IndexError for others."""
    try:
        return broadcast_shape(*(t.shape for t in tensors.values()))
    except ArgumentError as error:
        raise ArgumentIndexError(
            f"the index tensors of axes {', '.join(map(str, tensors))}: {error}"
        ) from None


def is_array(item: Any) -> bool:
    """Whether an item of an index becomes an index tensor."""
    if isinstance(item, (TensorCore, list, tuple, range)):
        return True
    return hasattr(item, "__array__") and bool(getattr(item, "shape", ()))


def is_axis_item(item: Any) -> bool:
    """Whether an item makes a list an index of several axes, as numbers do not."""
    return item is None or item is Ellipsis or isinstance(item, (slice, TensorCore))


def axes_used(item: Any) -> int:
    """The number of axes of the tensor that an item of an index is for."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, TensorCore) and item.dtype is dtypes.bool else 1


def without_mask(items: list[Any]) -> list[Any]:
    """The items of an index with full slices in place of its mask."""
    full = slice(None)
    parts = [[full] * x.ndim if isinstance(x, TensorCore) else [x] for x in items]
    return flatten(parts)


def are_adjacent(dims: list[int]) -> bool:
    """Whether sorted axes are neighbours."""
    return dims[-1] - dims[0] == len(dims) - 1


def axis_view(item: Any, size: sint, axis: int, shape: tuple[sint, ...]) -> AxisView:
    """The index of one axis. Raises IndexError, TypeError, ValueError for an invalid one."""
    if isinstance(item, UOp):
        return AxisView(item, item + 1, keep=False)
    if isinstance(item, slice):
        return _slice_view(item, size)
    if isinstance(item, bool) or not hasattr(item, "__index__"):
        raise ArgumentIndexError(
            f"{item!r} of type {type(item).__name__} is not an index; use integers or slices"
        )
    position = int(item)
    if isinstance(size, int) and not -size <= position < size:
        raise ArgumentIndexError(
            f"index {position} is out of range for axis {axis} of shape {shape}"
        )
    start = position + size if position < 0 else position
    return AxisView(start, start + 1, keep=False)


def _slice_view(item: slice, size: sint) -> AxisView:
    """The view of an axis by a slice."""
    bounds = (item.start, item.stop, item.step)
    if any(isinstance(x, UOp) for x in (*bounds, size)):
        if item.step not in (None, 1):
            raise ArgumentIndexError(
                f"a slice with symbolic bounds has step 1, not {item.step}; first slice with that "
                "step and fixed bounds"
            )
        start = 0 if item.start is None else item.start
        end = size if item.stop is None else item.stop
        start = start + size if isinstance(start, int) and start < 0 else start
        end = end + size if isinstance(end, int) and end < 0 else end
        return AxisView(start, end)
    if not all(x is None or hasattr(x, "__index__") for x in bounds):
        raise TypeError(f"slice bounds must be integers, got {item}")
    if item.step == 0:
        raise ArgumentError(f"the step of a slice must not be 0, got {item}")
    start, stop, step = item.indices(int(size))
    count = len(range(start, stop, step))
    if count < 2:
        return AxisView(start, start + 1) if count else AxisView(0, 0)
    # with the rest of the last step, if it exists, so that nothing is padded
    if step > 0:
        rest = start + count * step
        return AxisView(start, rest if rest <= size else stop, stride=step)
    # the same elements, from the front
    rest = start + 1 + count * step
    return AxisView(rest if rest >= 0 else stop + 1, start + 1, True, -step)
