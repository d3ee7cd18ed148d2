"""Shapes and movement of elements.

The arithmetic on sizes is in separate functions, which host arrays use too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad.helpers import prod
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.registry import operator
from tinygrad.nn.onnx.values import Array, HostValue, Value
from tinygrad.tensor import Tensor

Ints = tuple[int, ...]


def fixed_shape(value: Value) -> Ints:
    """The sizes as numbers. Raises OnnxError for symbolic ones."""
    shape = value.array.shape if isinstance(value, HostValue) else value.shape
    if not all(isinstance(size, int) for size in shape):
        raise OnnxError(f"the shape {shape} is symbolic, and a model computes with numbers")
    return tuple(shape)


@operator("Shape")
def shape(data: Value, *, start: int = 0, end: int | None = None) -> Array:
    return np.array(fixed_shape(data)[start:end], np.int64)


@operator("Size")
def size(data: Value) -> Array:
    return np.array(prod(fixed_shape(data)), np.int64)


# ---- other shapes ----


def reshaped_sizes(old: Sequence[int], shape: Array, allowzero: int) -> Ints:
    """The target sizes of Reshape: 0 keeps a size, unless zeros are allowed, and -1 infers one."""
    wanted = [int(size) for size in shape.reshape(-1)]
    if not allowzero:
        for i, size in enumerate(wanted):
            if size == 0 and i >= len(old):
                raise OnnxError(
                    f"shape {wanted} keeps size {i} of {tuple(old)}, which is not there"
                )
            wanted[i] = old[i] if size == 0 else size
    if wanted.count(-1) > 1 or any(size < -1 for size in wanted):
        raise OnnxError(f"shape {wanted} has more than one size to infer, or negative ones")
    if -1 in wanted:
        rest = prod([size for size in wanted if size != -1])
        if rest == 0 or prod(old) % rest:
            raise OnnxError(f"{tuple(old)} has {prod(old)} elements, which do not fit {wanted}")
        wanted[wanted.index(-1)] = prod(old) // rest
    return tuple(wanted)


@operator("Reshape")
def reshape(data: Tensor, shape: Array, *, allowzero: int = 0) -> Tensor:
    return data.reshape(reshaped_sizes(data.shape, shape, allowzero))


@operator("Flatten")
def flatten(data: Tensor, *, axis: int = 1) -> Tensor:
    """Two axes: those before `axis`, and the others."""
    if not -data.ndim <= axis <= data.ndim:
        raise OnnxError(f"axis {axis} is not within the shape {data.shape}")
    at = axis if axis >= 0 else axis + data.ndim
    return data.reshape((prod(data.shape[:at]), prod(data.shape[at:])))


def squeezed_sizes(old: Sequence[Any], axes: Array | None) -> tuple[Any, ...]:
    """The sizes without some of 1, by default without all."""
    if axes is None:
        return tuple(size for size in old if not (isinstance(size, int) and size == 1))
    gone = {axis_of(int(axis), len(old)) for axis in axes.reshape(-1)}
    if any(old[axis] != 1 for axis in gone):
        raise OnnxError(f"axes {axes.tolist()} of {tuple(old)} are not all of size 1")
    return tuple(size for i, size in enumerate(old) if i not in gone)


def inserted_axes(ndim: int, axes: Array) -> Ints:
    """The axes of the result that are new, in order."""
    count = ndim + axes.size
    found = sorted(axis_of(int(axis), count) for axis in axes.reshape(-1))
    if len(set(found)) != len(found):
        raise OnnxError(f"axes {axes.tolist()} name an axis twice")
    return tuple(found)


def axis_of(axis: int, ndim: int) -> int:
    """The axis, counted from the front. Raises OnnxError if there is none."""
    if not -ndim <= axis < ndim:
        raise OnnxError(f"axis {axis} is out of range for {ndim} axes")
    return axis % ndim


@operator("Squeeze")
def squeeze(data: Tensor, axes: Array | None = None) -> Tensor:
    return data.reshape(squeezed_sizes(data.shape, axes))


@operator("Unsqueeze")
def unsqueeze(data: Tensor, axes: Array) -> Tensor:
    sizes = list(data.shape)
    for axis in inserted_axes(data.ndim, axes):
        sizes.insert(axis, 1)
    return data.reshape(tuple(sizes))


@operator("Transpose")
def transpose(data: Tensor, *, perm: Ints = ()) -> Tensor:
    return data.permute(perm or tuple(reversed(range(data.ndim)))) if data.ndim else data


@operator("Expand")
def expand(data: Tensor, shape: Array) -> Tensor:
    """Broadcast against a shape, which may have ones where the data has not."""
    sizes = np.broadcast_shapes(fixed_shape(data), tuple(shape.tolist()))
    return data.expand(sizes) if sizes else data


@operator("Tile")
def tile(data: Tensor, repeats: Array) -> Tensor:
    counts = tuple(repeats.tolist())
    if len(counts) != data.ndim or any(count < 0 for count in counts):
        raise OnnxError(f"repeats {counts} are not one number for each axis of {data.shape}")
    return data.repeat(counts) if counts else data


# ---- slices ----


@operator("Concat")
def concat(*inputs: Tensor, axis: int) -> Tensor:
    return inputs[0].cat(*inputs[1:], dim=axis)


def split_sizes(old: Sequence[int], axis: int, split: Array | None, parts: int) -> list[int]:
    """The sizes of the chunks of an axis; by default equal, with the remainder in the last."""
    size = old[axis_of(axis, len(old))]
    if split is None:
        length = -(-size // parts)
        return [max(0, min(length, size - i * length)) for i in range(parts)]
    sizes: list[int] = split.tolist()
    if sum(sizes) != size or any(part < 0 for part in sizes):
        raise OnnxError(f"split {sizes} does not add up to {size}, the size of axis {axis}")
    return sizes


@operator("Split")
def split(
    data: Tensor,
    split: Array | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    output_count: int,
) -> tuple[Tensor, ...]:
    if num_outputs not in (None, output_count):
        raise OnnxError(f"num_outputs is {num_outputs}, and there are {output_count} outputs")
    return data.split(split_sizes(data.shape, axis, split, output_count), dim=axis)


def slices_of(
    old: Sequence[int], starts: Array, ends: Array, axes: Array | None, steps: Array | None
) -> tuple[slice, ...]:
    """The slice of each axis. The end of a slice with negative step may be before the first
    element.
    """
    names = range(len(starts)) if axes is None else axes.tolist()
    by = [1] * len(starts) if steps is None else steps.tolist()
    found = [slice(None)] * len(old)
    for name, start, end, step in zip(names, starts.tolist(), ends.tolist(), by, strict=True):
        if step == 0:
            raise OnnxError(f"the step of axis {name} is 0")
        axis = axis_of(name, len(old))
        found[axis] = slice(start, end, step)
    return tuple(found)


@operator("Slice")
def slice_(
    data: Tensor,
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Tensor:
    return data[slices_of(data.shape, starts, ends, axes, steps)] if data.ndim else data


# ---- padding ----

MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "wrap": "circular"}


@operator("Pad")
def pad(
    data: Tensor,
    pads: Array,
    value: Array | None = None,
    axes: Array | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """Elements before and after axes: `pads` are all starts, then all ends; negative ones cut."""
    if mode not in MODES:
        raise OnnxError(f"mode is {mode!r}, none of {', '.join(MODES)}")
    names = list(range(data.ndim)) if axes is None else axes.tolist()
    given = pads.tolist()
    if len(given) != 2 * len(names):
        raise OnnxError(f"pads {given} are not a start and an end for each of axes {names}")
    pairs = [(0, 0)] * data.ndim
    for i, name in enumerate(names):
        pairs[axis_of(name, data.ndim)] = (given[i], given[i + len(names)])
    fill = 0 if value is None else value.item()
    if mode == "wrap":
        return wrap_pad(data, pairs)
    return data.pad(pairs, MODES[mode], fill)


def wrap_pad(data: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
    """Circular padding along each axis."""
    for axis, (before, after) in enumerate(pairs):
        size = int(data.shape[axis])
        if (before <= 0 and after <= 0) or not size:
            continue
        turns = -(-max(before, 0) // size)
        count = turns + 1 + -(-max(after, 0) // size)
        repeated = data.repeat(tuple(count if i == axis else 1 for i in range(data.ndim)))
        start = turns * size - before
        bounds = (start, start + before + size + after)
        data = repeated.shrink(tuple(bounds if i == axis else None for i in range(data.ndim)))
    return data


@operator("CenterCropPad")
def center_crop_pad(data: Tensor, shape: Array, *, axes: Ints = ()) -> Tensor:
    """Center crop or pad of axes to new sizes."""
    pairs = [(0, 0)] * data.ndim
    for name, wanted in zip(axes or range(data.ndim), shape.tolist(), strict=True):
        axis = axis_of(name, data.ndim)
        missing = wanted - int(data.shape[axis])
        before = missing // 2 if missing >= 0 else -(-missing // 2)
        pairs[axis] = (before, missing - before)
    return data.pad(pairs)


# ---- permutations ----


@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Channels to blocks of `blocksize` by `blocksize` positions."""
    batch, channels, height, width = x.shape
    depth = channels // blocksize**2
    if mode == "DCR":
        apart = x.reshape((batch, blocksize, blocksize, depth, height, width))
        moved = apart.permute((0, 3, 4, 1, 5, 2))
    elif mode == "CRD":
        apart = x.reshape((batch, depth, blocksize, blocksize, height, width))
        moved = apart.permute((0, 1, 4, 2, 5, 3))
    else:
        raise OnnxError(f"mode is {mode!r}, not DCR or CRD")
    return moved.reshape((batch, depth, height * blocksize, width * blocksize))


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Blocks of `blocksize` by `blocksize` positions to channels."""
    batch, channels, height, width = x.shape
    rows, columns = height // blocksize, width // blocksize
    apart = x.reshape((batch, channels, rows, blocksize, columns, blocksize))
    if mode not in ("DCR", "CRD"):
        raise OnnxError(f"mode is {mode!r}, not DCR or CRD")
    moved = apart.permute((0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return moved.reshape((batch, channels * blocksize**2, rows, columns))


@operator("Trilu")
def triangle(x: Tensor, k: Array | None = None, *, upper: int = 1) -> Tensor:
    diagonal = 0 if k is None else int(k.item())
    return x.triu(diagonal) if upper else x.tril(diagonal)


@operator("ReverseSequence")
def reverse_sequence(
    x: Tensor, sequence_lens: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    """Reverse each sequence up to its length."""
    along = tuple(-1 if i == time_axis else 1 for i in range(x.ndim))
    across = tuple(-1 if i == batch_axis else 1 for i in range(x.ndim))
    place = Tensor.arange(x.shape[time_axis]).reshape(along)
    length = sequence_lens.cast("int32").reshape(across)
    source = (place < length).where(length - 1 - place, place)
    return x.gather(time_axis, source.expand(x.shape))
