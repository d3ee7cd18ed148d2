"""Rewrite rules of the per-device graph that prepare it for grouping.

Input and output: a per-device graph. Invariant: afterwards every source of an op that reads memory
is materialised, and a large reduction to few elements is split in two, so that its first step keeps
all cores busy.
"""

from __future__ import annotations

from typing import cast

from tinygrad.dtype import ConstType
from tinygrad.helpers import all_int, ceildiv, prod
from tinygrad.renderer.target import Target
from tinygrad.schedule.grouping.fusion.row_chains import ROWS_PER_CORE
from tinygrad.schedule.grouping.rewrite.add_rows import add_rows
from tinygrad.schedule.grouping.rewrite.phases import split_phases
from tinygrad.schedule.grouping.rewrite.preserve import PRESERVED
from tinygrad.schedule.grouping.rewrite.split_product import split_of_product
from tinygrad.schedule.grouping.rewrite.sum_products import split_sum_of_products
from tinygrad.schedule.grouping.targets import find_target
from tinygrad.schedule.grouping.values import is_contraction
from tinygrad.schedule.spmd.local import depends_on_device, rows_in_block
from tinygrad.schedule.storage_views import (
    SHARD_NAMES,
    as_memory,
    below_views,
    is_slice_assign,
    is_storage,
)
from tinygrad.settings import SPLIT_REDUCEOP
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import ReduceArg, UOp, ViewArg, sint
from tinygrad.uop.reduction import identity
from tinygrad.uop.rewrite import PatternMatcher, graph_rewrite
from tinygrad.uop.sint import is_one, same_size
from tinygrad.uop.upat import UPat

MAX_SPLIT_OUTPUTS = 16
MIN_SPLIT_INPUTS = 1 << 18
"""The minimum inputs, and maximum outputs, of a reduction that is split in two on a CPU."""
MAX_SPLIT = 256
"""The maximum number of partial results for each element of a split reduction."""
COLUMNS_PER_BLOCK = 32
BLOCKS_PER_UNIT = 2
"""The thread blocks for each multiprocessor of a GPU when a reduction is split."""
MIN_SPLIT_ROW = 1 << 10
MIN_PARTS = 4
"""The minimum elements of a part, and the minimum number of parts worth a second kernel."""


def drop_redundant_contiguous(node: UOp, x: UOp) -> UOp | None:
    """`contiguous(x) -> x` for a value in memory, which is contiguous, and for constants, which
    need no memory.
    """
    if node.tag is PRESERVED:
        return None
    if below_views(x).op in SHARD_NAMES:
        return None  # memory that something else owns
    return x if (is_storage(x) and not is_slice_assign(x)) or x.device is None else None


def fold_empty_reduction(node: UOp) -> UOp | None:
    """A reduction of no elements is the identity of its op."""
    source = node.src[0]
    if 0 not in source.shape:
        return None
    return _constant_like(node, identity(node.arg.op, node.dtype))


def fold_padding_of_empty(node: UOp) -> UOp | None:
    """A PAD or UNWINDOW of no elements is its padding."""
    return _constant_like(node, 0) if 0 in node.src[0].shape else None


def _constant_like(node: UOp, value: ConstType) -> UOp:
    # placed on the same device, so that a transfer of it stays one
    constant = node.const_like(value)
    if node.device is None:
        return constant
    return UOp(Ops.COPY, node.dtype, (constant,), node.device)


def split_reduce(node: UOp) -> UOp | None:
    """`x.reshape(p, n / p).sum(1).sum()` for the sum of n elements: p partial sums keep all cores
    busy. The first sum is materialised.
    """
    source, arg = node.src[0], node.arg
    if not SPLIT_REDUCEOP or not all_int(source.shape):
        return None
    shape = source.shape
    if prod(shape) < MIN_SPLIT_INPUTS:
        return None
    axis, count = _axis_and_parts(node)
    if count <= 1:
        return None
    split = (*shape[:axis], count, shape[axis] // count, *shape[axis + 1 :])
    inner_axes = tuple(a + (a >= axis) for a in arg.axes)
    partial = UOp(
        Ops.REDUCE_AXIS, node.dtype, (source.reshape(split),), ReduceArg(arg.op, inner_axes)
    )
    final = ReduceArg(arg.op, (axis,))
    partial = UOp(Ops.CONTIGUOUS, node.dtype, (partial,))
    return UOp(Ops.REDUCE_AXIS, node.dtype, (partial,), final).reshape(node.shape)


def _axis_and_parts(node: UOp) -> tuple[int, int]:
    """The axis of a large reduction to split and the number of parts, 1 to leave it as it is."""
    target = find_target(node)
    if target is not None and target.has_threads and is_contraction(node):
        return split_of_product(node, target)
    parts = _parts_of_reduction(node, target)
    # the outermost reduction axis is split, so that each slice is contiguous
    axis = node.arg.axes[0]
    size = node.src[0].shape[axis]
    return axis, max((d for d in range(1, parts + 1) if size % d == 0), default=1)


def _parts_of_reduction(node: UOp, target: Target | None) -> int:
    """The number of partial results for each element of a large reduction; 1 not to split it."""
    shape, outputs = node.src[0].shape, prod(cast(tuple[int, ...], node.shape))
    kept = [i for i, d in enumerate(shape) if d != 1 and i not in node.arg.axes]
    is_rows = not kept or kept[-1] < min(node.arg.axes)
    if target is None or not target.has_threads:
        has_row_for_each_core = target is not None and outputs >= ROWS_PER_CORE * target.threads
        is_split = outputs <= MAX_SPLIT_OUTPUTS and not (is_rows and has_row_for_each_core)
        return MAX_SPLIT if is_split else 1
    # a block of threads reduces a row, or some neighbouring columns
    blocks = outputs if is_rows else ceildiv(outputs, COLUMNS_PER_BLOCK)
    parts = min(MAX_SPLIT, target.units * BLOCKS_PER_UNIT // max(blocks, 1))
    size = prod(shape) // max(outputs, 1)
    parts = min(parts, size // MIN_SPLIT_ROW)
    return parts if parts >= MIN_PARTS else 1


def materialize_sources(node: UOp) -> UOp | None:
    """Materialise the sources of TRANSFER, names of shards and hand-written kernels."""
    src = tuple(x if x.op is Ops.DEFINE_VAR else as_memory(x) for x in node.src)
    return None if src == node.src else node.replace(src=src)


def slice_scatter(node: UOp, x: UOp) -> UOp | None:
    """`shrink(scatter(values, index)) -> scatter(values, index - start)`: a device computes the
    rows of its shard only. Updates out of range are dropped.
    """
    values, index = x.src
    batch = len(x.arg) - 1
    (start, _), *rest = node.arg[batch:]
    if all_int(sum(node.arg, ())) or not isinstance(node.shape[batch], int):
        return None
    bounds = (*node.arg[:batch], *((0, size) for size in index.shape[batch:]))
    index, values = index.shrink(bounds), values.shrink((*bounds, *rest))
    if not isinstance(start, int) or start:
        index = rows_in_block(index, start, node.shape[batch])
    return UOp(x.op, x.dtype, (values, index), node.shape[: batch + 1])


def slice_padded_scatter(node: UOp, pad: UOp, x: UOp) -> UOp | None:
    """`slice_scatter` where the last shard is padded: the padding is unspecified."""
    batch = len(x.arg) - 1
    (before, _), *others = pad.arg[batch:]
    if before != 0 or any(amounts != (0, 0) for amounts in (*pad.arg[:batch], *others)):
        return None
    return slice_scatter(node, x) if depends_on_device(node.arg[batch][0]) else None


def slice_broadcast(node: UOp, x: UOp) -> UOp | None:
    """`shrink(expand(a) * 2) -> expand(a) * 2`, along axes where all elements are equal."""
    sliced = [
        i
        for i, ((start, stop), d) in enumerate(zip(node.arg, x.shape, strict=True))
        if not isinstance(start, int) or start or not same_size(stop, d)
    ]
    is_repeated = bool(sliced) and all(_is_repeated(x, i) for i in sliced)
    return _sliced(x, node.shape) if is_repeated else None


def _is_repeated(node: UOp, axis: int) -> bool:
    """Whether all elements along an axis are equal because of an EXPAND of what they are
    computed from.
    """
    if node.op is Ops.EXPAND:
        return is_one(node.src[0].shape[axis]) and not is_one(node.shape[axis])
    if node.op not in GroupOp.Elementwise or is_storage(node) or not node.src:
        return False
    return all(x.op is Ops.CONST or _is_repeated(x, axis) for x in node.src)


def _sliced(node: UOp, shape: tuple[sint, ...]) -> UOp:
    """`node` in another shape, which differs along axes where all of its elements are equal."""
    if node.op is Ops.EXPAND:
        return node.src[0].expand(shape)
    if node.op is Ops.CONST:
        return node
    return node.with_sources(tuple(_sliced(x, shape) for x in node.src))


def bitcast_to_view(node: UOp, x: UOp) -> UOp | None:
    """A bitcast to another element size is a view of the same memory."""
    if node.dtype.itemsize == x.dtype.itemsize:
        return None
    source = as_memory(x)
    return UOp(
        Ops.BUFFER_VIEW, node.dtype, (source,), ViewArg(0, cast(tuple[int, ...], node.shape))
    )


rules = PatternMatcher(
    [
        (UPat(Ops.CONTIGUOUS, src=(UPat.var("x"),), name="node"), drop_redundant_contiguous),
        (UPat(Ops.ASSIGN, name="node"), add_rows),
        (UPat(Ops.REDUCE_AXIS, name="node"), fold_empty_reduction),
        (UPat((Ops.PAD, Ops.UNWINDOW), name="node"), fold_padding_of_empty),
        (UPat(Ops.REDUCE_AXIS, src=(UPat(Ops.UNWINDOW, name="x"),), name="node"), split_phases),
        (
            UPat(Ops.REDUCE_AXIS, src=(UPat(Ops.ADD, name="x"),), name="node"),
            split_sum_of_products,
        ),
        (UPat(Ops.REDUCE_AXIS, name="node"), split_reduce),
        (
            UPat(Ops.SHRINK, src=(UPat(tuple(GroupOp.Scatter), name="x"),), name="node"),
            slice_scatter,
        ),
        (
            UPat(
                Ops.SHRINK,
                src=(UPat(Ops.PAD, src=(UPat(tuple(GroupOp.Scatter), name="x"),), name="pad"),),
                name="node",
            ),
            slice_padded_scatter,
        ),
        (
            UPat(
                Ops.SHRINK, src=(UPat((Ops.EXPAND, *GroupOp.Elementwise), name="x"),), name="node"
            ),
            slice_broadcast,
        ),
        (
            UPat((Ops.TRANSFER, *SHARD_NAMES, Ops.CUSTOM_KERNEL), name="node"),
            materialize_sources,
        ),
        (UPat(Ops.BITCAST, src=(UPat.var("x"),), name="node"), bitcast_to_view),
    ]
)


def prepare_grouping(sink: UOp) -> UOp:
    """Apply all rules."""
    return graph_rewrite(sink, rules, name="prepare grouping")
