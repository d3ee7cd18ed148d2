"""What a tensor graph means: an interpreter in numpy, slow and plain, the oracle of other tests.

In: a node of the tensor graph, and arrays for BUFFERs that have no storage. Out: its logical value
as a numpy array of the global shape; bfloat16 and fp8 values come as float32 arrays that hold
nothing but values of the type. Where a value lives plays no part: COPY and ALLREDUCE are the
identity, and a REDUCE_AXIS over a split axis gives the whole value at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tinygrad.device import MultiBuffer
from tinygrad.dtype import (
    DType,
    dtypes,
    from_float32_array,
    is_stored_as_bits,
    to_float32_array,
    to_numpy_dtype,
    truncate,
)
from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

Array = np.ndarray[Any, Any]


def value_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy type that values of `dtype` are computed in here."""
    return np.dtype(np.float32) if is_stored_as_bits(dtype) else to_numpy_dtype(dtype)


def rounded(array: Array, dtype: DType) -> Array:
    """`array`, whose elements become values of `dtype`."""
    if is_stored_as_bits(dtype):
        return to_float32_array(from_float32_array(array, dtype), dtype)
    return np.asarray(array).astype(value_dtype(dtype), copy=False)


def from_storage(array: Array, dtype: DType) -> Array:
    """What the bytes of a buffer mean."""
    return to_float32_array(array, dtype) if is_stored_as_bits(dtype) else array


def to_storage(array: Array, dtype: DType) -> Array:
    """The bytes that a buffer of these values holds."""
    return from_float32_array(array, dtype) if is_stored_as_bits(dtype) else array


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
    if op is Ops.CONST:
        return np.asarray(rounded(np.asarray(truncate_const(node)), node.dtype))
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
    if op in ALU:
        return rounded(_alu(node, src), node.dtype)
    if op in OTHER:
        return OTHER[op](src, node)
    raise NotImplementedError(f"no meaning is given for {op.name}")


def truncate_const(node: UOp) -> Any:
    return truncate[node.dtype](node.arg) if node.dtype in truncate else node.arg


def size(x: Any) -> int:
    """A size that may be an expression of bound Variables."""
    return int(evaluate(x)) if isinstance(x, UOp) else x


def stored_value(node: UOp) -> Array:
    """The value of a BUFFER, put together from its shards; zeros if nothing was written yet."""
    shape = node.arg.shape
    if not node.is_realized or 0 in shape:
        return np.zeros(shape, value_dtype(node.dtype))
    storage = node.buffer
    if not isinstance(storage, MultiBuffer):
        return from_storage(storage.numpy(), node.dtype).reshape(shape)
    assert isinstance(node.device, Sharding)
    local = node.device.local_shape(shape)
    whole = np.empty(shape, value_dtype(node.dtype))
    for buffer, region in zip(storage, node.device.regions(shape), strict=True):
        piece = from_storage(buffer.numpy(), node.dtype).reshape(local)
        whole[tuple(slice(*bounds) for bounds in region)] = piece
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


# ---- elementwise ----


def _alu(node: UOp, src: list[Array]) -> Array:
    """The op in the type of its sources; scalars are broadcast by numpy."""
    if node.op is Ops.WHERE:
        return np.where(src[0], src[1], src[2])
    return ALU[node.op](*src)


def _truncated_division(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = a // safe
    inexact = (a - quotient * safe) != 0
    # numpy rounds down; toward zero is one more where the signs differ
    result = quotient + (inexact & ((a < 0) != (b < 0))).astype(a.dtype)
    return np.where(b == 0, np.zeros_like(a), result).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    return a - _truncated_division(a, b) * b


def threefry(counter: Array, key: Array) -> Array:
    """Threefry-2x32 of 20 rounds (Salmon et al., 2011); low words come first."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    c = np.asarray(counter, np.uint64)
    k = np.asarray(key, np.uint64)
    x0, x1 = (c & low).astype(np.uint32), (c >> half).astype(np.uint32)
    k0, k1 = (k & low).astype(np.uint32), (k >> half).astype(np.uint32)
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))
            x1 = x1 ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0.astype(np.uint64) | (x1.astype(np.uint64) << half)


ALU: dict[Ops, Callable[..., Array]] = {
    Ops.EXP2: np.exp2,
    Ops.LOG2: np.log2,
    Ops.SIN: np.sin,
    Ops.SQRT: np.sqrt,
    Ops.RECIPROCAL: np.reciprocal,
    Ops.NEG: np.negative,
    Ops.TRUNC: np.trunc,
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.SUB: np.subtract,
    Ops.FDIV: np.divide,
    Ops.IDIV: _truncated_division,
    Ops.MOD: _remainder,
    Ops.MAX: np.maximum,
    Ops.POW: np.power,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift,
    Ops.THREEFRY: threefry,
    Ops.WHERE: np.where,
    Ops.MULACC: lambda a, b, c: a * b + c,
}


def _cast(src: list[Array], node: UOp) -> Array:
    if dtypes.is_bool(node.dtype):
        return src[0] != 0
    if src[0].dtype.kind == "f" and dtypes.is_int(node.dtype):
        # by way of the widest type, so that what is negative wraps around as integers do
        wide = np.uint64 if node.dtype is dtypes.uint64 else np.int64
        return np.trunc(src[0]).astype(wide).astype(to_numpy_dtype(node.dtype))
    return rounded(src[0], node.dtype)


def _bitcast(src: list[Array], node: UOp) -> Array:
    stored = np.ascontiguousarray(to_storage(src[0], node.src[0].dtype))
    return from_storage(stored.view(to_numpy_dtype(node.dtype)), node.dtype)


# ---- reduction, and indexing by a tensor ----


def _reduce(src: list[Array], node: UOp) -> Array:
    (x,), axes, dtype = src, node.arg.axes, value_dtype(node.dtype)
    if node.arg.op is Ops.ADD:
        return rounded(np.sum(x, axes, dtype, keepdims=True), node.dtype)
    if node.arg.op is Ops.MUL:
        return rounded(np.prod(x, axes, dtype, keepdims=True), node.dtype)
    assert node.arg.op is Ops.MAX
    return np.max(x, axes, keepdims=True, initial=np.array(dtypes.min(node.dtype), dtype))


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


OTHER: dict[Ops, Callable[[list[Array], UOp], Array]] = {
    Ops.CAST: _cast,
    Ops.BITCAST: _bitcast,
    Ops.REDUCE_AXIS: _reduce,
    Ops.GATHER: _gather,
    **dict.fromkeys(GroupOp.Scatter, _scatter),
}
