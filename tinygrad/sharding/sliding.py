"""Movement along a split axis: which elements each device reads, and which it makes of them.

PAD, SHRINK, FLIP, WINDOW and UNWINDOW map a run of elements along an axis to a run. In: the run of
each device on one side, as a `Span`. Out: the run on the other side. So the source of such a
movement needs only the elements that its own part of the result reads: a neighbour's border for a
window, the mirrored block for a flip, the picked rows for a slice.
"""

from __future__ import annotations

from typing import Any, Final

from tinygrad.sharding.layout import (
    Interval,
    Placement,
    Shape,
    Sharding,
    Span,
    greatest,
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


def source_span(
    op: str, argument: Any, shape: Shape, axis: int, result: Span, count: int
) -> Span | None:
    """What each of `count` devices reads along `axis` of a source of `shape` for its part of the
    result; a little more where these would be no equal runs. None if bounds are symbolic.
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
    # from the first window that reaches the part, or the last that starts before it, to the last
    each = [first + step * number for number in range(count)]
    lows = [min(-((reach - start) // stride), start // stride) for start in each]
    highs = [(start + size - 1) // stride for start in each]
    apart = step // stride
    low = min(start - apart * number for number, start in enumerate(lows))
    high = max(end - apart * number for number, end in enumerate(highs))
    return low, apart, high - low + 1


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
        # where windows before the first that is held still reach, some is missing
        missing = max(0, reach + 1 - stride)
        return first * stride + missing, step * stride, size * stride - missing
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
        if keeps_blocks(op, argument, layout, shape, axis):
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
            span = blocks  # windows whose stride is not 1 may yield some more elements
        moved = span_placement(count, axis, span, size)
        if isinstance(moved, Interval) and not isinstance(placement, Interval):
            return None
        axes.append(moved)
    return layout.with_axes(axes)


def keeps_blocks(op: str, argument: Any, layout: Sharding, shape: Shape, axis: int) -> bool:
    """Whether a SHRINK to a symbolic number of elements from the first on, or a PAD behind so many,
    leaves them where they are: blocks of a symbolic size are those of the greatest it can be.
    """
    if op not in ("SHRINK", "PAD") or axis in layout.interval_axes:
        return False
    start, end = argument[axis]
    if not (is_int(start) and start == 0) or is_int(end):
        return False
    size = end if op == "SHRINK" else (shape[axis] + end).ssimplify()
    return _blocks(greatest(size), layout.shards(axis)) == layout.span(axis, shape)


def span_placement(count: int, axis: int, span: Span, size: int) -> Placement:
    """Runs of an axis of `size` in `count` parts, by their plainest name: full copies, blocks."""
    if span == (0, 0, size):
        return None
    return axis if size > 1 and span == _blocks(size, count) else Interval(axis, *span)


def sources_to_slide(op: str, layout: Sharding, shape: Shape, argument: Any) -> list[Sharding]:
    """Layouts of the source under which the result has blocks, or full copies, of the axes that
    the movement slides along.
    """
    choices = [layout]
    for axis in layout.split_axes:
        if not moves_along(op, argument, shape, axis):
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


def layout_to_pick(
    layout: Sharding, shape: Shape, bounds: Any, new_shape: Shape
) -> Sharding | None:
    """Full copies along the split axes that a SHRINK cuts, if that is at symbolic places and leaves
    no more than a block of any. Then each device can pick what is in its own.
    """
    cut = [axis for axis in layout.split_axes if moves_along("SHRINK", bounds, shape, axis)]
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
    """What the source must hold for the result to have `layout`, if only runs are moved."""
    below = layout
    for axis in layout.split_axes:
        if not moves_along(op, argument, shape, axis):
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
