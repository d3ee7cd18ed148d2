"""What one device holds of a value, in the per-device graph.

In: a layout and a global shape. Out: local shapes, where the running device's part starts, and the
local value cut, rearranged or filled up accordingly.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import cast

from tinygrad.device import Device
from tinygrad.dtype import ConstType, dtypes
from tinygrad.helpers import ceildiv, prod
from tinygrad.schedule.execution_plan import DEVICE_NUMBER
from tinygrad.sharding import Sharding
from tinygrad.uop import Ops
from tinygrad.uop.device_value import Spmd, TensorDevice, device_names
from tinygrad.uop.ops import UOp, sint


def is_host_source(layout: TensorDevice) -> bool:
    """Whether values are host data that is copied to devices, and no kernel can run there."""
    return isinstance(layout, str) and Device[layout].is_host_source


def local_shape(layout: TensorDevice, shape: tuple[sint, ...]) -> tuple[sint, ...]:
    """What each device holds of a global `shape`."""
    return layout.local_shape(shape) if isinstance(layout, Sharding) else shape


def device_of(layout: TensorDevice) -> str | Spmd:
    """The layout as a device of the per-device graph."""
    return Spmd(layout.devices) if isinstance(layout, Sharding) else layout


def device_number(count: int) -> UOp:
    """The number of the device that runs the kernel, known when it runs."""
    return UOp.variable(DEVICE_NUMBER, 0, count - 1)


def is_of_device(bound: sint) -> bool:
    """Whether a bound depends on which device runs the kernel."""
    return isinstance(bound, UOp) and any(
        x.op is Ops.DEFINE_VAR and x.arg[0] == DEVICE_NUMBER for x in bound.toposort()
    )


def part_number(layout: Sharding, axis: int) -> sint:
    """The number of the running device's part of a split axis."""
    number = device_number(len(layout))
    found: sint = 0
    for stride, count, weight in layout.block_strides(axis):
        coordinate = (number // stride) % count if stride > 1 or count < len(layout) else number
        found = coordinate * weight + found
    return found


def part_start(layout: Sharding, axis: int, shape: tuple[sint, ...]) -> sint:
    """Where the running device's part of `axis` starts; less than 0 if it starts before it."""
    first, step, _ = layout.span(axis, shape)
    return part_number(layout, axis) * step + first if step else first


def part_numbers(layout: TensorDevice, axis: int) -> list[int]:
    """For each device, the number of its part of `axis`."""
    terms = layout.block_strides(axis) if isinstance(layout, Sharding) else []
    return [
        sum(device // stride % count * weight for stride, count, weight in terms)
        for device in range(len(device_names(layout)))
    ]


def part_starts(layout: TensorDevice, axis: int, shape: tuple[sint, ...]) -> list[int]:
    """For each device, where its part of a split `axis` starts, see `part_start`."""
    first, step, _ = layout.span(axis, shape) if isinstance(layout, Sharding) else (0, 0, 0)
    return [first + step * number for number in part_numbers(layout, axis)]


def slice_local(
    value: UOp, source: Sharding | None, target: Sharding, shape: tuple[sint, ...]
) -> UOp:
    """Keep the running device's part of a value that it holds more of (None: all of it).

    A part that goes beyond the array is filled up with zeros.
    """
    bounds: list[tuple[sint, sint]] = []
    padding: list[tuple[sint, sint]] = []
    for axis, held in enumerate(value.shape):
        if target.shards(axis) > 1 and not isinstance(held, int):
            value = padded(value, axis, 0, max_shape((held,))[0] - held)
    for axis, held in enumerate(value.shape):
        padding.append((0, 0))
        if target.shards(axis) == (source.shards(axis) if source is not None else 1):
            bounds.append((0, held))
            continue
        length, start = target.span(axis, shape)[2], part_start(target, axis, shape)
        if source is not None and source.shards(axis) > 1:
            # what is held starts at a multiple of its size, and contains the target's block
            start = start % max(cast(int, held), 1)
        else:
            each = part_starts(target, axis, shape)
            before, after = max(0, -min(each)), max(0, max(each) + length - cast(int, held))
            padding[axis] = (before, after)
            start = start + before
        start = start.simplify() if isinstance(start, UOp) else start
        bounds.append((start, start + length))
    return value.pad(tuple(padding)).shrink(tuple(bounds))


def interleave(value: UOp, *levels: Sequence[sint]) -> UOp:
    """`(*outer, *inner)` to `(outer0 * inner0, outer1 * inner1, ...)`, for any number of levels."""
    rank = len(levels[0])
    order = tuple(level * rank + d for d in range(rank) for level in range(len(levels)))
    value = moved(value.reshape(tuple(itertools.chain(*levels))), order)
    return value.reshape(tuple(prod(sizes) for sizes in zip(*levels, strict=True)))


def deinterleave(value: UOp, *levels: Sequence[sint]) -> UOp:
    """`(outer0 * inner0, ...)` to `(*outer, *inner)`: the inverse of `interleave`."""
    rank, count = len(levels[0]), len(levels)
    sizes = tuple(itertools.chain(*zip(*levels, strict=True)))
    order = tuple(d * count + level for level in range(count) for d in range(rank))
    return moved(value.reshape(sizes), order)


def moved(value: UOp, order: tuple[int, ...]) -> UOp:
    """A permute, as a reshape where only axes of size 1 change places."""
    shape = value.shape
    real = [i for i in order if shape[i] != 1]
    if real == sorted(real):
        return value.reshape(tuple(shape[i] for i in order))
    return value.permute(order)


def max_shape(shape: tuple[sint, ...]) -> tuple[int, ...]:
    """The largest size of each axis."""
    return tuple(d if isinstance(d, int) else int(d.vmax) for d in shape)


def pad_to_max_shape(value: UOp) -> UOp:
    """`value` with zeros after its axes of symbolic size, which get their largest."""
    extra = zip(value.shape, max_shape(value.shape), strict=True)
    return value.pad(tuple((0, 0) if isinstance(d, int) else (0, m - d) for d, m in extra))


def padded_flat(value: UOp, multiple: int) -> UOp:
    """`value` as one axis, padded with zeros to a multiple of `multiple`."""
    size = prod(cast(tuple[int, ...], value.shape))
    flat = value.reshape((size,))
    extra = ceildiv(size, multiple) * multiple - size
    return flat.pad(((0, extra),))


def along(value: UOp, axis: int, start: sint, end: sint) -> UOp:
    """Elements `start` to `end` of one axis."""
    shape = value.shape
    return value.shrink(tuple((start, end) if a == axis else (0, d) for a, d in enumerate(shape)))


def padded(value: UOp, axis: int, before: sint, after: sint) -> UOp:
    """`value` with zeros before and after one axis."""
    return value.pad(tuple((before, after) if a == axis else (0, 0) for a in range(value.ndim)))


def pad_to_shape(value: UOp, shape: tuple[sint, ...]) -> UOp:
    """`value` with zeros past the end of each axis, up to `shape`."""
    pairs = zip(shape, value.shape, strict=True)
    return value.pad(tuple((0, 0) if a is b else (0, a - b) for a, b in pairs))


def positions(value: UOp, axis: int, start: sint) -> UOp:
    """Where along `axis` of the global array each element of a local value lies, its part being at
    `start`.
    """
    size = value.shape[axis]
    shape = tuple(size if a == axis else 1 for a in range(value.ndim))
    index = UOp.arange(size).reshape(shape).expand(value.shape)
    return UOp(Ops.ADD, dtypes.int, (index, spread(start, value.shape)))


def spread(number: sint, shape: tuple[sint, ...]) -> UOp:
    """A number at every place of `shape`, in int32."""
    value = number.cast(dtypes.int) if isinstance(number, UOp) else UOp.const(dtypes.int, number)
    return value.reshape((1,) * len(shape)).expand(shape) if shape else value


def within(
    value: UOp, layout: Sharding, axis: int, shape: tuple[sint, ...], otherwise: ConstType
) -> UOp:
    """The local value, with a constant in place of what lies outside the array along `axis`."""
    size, held = shape[axis], cast(int, value.shape[axis])
    each = part_starts(layout, axis, shape)
    inside: UOp | None = None
    place = positions(value, axis, part_start(layout, axis, shape))
    if min(each) < 0:
        inside = place.alu(Ops.CMPLT, place.const_like(0)).logical_not()
    if not isinstance(size, int) or max(each) + held > size:
        below = place.alu(Ops.CMPLT, spread(size, value.shape))
        inside = below if inside is None else inside.alu(Ops.AND, below)
    if inside is None:
        return value
    return inside.alu(Ops.WHERE, value, value.const_like(otherwise))
