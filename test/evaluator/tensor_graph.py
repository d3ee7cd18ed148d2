"""The logical value of a tensor graph, evaluated node by node with numpy.

In: a node of the tensor graph, and arrays for BUFFERs that have no storage. Out: its logical value
as a numpy array of the global shape. Placement does not matter: COPY and ALLREDUCE are the
identity, and a REDUCE_AXIS over a sharded axis is the whole reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from test.evaluator.arithmetic import (
    Array,
    elementwise,
    from_storage,
    is_elementwise,
    reduction,
    rounded,
    value_dtype,
)
from tinygrad import ranks
from tinygrad.device import MultiBuffer
from tinygrad.dtype import dtypes
from tinygrad.execution.buffers import read_buffer
from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp


def evaluate(root: UOp, buffers: Mapping[UOp, Array] | None = None) -> Array:
    """The logical value of `root`. `buffers` gives the values of BUFFERs, before their storage."""
    values: dict[UOp, Array] = {}
    with np.errstate(all="ignore"):
        for node in root.toposort():
            values[node] = _evaluate(node, [values[x] for x in node.src], buffers or {})
    return values[root]


def _evaluate(node: UOp, src: list[Array], buffers: Mapping[UOp, Array]) -> Array:
    op = node.op
    if op is Ops.BUFFER:
        return buffers[node] if node in buffers else stored_value(node)
    if op is Ops.BIND:
        return src[1]
    if op is Ops.DEFINE_VAR:
        return np.asarray(node.arg[1])
    if op is Ops.ARANGE:
        return rounded(np.arange(size(node.arg)), node.dtype)
    if op in GroupOp.Identity:
        return src[0]
    if op is Ops.ASSIGN:
        return np.broadcast_to(src[1], src[0].shape)
    if op in MOVEMENT:
        return MOVEMENT[op](src[0], node)
    if is_elementwise(node):
        return elementwise(node, src)
    if op is Ops.REDUCE_AXIS:
        return reduction(node.arg.op, src[0], node.arg.axes, node.dtype)
    if op in OTHER:
        return OTHER[op](src, node)
    raise NotImplementedError(f"{op.name} has no value in a tensor graph")


def size(x: Any) -> int:
    """A size that may be an expression of bound Variables."""
    return int(evaluate(x)) if isinstance(x, UOp) else x


def stored_value(node: UOp) -> Array:
    """The value of a BUFFER, assembled from its shards; zeros before the first write."""
    shape = node.arg.shape
    if not node.is_realized or 0 in shape:
        return np.zeros(shape, value_dtype(node.dtype))
    storage = node.buffer
    if not isinstance(storage, MultiBuffer):
        return from_storage(read_buffer(storage), node.dtype).reshape(shape)
    assert isinstance(node.device, Sharding)
    local = node.device.local_shape(shape)
    whole = np.empty(shape, value_dtype(node.dtype))
    # no message is sent to an empty shard
    own = {buffer.device: buffer.numpy() for buffer in storage.bufs if buffer.is_allocated()}
    stored = {device: array for shards in ranks.gather(own) for device, array in shards.items()}
    for device, region in zip(node.device, node.device.regions(shape), strict=True):
        if device not in stored:
            continue
        piece = from_storage(stored[device], node.dtype).reshape(local)
        inside = tuple(slice(stop - start) for start, stop in region)
        whole[tuple(slice(*bounds) for bounds in region)] = piece[inside]
    return whole


# ---- movement ----


def _pad(x: Array, node: UOp) -> Array:
    widths = [(size(before), size(after)) for before, after in node.arg]
    return np.pad(x, widths) if widths else x


def _shrink(x: Array, node: UOp) -> Array:
    return x[tuple(slice(size(start), size(end)) for start, end in node.arg)]


def _flip(x: Array, node: UOp) -> Array:
    return np.flip(x, tuple(i for i, flip in enumerate(node.arg) if flip))


def _window(x: Array, node: UOp) -> Array:
    for axis, kernel, count, stride, dilation in node.arg.windows:
        moved = np.moveaxis(x, (axis, kernel), (-2, -1))
        k = np.arange(moved.shape[-1])
        positions = np.arange(count)[:, None] * stride + k * dilation
        x = np.moveaxis(moved[..., positions, k], (-2, -1), (axis, kernel))
    return x


def _unwindow(x: Array, node: UOp) -> Array:
    for axis, kernel, count, stride, dilation in node.arg.windows:
        moved = np.moveaxis(x, (axis, kernel), (-2, -1))
        k = np.arange(moved.shape[-1])
        offset = np.arange(count)[:, None] - k * dilation
        valid = (offset >= 0) & (offset % stride == 0) & (offset // stride < moved.shape[-2])
        position = np.where(valid, offset // stride, 0)
        found = np.where(valid, moved[..., position, k], np.zeros((), x.dtype))
        x = np.moveaxis(found, (-2, -1), (axis, kernel))
    return x


def _sizes(node: UOp) -> tuple[int, ...]:
    return tuple(size(s) for s in node.arg)


MOVEMENT: dict[Ops, Callable[[Array, UOp], Array]] = {
    Ops.RESHAPE: lambda x, node: x.reshape(_sizes(node)),
    Ops.EXPAND: lambda x, node: np.broadcast_to(x, _sizes(node)),
    Ops.PERMUTE: lambda x, node: np.transpose(x, node.arg),
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
    Ops.WINDOW: _window,
    Ops.UNWINDOW: _unwindow,
}


# ---- indexing by a tensor ----


def _batch(index: Array, count: int) -> list[Array]:
    """The position along each of the first axes of an index."""
    return list(np.indices(index.shape, sparse=True)[:count])


def _gather(src: list[Array], node: UOp) -> Array:
    table, index = src
    count = table.shape[node.arg]
    inside = (index >= 0) & (index < count)
    if count == 0:
        return np.zeros((*index.shape, *table.shape[node.arg + 1 :]), table.dtype)
    rows = table[(*_batch(index, node.arg), np.where(inside, index, 0))]
    mask = inside.reshape(inside.shape + (1,) * (table.ndim - 1 - node.arg))
    return np.where(mask, rows, np.zeros((), table.dtype))


def _scatter(src: list[Array], node: UOp) -> Array:
    values, index = src
    start, combine = {
        Ops.SCATTER_ADD: (0, np.add),
        Ops.SCATTER_MUL: (1, np.multiply),
        Ops.SCATTER_MAX: (dtypes.min(node.dtype), np.maximum),
    }[node.op]
    shape = (*map(size, node.arg), *values.shape[index.ndim :])
    result = np.full(shape, start, values.dtype)
    inside = (index >= 0) & (index < size(node.arg[-1]))
    batch = [np.broadcast_to(x, index.shape)[inside] for x in _batch(index, len(node.arg) - 1)]
    combine.at(result, (*batch, index[inside]), values[inside])
    return rounded(result, node.dtype)


def _stack_shards(src: list[Array], node: UOp) -> Array:
    whole = np.zeros(node.shape, value_dtype(node.dtype))
    for shard, region in zip(src, node.arg.regions(node.shape), strict=True):
        where = tuple(slice(*bounds) for bounds in region)
        # the shards of a partial value are partial sums
        whole[where] = whole[where] + shard if node.arg.is_partial else shard
    return whole


def _select_shard(src: list[Array], node: UOp) -> Array:
    layout = node.src[0].device
    assert isinstance(layout, Sharding)
    region = layout.regions(src[0].shape)[node.arg]
    return src[0][tuple(slice(*bounds) for bounds in region)]


OTHER: dict[Ops, Callable[[list[Array], UOp], Array]] = {
    Ops.GATHER: _gather,
    **dict.fromkeys(GroupOp.Scatter, _scatter),
    Ops.MSTACK: _stack_shards,
    Ops.MSELECT: _select_shard,
}
