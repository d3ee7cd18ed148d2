"""Contiguous ranges of a sharded axis under PAD, SHRINK, FLIP, WINDOW and UNWINDOW.

These ops map a contiguous range of an axis to a contiguous range. Input: the range of each device
on one side, as a `Span`. Output: the range on the other side. So each device needs only the source
range that its own result range reads: a halo for a window, the mirrored block for a flip, the
selected rows for a slice.
"""

from __future__ import annotations

from typing import Any, Final

from tinygrad.sharding.layout import (
    Interval,
    Placement,
    Shape,
    Sharding,
    Span,
    is_int,
    max_size,
    placement_axis,
)

RANGE_OPS: Final = frozenset({"PAD", "SHRINK", "FLIP", "WINDOW", "UNWINDOW"})


def moves_axis(op: str, argument: Any, shape: Shape, axis: int) -> bool:
    """Whether the op changes anything along `axis` of a source of `shape`."""
    if op == "PAD":
        return not _are(argument[axis], (0, 0))
    if op == "SHRINK":
        return not _are(argument[axis], (0, shape[axis]))
    return bool(argument[axis]) if op == "FLIP" else axis in argument.axes


def new_size(op: str, argument: Any, shape: Shape, axis: int) -> Any:
    """The size of `axis` after the op."""
    if op == "PAD":
        return shape[axis] + sum(argument[axis])
    if op == "SHRINK":
        return argument[axis][1] - argument[axis][0]
    if op == "FLIP":
        return shape[axis]
    return next((size for a, _, size, _, _ in argument.windows if a == axis), shape[axis])


def source_span(
    op: str, argument: Any, shape: Shape, axis: int, result: Span, count: int
) -> Span | None:
    """The source range along `axis` that each of `count` devices reads for its `result` range,
    widened where the ranges would differ in size or step. None if bounds are symbolic.
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
    # from the first window that overlaps the range, or the last that starts before it, to the last
    each = [first + step * number for number in range(count)]
    lows = [min(-((reach - start) // stride), start // stride) for start in each]
    highs = [(start + size - 1) // stride for start in each]
    apart = step // stride
    low = min(start - apart * number for number, start in enumerate(lows))
    high = max(end - apart * number for number, end in enumerate(highs))
    return low, apart, high - low + 1


def result_span(op: str, argument: Any, shape: Shape, axis: int, source: Span) -> Span | None:
    """The result range along `axis` that each device can compute from its `source` range."""
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
        # windows before the first local one overlap the start, so that part is incomplete
        missing = max(0, reach + 1 - stride)
        return first * stride + missing, step * stride, size * stride - missing
    if step % stride:
        return None
    low, high = -(-first // stride), (first + size - 1 - reach) // stride
    return low, step // stride, high - low + 1


def range_layout(op: str, layout: Sharding, shape: Shape, argument: Any) -> Sharding | None:
    """The layout of the result, or None if a device reads elements that it does not hold."""
    axes: list[Placement] = []
    for placement in layout.axes:
        axis = placement_axis(placement)
        if axis is None or not moves_axis(op, argument, shape, axis):
            axes.append(placement)
            continue
        if keeps_block_boundaries(op, argument, layout, shape, axis):
            axes.append(placement)
            continue
        span = result_span(op, argument, shape, axis, layout.span(axis, shape))
        if span is None or span[2] < 1:
            return None
        size = new_size(op, argument, shape, axis)
        if not is_int(size):
            return None
        count = layout.shards(axis)
        blocks = _blocks(size, count)
        if source_span(op, argument, shape, axis, blocks, count) == layout.span(axis, shape):
            span = blocks  # windows with stride may yield a few more elements
        moved = span_placement(count, axis, span, size)
        if isinstance(moved, Interval) and not isinstance(placement, Interval):
            return None
        axes.append(moved)
    return layout.with_axes(axes)


def keeps_block_boundaries(
    op: str, argument: Any, layout: Sharding, shape: Shape, axis: int
) -> bool:
    """Whether a prefix SHRINK, or a trailing PAD, to a symbolic size keeps block boundaries: blocks
    of a symbolic size are those of its upper bound.
    """
    if op not in ("SHRINK", "PAD") or axis in layout.interval_axes:
        return False
    start, end = argument[axis]
    if not (is_int(start) and start == 0) or is_int(end):
        return False
    size = end if op == "SHRINK" else (shape[axis] + end).ssimplify()
    return _blocks(max_size(size), layout.shards(axis)) == layout.span(axis, shape)


def span_placement(count: int, axis: int, span: Span, size: int) -> Placement:
    """The placement of `count` ranges of an axis of `size`: replicated, blocks or `Interval`."""
    if span == (0, 0, size):
        return None
    return axis if size > 1 and span == _blocks(size, count) else Interval(axis, *span)


def source_layouts(op: str, layout: Sharding, shape: Shape, argument: Any) -> list[Sharding]:
    """Layouts of the source under which the result is in blocks, or replicated, along the axes that
    the op moves.
    """
    choices = [layout]
    for axis in layout.split_axes:
        if not moves_axis(op, argument, shape, axis):
            continue
        size = new_size(op, argument, shape, axis)
        if not is_int(shape[axis]) or not is_int(size) or size == 0:
            return []
        wanted: list[Span] = [(0, 0, size)]
        if size > 1:
            wanted.insert(0, _blocks(size, layout.shards(axis)))
        count = layout.shards(axis)
        spans = [source_span(op, argument, shape, axis, span, count) for span in wanted]
        choices = [
            _replaced(choice, axis, span, shape)
            for choice in choices
            for span in spans
            if span is not None
        ]
    return choices


def dynamic_slice_layout(
    layout: Sharding, shape: Shape, bounds: Any, new_shape: Shape
) -> Sharding | None:
    """The result layout of a dynamic slice: replicated along the sharded axes that a SHRINK with
    symbolic bounds cuts. Each device then selects the elements in its own block. None unless the
    SHRINK is such a slice, of one block at the most.
    """
    cut = [axis for axis in layout.split_axes if moves_axis("SHRINK", bounds, shape, axis)]
    if not cut or layout.has_intervals or layout.is_partial:
        return None
    for axis in cut:
        size = new_shape[axis]
        if is_int(bounds[axis][0]) or not is_int(size):
            return None
        if not 0 < size <= layout.span(axis, shape)[2]:
            return None
    return layout.with_axes([None if p in cut else p for p in layout.axes])


def source_layout(op: str, layout: Sharding, shape: Shape, argument: Any) -> Sharding | None:
    """The source layout for which the result has `layout`, or None if bounds are symbolic."""
    below = layout
    for axis in layout.split_axes:
        if not moves_axis(op, argument, shape, axis):
            continue
        result = list(shape)
        result[axis] = new_size(op, argument, shape, axis)
        wanted = layout.span(axis, tuple(result))
        span = source_span(op, argument, shape, axis, wanted, layout.shards(axis))
        if span is None:
            return None
        below = _replaced(below, axis, span, shape)
    return below


def _blocks(size: int, count: int) -> Span:
    block = -(-size // count)
    return 0, block, block


def _replaced(layout: Sharding, axis: int, span: Span, shape: Shape) -> Sharding:
    new = span_placement(layout.shards(axis), axis, span, shape[axis])
    return layout.with_axes([new if placement_axis(p) == axis else p for p in layout.axes])


def _shift(op: str, argument: Any, axis: int) -> int | None:
    """The offset of elements along the axis."""
    before = argument[axis][0]
    if not all(is_int(bound) for bound in argument[axis]):
        return None
    return int(before) if op == "PAD" else -int(before)


def _window(argument: Any, shape: Shape, axis: int) -> tuple[int, int] | None:
    """The stride of the windows over `axis`, and the distance between the ends of a window."""
    for window_axis, kernel, _, stride, dilation in argument.windows:
        if window_axis == axis and is_int(shape[kernel]):
            return stride, (shape[kernel] - 1) * dilation
    return None


def _are(bounds: tuple[Any, Any], expected: tuple[int, int]) -> bool:
    return all(is_int(bound) for bound in bounds) and tuple(bounds) == expected
