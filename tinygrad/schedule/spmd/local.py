"""The block of a value that one device holds, in the per-device graph.

Input: a layout, a global shape, local values. Output: local shapes, the start of the running
device's block, and local values sliced, padded, masked or permuted. Invariant: all devices run the
same graph; what differs between them depends on the Variable `DEVICE_NUMBER`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import cast

from tinygrad.device import Device
from tinygrad.dtype import ConstType, dtypes
from tinygrad.helpers import ceildiv, prod
from tinygrad.schedule.execution_plan import DEVICE_NUMBER
from tinygrad.sharding import Sharding, max_shape
from tinygrad.uop import Ops
from tinygrad.uop.device_value import Spmd, TensorDevice
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.sint import fits_int32, index_dtype, is_one


def is_host_source(layout: TensorDevice) -> bool:
    """Whether values are host data that is copied to devices, and no kernel can run there."""
    return isinstance(layout, str) and Device[layout].is_host_source


def local_shape(layout: TensorDevice, shape: tuple[sint, ...]) -> tuple[sint, ...]:
    """The shape of the block that each device holds of a global `shape`."""
    return layout.local_shape(shape) if isinstance(layout, Sharding) else shape


def local_device(layout: TensorDevice) -> str | Spmd:
    """The device of the per-device graph for a layout."""
    return Spmd(layout.devices) if isinstance(layout, Sharding) else layout


def device_number(count: int) -> UOp:
    """The number of the device that runs the kernel, of `count` devices."""
    return UOp.variable(DEVICE_NUMBER, 0, count - 1)


def depends_on_device(bound: sint) -> bool:
    """Whether a size or bound depends on which device runs the kernel."""
    return isinstance(bound, UOp) and any(
        x.op is Ops.DEFINE_VAR and x.arg[0] == DEVICE_NUMBER for x in bound.toposort()
    )


def block_number(layout: Sharding, axis: int) -> sint:
    """The number of the running device's block of a sharded axis."""
    number = device_number(len(layout))
    found: sint = 0
    for stride, count, weight in layout.block_strides(axis):
        coordinate = (number // stride) % count if stride > 1 or count < len(layout) else number
        found = coordinate * weight + found
    return found


def block_start(layout: Sharding, axis: int, shape: tuple[sint, ...]) -> sint:
    """The start of the running device's block of `axis`; negative if it begins before the array."""
    first, step, _, stride, listed = layout.span(axis, shape).reduced
    if listed:
        return _listed_start(block_number(layout, axis), [start for start, _ in listed])
    if not step:
        return first
    at = block_number(layout, axis) * step + first
    if stride == 1:
        return at
    # rounded up, as an integer division of a number that is not negative
    extra = max(0, -min(first, first + step * (layout.shards(axis) - 1)))
    extra += -extra % stride
    return (at + (extra + stride - 1)) // stride - extra // stride


def _listed_start(number: sint, starts: list[int]) -> sint:
    """The start with this number."""
    if isinstance(number, int):
        return starts[number]
    found = number.const_like(starts[-1])
    for last in reversed(range(len(starts) - 1)):
        if starts[last] != starts[last + 1]:
            found = (number < last + 1).where(number.const_like(starts[last]), found)
    return found.simplify()


def device_block(layout: TensorDevice, axis: int, device: int) -> int:
    """The number of the block of `axis` that device number `device` holds."""
    strides = layout.block_strides(axis) if isinstance(layout, Sharding) else []
    return sum(device // stride % count * weight for stride, count, weight in strides)


def device_start(layout: TensorDevice, axis: int, shape: tuple[sint, ...], device: int) -> int:
    """The start of the block of device number `device`, as `block_start` is for the running one."""
    if not isinstance(layout, Sharding):
        return 0
    return layout.span(axis, shape).start(device_block(layout, axis, device))


def start_bounds(layout: Sharding, axis: int, shape: tuple[sint, ...]) -> tuple[int, int]:
    """The minimum and the maximum of the starts of all blocks of `axis`."""
    return layout.span(axis, shape).start_bounds(layout.shards(axis))


def slice_block(
    value: UOp, source: Sharding | None, target: Sharding, shape: tuple[sint, ...]
) -> UOp:
    """The running device's block in layout `target` of a local value in layout `source`, which
    contains it (None: the value is replicated). Elements outside of the array are zeros.
    """
    bounds: list[tuple[sint, sint]] = []
    padding: list[tuple[sint, sint]] = []
    for axis, held in enumerate(value.shape):
        if target.shards(axis) > 1 and not isinstance(held, int):
            value = pad_axis(value, axis, 0, max_shape((held,))[0] - held)
    for axis, held in enumerate(value.shape):
        padding.append((0, 0))
        if target.shards(axis) == (source.shards(axis) if source is not None else 1):
            bounds.append((0, held))
            continue
        length, start = target.span(axis, shape).length, block_start(target, axis, shape)
        if source is not None and source.shards(axis) > 1:
            # the local value starts at a multiple of its size, and contains the target's block
            start = start % max(cast(int, held), 1)
        else:
            low, high = start_bounds(target, axis, shape)
            before, after = max(0, -low), max(0, high + length - cast(int, held))
            padding[axis] = (before, after)
            start = start + before
        start = start.simplify() if isinstance(start, UOp) else start
        bounds.append((start, start + length))
    return value.pad(tuple(padding)).shrink(tuple(bounds))


def interleave(value: UOp, *levels: Sequence[sint]) -> UOp:
    """Merge tiles: `(*outer, *inner)` to `(outer0 * inner0, outer1 * inner1, ...)`. There may be
    more than two levels.
    """
    rank = len(levels[0])
    order = tuple(level * rank + d for d in range(rank) for level in range(len(levels)))
    value = permute_axes(value.reshape(tuple(itertools.chain(*levels))), order)
    return value.reshape(tuple(prod(sizes) for sizes in zip(*levels, strict=True)))


def deinterleave(value: UOp, *levels: Sequence[sint]) -> UOp:
    """Split into tiles: `(outer0 * inner0, ...)` to `(*outer, *inner)`. Inverts `interleave`."""
    rank, count = len(levels[0]), len(levels)
    sizes = tuple(itertools.chain(*zip(*levels, strict=True)))
    order = tuple(d * count + level for level in range(count) for d in range(rank))
    return permute_axes(value.reshape(sizes), order)


def permute_axes(value: UOp, order: tuple[int, ...]) -> UOp:
    """A PERMUTE, or a RESHAPE where only axes of size 1 are permuted."""
    shape = value.shape
    real = [i for i in order if not is_one(shape[i])]
    if real == sorted(real):
        return value.reshape(tuple(shape[i] for i in order))
    return value.permute(order)


def pad_to_max_shape(value: UOp) -> UOp:
    """`value` with each axis of symbolic size padded with zeros to the size's upper bound."""
    extra = zip(value.shape, max_shape(value.shape), strict=True)
    return value.pad(tuple((0, 0) if isinstance(d, int) else (0, m - d) for d, m in extra))


def pad_flat(value: UOp, multiple: int) -> UOp:
    """`value` flattened, and padded with zeros to a multiple of `multiple` elements."""
    size = prod(cast(tuple[int, ...], value.shape))
    flat = value.reshape((size,))
    extra = ceildiv(size, multiple) * multiple - size
    return flat.pad(((0, extra),))


def slice_axis(value: UOp, axis: int, start: sint, end: sint) -> UOp:
    """Elements `start` to `end` of one axis."""
    shape = value.shape
    return value.shrink(tuple((start, end) if a == axis else (0, d) for a, d in enumerate(shape)))


def pad_axis(value: UOp, axis: int, before: sint, after: sint) -> UOp:
    """`value` with zeros before and after one axis."""
    return value.pad(tuple((before, after) if a == axis else (0, 0) for a in range(value.ndim)))


def pad_to_shape(value: UOp, shape: tuple[sint, ...]) -> UOp:
    """`value` with zeros past the end of each axis, up to `shape`."""
    pairs = zip(shape, value.shape, strict=True)
    return value.pad(tuple((0, 0) if a is b else (0, a - b) for a, b in pairs))


def global_indices(value: UOp, axis: int, start: sint, limit: sint) -> UOp:
    """The global index along `axis` of each element of a local value, whose block begins at
    `start`. They may be compared with `limit`.
    """
    size = value.shape[axis]
    dtype = index_dtype(start, start + size, limit)
    shape = tuple(size if a == axis else 1 for a in range(value.ndim))
    index = UOp.arange(size, dtype).reshape(shape).expand(value.shape)
    return UOp(Ops.ADD, dtype, (index, broadcast_scalar(start, index)))


def rows_in_block(rows: UOp, start: sint, size: sint) -> UOp:
    """Row numbers counted from the `start` of a block of `size` rows; those of other rows are out
    of range.
    """
    # integers that wrap do not wrap into a block whose end is representable
    dtype = index_dtype(start, start + size)
    if not fits_int32(rows):
        dtype = dtypes.int64
    rows = rows.cast(dtype)
    return UOp(Ops.SUB, dtype, (rows, broadcast_scalar(start, rows)))


def broadcast_scalar(number: sint, like: UOp) -> UOp:
    """A number with the shape and dtype of `like`, which holds it."""
    if not isinstance(number, UOp):
        return like.const_like(number)
    value, shape = number.cast(like.dtype), like.shape
    return value.reshape((1,) * len(shape)).expand(shape) if shape else value


def mask_outside(
    value: UOp, layout: Sharding, axis: int, shape: tuple[sint, ...], fill: ConstType
) -> UOp:
    """The local value with `fill` in place of elements past the end of `axis`, or before its
    begin.
    """
    size, length = shape[axis], cast(int, value.shape[axis])
    low, high = start_bounds(layout, axis, shape)
    inside: UOp | None = None
    index = global_indices(value, axis, block_start(layout, axis, shape), size)
    if low < 0:
        inside = index.alu(Ops.CMPLT, index.const_like(0)).logical_not()
    if not isinstance(size, int) or high + length > size:
        below_end = index.alu(Ops.CMPLT, broadcast_scalar(size, index))
        inside = below_end if inside is None else inside.alu(Ops.AND, below_end)
    if inside is None:
        return value
    return inside.alu(Ops.WHERE, value, value.const_like(fill))
