"""Strided tensors as views of memory.

Input: a tensor of bytes, and an offset, a shape and strides in elements. Output: a tensor of that
shape over those bytes, without reading them. Strides of a slice, transpose or expand of a row-major
array become movement ops over a contiguous range of the memory. Other strides become a gather when
the value is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinygrad.dtype import DType, dtypes
from tinygrad.nn.state.file_bytes import FileFormatError, check_shape, shown, view_bytes
from tinygrad.tensor import Tensor


class Box(NamedTuple):
    """A box of a row-major array of `sizes` that starts at element `start` of the memory."""

    start: int
    sizes: tuple[int, ...]
    bounds: tuple[tuple[int, int], ...]


def strided_view(
    data: Tensor, dtype: DType, offset: int, shape: Sequence[int], strides: Sequence[int]
) -> Tensor:
    """The tensor whose element `i` is element `offset + sum(i * strides)` of `data`, its bytes.

    Raises FileFormatError if an element is out of the bounds of `data`.
    """
    shape = check_shape(shape, "a tensor")
    numbers = [offset, *strides]
    if len(strides) != len(shape) or not all(type(x) is int and x >= 0 for x in numbers):
        raise FileFormatError(
            f"a tensor of shape {shape} has offset {shown(offset)} and strides {shown(strides)}; "
            "there must be a stride for each axis, and none may be negative"
        )
    if 0 in shape:
        return Tensor.empty(*shape, dtype=dtype)
    elements = int(data.numel()) // dtype.itemsize
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if last >= elements:
        raise FileFormatError(
            f"a tensor of shape {shape} with offset {offset} and strides {shown(strides)} needs "
            f"{last + 1} elements, but its storage has {elements}"
        )
    real = [axis for axis, size in enumerate(shape) if size > 1 and strides[axis] > 0]
    real.sort(key=lambda axis: -strides[axis])
    sizes = [shape[axis] for axis in real]
    box = _box(offset, sizes, [strides[axis] for axis in real], elements)
    if box is None:
        return _gathered(data, dtype, offset, shape, strides)
    memory = view_bytes(data, box.start * dtype.itemsize, dtype, box.sizes)
    ordered = memory.shrink(box.bounds).reshape(tuple(sizes))
    placed = ordered.permute(tuple(sorted(range(len(real)), key=real.__getitem__)))
    kept = tuple(size if axis in real else 1 for axis, size in enumerate(shape))
    return placed.reshape(kept).expand(shape)


def _box(offset: int, sizes: Sequence[int], strides: Sequence[int], elements: int) -> Box | None:
    """The box that these strides, in descending order, describe within `elements`, or None."""
    if not sizes:
        return Box(offset, (1,), ((0, 1),))
    # an axis of stride s below one of stride t has room for t / s; the last element has stride 1
    inner = [*strides[1:], 1]
    if any(outer % stride for outer, stride in zip(strides, inner, strict=True)):
        return None
    room = [outer // stride for outer, stride in zip(strides, inner, strict=True)]
    # the array must end within the memory, so it may have to begin before the first element
    start = min(offset, elements - sizes[0] * strides[0])
    first = offset - start
    if start < 0 or first >= strides[0]:
        return None
    bounds = [(0, sizes[0])]
    for stride, size, limit in zip(inner, [*sizes[1:], 1], room, strict=True):
        bounds.append((first // stride, first // stride + size))
        first %= stride
        if bounds[-1][1] > limit:
            return None
    return Box(start, (sizes[0], *room), tuple(bounds))


def _gathered(
    data: Tensor, dtype: DType, offset: int, shape: Sequence[int], strides: Sequence[int]
) -> Tensor:
    """Any strides: a gather."""
    elements = int(data.numel()) // dtype.itemsize
    # an index of constants has no device, and combines with a tensor in a file
    index = Tensor.arange(1, dtype=dtypes.int64) + offset
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        steps = Tensor.arange(size, dtype=dtypes.int64) * stride
        index = index + steps.reshape(tuple(size if i == axis else 1 for i in range(len(shape))))
    return view_bytes(data, 0, dtype, (elements,))[index]
