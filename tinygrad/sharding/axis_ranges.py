"""Contiguous ranges of a sharded axis under PAD, SHRINK, FLIP, WINDOW and UNWINDOW.

These ops map a contiguous range of an axis to a contiguous range. Input: the range of each device
on one side, as a `Span`. Output: the range on the other side. So each device needs only the source
range that its own result range reads: a halo for a window, the mirrored block for a flip, the
selected rows for a slice.
"""

from __future__ import annotations

from typing import Any, Final

from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.placement import Interval, Placement, Span, placement_axis
from tinygrad.sharding.sizes import Shape, is_int, max_size

_WINDOWS: Final = frozenset({"WINDOW", "UNWINDOW"})
RANGE_OPS: Final = frozenset({"PAD", "SHRINK", "FLIP"}) | _WINDOWS


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


def source_span(op: str, argument: Any, shape: Shape, axis: int, result: Span) -> Span | None:
    """The source ranges along `axis` that each device reads for its `result` range. None if bounds
    are symbolic, ranges are listed, or a window reads every several elements of such ranges.
    """
    if result.bounds:
        return None
    if op not in _WINDOWS:
        return _mirrored(result, op, argument, shape, axis)
    window = _window(argument, shape, axis)
    if window is None or result.stride != 1:
        return None
    first, step, size, _, _ = result
    stride, reach = window
    if op == "WINDOW":
        return Span(first * stride, step * stride, (size - 1) * stride + reach + 1)
    # the windows that start at most `reach` before an element, and not after it
    return Span(first - reach, step, size + reach, stride)


def result_span(op: str, argument: Any, shape: Shape, axis: int, source: Span) -> Span | None:
    """The result ranges along `axis` that each device can compute from its `source` range. It
    inverts `source_span`.
    """
    if source.bounds:
        return None
    if op not in _WINDOWS:
        return _mirrored(source, op, argument, shape, axis, inverse=True)
    window = _window(argument, shape, axis)
    if window is None:
        return None
    first, step, size, every, _ = source
    stride, reach = window
    if op == "WINDOW":
        # the windows that start in a range and end in it
        size -= reach * every
        if every == 1 and first % stride == 0 and step % stride == 0:
            return Span(first // stride, step // stride, -(-size // stride))
        return Span(first, step, size, stride * every).reduced
    if every == stride:
        return Span(first + reach, step, size - reach)
    if every != 1:
        return None
    # windows before the first local one overlap the start, so that part is incomplete
    missing = max(0, reach + 1 - stride)
    return Span(first * stride + missing, step * stride, size * stride - missing)


def range_layout(op: str, layout: Sharding, shape: Shape, argument: Any) -> Sharding | None:
    """The layout of the result, or None if a device reads elements that it does not hold, or its
    range of the result is not a block.
    """
    found = _range_layout(op, layout, shape, argument)
    return None if found is None or (found.has_intervals and not layout.has_intervals) else found


def kept_layout(op: str, layout: Sharding, shape: Shape, argument: Any) -> Sharding | None:
    """The layout of the result of a slice, a flip, or a slice with a step (a WINDOW of one element)
    in which no element moves: each device keeps those that it holds. None for other ops.
    """
    if layout.is_partial or not _selects(op, argument, shape):
        return None
    if not all(is_int(shape[axis]) for axis in layout.split_axes):
        return None
    return _range_layout(op, layout, shape, argument)


def _range_layout(op: str, layout: Sharding, shape: Shape, argument: Any) -> Sharding | None:
    axes: list[Placement] = []
    for placement in layout.axes:
        axis = placement_axis(placement)
        if axis is None or not moves_axis(op, argument, shape, axis):
            axes.append(placement)
            continue
        if keeps_block_boundaries(op, argument, layout, shape, axis):
            axes.append(placement)
            continue
        held = layout.span(axis, shape)
        span = result_span(op, argument, shape, axis, held)
        if span is None or span.size < 1:
            return None
        size = new_size(op, argument, shape, axis)
        if not is_int(size):
            return None
        count = layout.shards(axis)
        blocks = _blocks(size, count)
        needed = source_span(op, argument, shape, axis, blocks)
        if needed is not None and same_ranges(needed, held, count, shape[axis]):
            span = blocks  # windows with stride may yield a few more elements
        axes.append(span_placement(count, axis, span, size))
    return layout.with_axes(axes)


def _selects(op: str, argument: Any, shape: Shape) -> bool:
    """Whether each element of the result is one of the source, and none is there twice."""
    if op in ("SHRINK", "FLIP"):
        return True
    return op == "WINDOW" and all(shape[window[1]] == 1 for window in argument.windows)


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
    if span.reduced == Span(0, 0, size):
        return None
    are_blocks = size > 1 and same_ranges(span, _blocks(size, count), count, size)
    return axis if are_blocks else Interval(axis, *span)


def same_ranges(first: Span, second: Span, count: int, size: int) -> bool:
    """Whether `count` ranges of an axis of `size` are equal wherever they hold elements."""
    first, second = first.reduced, second.reduced
    if first == second or first.length != second.length:
        return first == second
    if first.stride == second.stride == 1:
        return False
    for number in range(count):
        bounds = [(x.start(number), min(x.stop(number), size)) for x in (first, second)]
        if bounds[0] != bounds[1] and any(max(0, low) < high for low, high in bounds):
            return False
    return True


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
        wanted = [Span(0, 0, size)]
        if size > 1:
            wanted.insert(0, _blocks(size, layout.shards(axis)))
        spans = [source_span(op, argument, shape, axis, span) for span in wanted]
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
        if not 0 < size <= layout.span(axis, shape).length:
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
        span = source_span(op, argument, shape, axis, wanted)
        if span is None:
            return None
        below = _replaced(below, axis, span, shape)
    return below


def _blocks(size: int, count: int) -> Span:
    block = -(-size // count)
    return Span(0, block, block)


def _mirrored(
    span: Span, op: str, argument: Any, shape: Shape, axis: int, inverse: bool = False
) -> Span | None:
    """The source ranges of result ranges of a PAD, SHRINK or FLIP, or the `inverse`."""
    if op == "FLIP":
        first, step, size, stride, _ = span.reduced
        # of every several elements, devices have different numbers, which a local flip would shift
        return None if stride != 1 else Span(shape[axis] - first - size, -step, size)
    first, step, size, stride, _ = span
    shift = _shift(op, argument, axis)
    if shift is None:
        return None
    return Span(first + (shift if inverse else -shift) * stride, step, size, stride)


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
