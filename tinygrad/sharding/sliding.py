"""Movement along a split axis: which elements each device reads, and which it makes of them.

PAD, SHRINK, FLIP, WINDOW and UNWINDOW map a run of elements along an axis to a run. In: the run of
each device on one side, as a `Span`. Out: the run on the other side. So the source of such a
movement needs only the elements that its own part of the result reads: a neighbour's border for a
window, the mirrored block for a flip, the picked rows for a slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tinygrad.sharding.layout import (
    Interval,
    Placement,
    Shape,
    Sharding,
    Span,
    is_int,
    placement_axis,
)

SLIDING: Final = frozenset({"PAD", "SHRINK", "FLIP", "WINDOW", "UNWINDOW"})


def moves_along(op: str, argument: Any, shape: Shape, axis: int) -> bool:
    """Whether the movement does anything along `axis` of a source of `shape`."""
    if op == "PAD":
        return not _are(argument[axis], (0, 0))
    if op == "SHRINK":
        return not _are(argument[axis], (0, shape[axis]))
    return bool(argument[axis]) if op == "FLIP" else axis in argument.axes


def new_size(op: str, argument: Any, shape: Shape, axis: int) -> Any:
    """The size of `axis` after the movement."""
    if op == "PAD":
        return shape[axis] + sum(argument[axis])
    if op == "SHRINK":
        return argument[axis][1] - argument[axis][0]
    if op == "FLIP":
        return shape[axis]
    return next((size for a, _, size, _, _ in argument.windows if a == axis), shape[axis])


def source_span(op: str, argument: Any, shape: Shape, axis: int, result: Span) -> Span | None:
    """What each device reads along `axis` of a source of `shape` for its part of the result.

    None if these are no equal runs, or if bounds are symbolic.
    """
    first, step, size = result
    if op in ("PAD", "SHRINK"):
        shift = _shift(op, argument, axis)
        return None if shift is None else (first - shift, step, size)
    if op == "FLIP":
        return shape[axis] - first - size, -step, size
    window = _window(argument, shape, axis)
    if window is None:
        return None
    stride, reach = window
    if op == "WINDOW":
        return first * stride, step * stride, (size - 1) * stride + reach + 1
    if step % stride:
        return None
    low, high = (first - reach) // stride, (first + size - 1) // stride
    return low, step // stride, high - low + 1


def result_span(op: str, argument: Any, shape: Shape, axis: int, source: Span) -> Span | None:
    """What each device can make along `axis` from its part of a source of `shape`."""
    first, step, size = source
    if op in ("PAD", "SHRINK"):
        shift = _shift(op, argument, axis)
        return None if shift is None else (first + shift, step, size)
    if op == "FLIP":
        return shape[axis] - first - size, -step, size
    window = _window(argument, shape, axis)
    if window is None:
        return None
    stride, reach = window
    if op == "UNWINDOW":
        return first * stride + reach, step * stride, size * stride - reach
    if step % stride:
        return None
    low, high = -(-first // stride), (first + size - 1 - reach) // stride
    return low, step // stride, high - low + 1


def sliding_layout(op: str, layout: Sharding, shape: Shape, argument: Any) -> Sharding | None:
    """The layout of the result, or None where a device lacks what its part of the result reads."""
    axes: list[Placement] = []
    for placement in layout.axes:
        axis = placement_axis(placement)
        if axis is None or not moves_along(op, argument, shape, axis):
            axes.append(placement)
            continue
        span = result_span(op, argument, shape, axis, layout.span(axis, shape))
        if span is None or span[2] < 1:
            return None
        moved = span_placement(layout.shards(axis), axis, span, new_size(op, argument, shape, axis))
        if isinstance(moved, Interval) and not isinstance(placement, Interval):
            return None
        axes.append(moved)
    return layout.with_axes(axes)


def span_placement(count: int, axis: int, span: Span, size: int) -> Placement:
    """Runs of an axis of `size` in `count` parts, by their plainest name: what holds at least a
    full copy is one, what holds at least equal blocks is those.
    """
    first, step, length = span
    if step == 0 and first <= 0 and first + length >= size:
        return None
    block = -(-size // count)
    if size > 1 and step == block and first <= 0 and first + length >= block:
        return axis
    return Interval(axis, first, step, length)


def sources_to_slide(op: str, layout: Sharding, shape: Shape, argument: Any) -> list[Sharding]:
    """Layouts of the source under which the result has blocks, or full copies, of the axes that
    the movement slides along.
    """
    choices = [layout]
    for axis in layout.split_axes:
        if not moves_along(op, argument, shape, axis):
            continue
        size = new_size(op, argument, shape, axis)
        if not is_int(size) or size == 0:
            return []
        block = -(-size // layout.shards(axis))
        wanted: Sequence[Span] = [(0, 0, size)] if size == 1 else [(0, block, block), (0, 0, size)]
        spans = [source_span(op, argument, shape, axis, span) for span in wanted]
        choices = [
            _replaced(choice, axis, span, shape)
            for choice in choices
            for span in spans
            if span is not None
        ]
    return choices


def source_layout(op: str, layout: Sharding, shape: Shape, argument: Any) -> Sharding | None:
    """What the source must hold for the result to have `layout`, if only runs are moved."""
    below = layout
    for axis in layout.split_axes:
        if not moves_along(op, argument, shape, axis):
            continue
        placement = next(p for p in layout.axes if placement_axis(p) == axis)
        if not isinstance(placement, Interval):
            return None
        span = source_span(
            op, argument, shape, axis, (placement.first, placement.step, placement.size)
        )
        if span is None:
            return None
        below = _replaced(below, axis, span, shape)
    return below


def _replaced(layout: Sharding, axis: int, span: Span, shape: Shape) -> Sharding:
    new = span_placement(layout.shards(axis), axis, span, shape[axis])
    return layout.with_axes([new if placement_axis(p) == axis else p for p in layout.axes])


def _shift(op: str, argument: Any, axis: int) -> int | None:
    """How far elements move up the axis."""
    before = argument[axis][0]
    if not all(is_int(bound) for bound in argument[axis]):
        return None
    return int(before) if op == "PAD" else -int(before)


def _window(argument: Any, shape: Shape, axis: int) -> tuple[int, int] | None:
    """The stride of the windows over `axis`, and how far apart the ends of a window are."""
    for window_axis, kernel, _, stride, dilation in argument.windows:
        if window_axis == axis and is_int(shape[kernel]):
            return stride, (shape[kernel] - 1) * dilation
    return None


def _are(bounds: tuple[Any, Any], expected: tuple[int, int]) -> bool:
    return all(is_int(bound) for bound in bounds) and tuple(bounds) == expected
