"""Rewrites of the per-device graph before work is grouped into kernels.

Each rule turns a form that a kernel cannot hold into one that it can: what must be in memory is
stored, a reduction that would keep one core busy and the others idle is cut in two.
"""

from __future__ import annotations

from typing import cast

from tinygrad.dtype import ConstType, dtypes
from tinygrad.helpers import all_int, prod
from tinygrad.schedule.grouping.phases import split_phases
from tinygrad.schedule.spmd.local import broadcast_scalar, depends_on_device
from tinygrad.schedule.storage_views import as_memory, below_reshapes, is_slice_assign, is_storage
from tinygrad.settings import SPLIT_REDUCEOP
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import ReduceArg, UOp, ViewArg
from tinygrad.uop.reduction import identity
from tinygrad.uop.rewrite import PatternMatcher, graph_rewrite
from tinygrad.uop.upat import UPat

# nodes that name the shards of other values
_SHARDS = frozenset({Ops.MSTACK, Ops.MSELECT})
# nodes whose memory is allocated for them
_OWN_MEMORY = frozenset({Ops.CONTIGUOUS, Ops.TRANSFER, *GroupOp.Scatter})

# a reduction to so few elements, of at least so many, is done in two steps
FEW_OUTPUTS = 16
MANY_INPUTS = 1 << 18
PARTIAL_OUTPUTS = 256


def drop_needless_contiguous(x: UOp) -> UOp | None:
    """A value in memory is contiguous; one made of constants has no memory of its own."""
    if x.op in _SHARDS:
        return None  # memory that something else owns
    return x if (is_storage(x) and not is_slice_assign(x)) or x.device is None else None


def store_named_outputs(node: UOp) -> UOp | None:
    """A value that is asked for gets memory of its own: one that names memory of an input, or of
    another value that is asked for, is copied.
    """
    outputs = [below_reshapes(x) for x in node.src]
    src = tuple(
        UOp(Ops.CONTIGUOUS, x.dtype, (x,)) if _names_owned(below, outputs) else x
        for x, below in zip(node.src, outputs, strict=True)
    )
    return None if src == node.src else node.replace(src=src)


def _names_owned(node: UOp, outputs: list[UOp]) -> bool:
    """Whether an output is the memory of a value that lives on after the plan."""
    if node.op not in _SHARDS:
        return False
    return any(x.op not in _OWN_MEMORY or x in outputs for x in node.src)


def reduce_nothing(node: UOp) -> UOp | None:
    """A reduction of no elements is the identity of its op."""
    source = node.src[0]
    if 0 not in source.shape:
        return None
    return _constant_in_place_of(node, identity(node.arg.op, node.dtype))


def pad_nothing(node: UOp) -> UOp | None:
    """What is put around no elements is all there is."""
    return _constant_in_place_of(node, 0) if 0 in node.src[0].shape else None


def _constant_in_place_of(node: UOp, value: ConstType) -> UOp:
    # on the same device: a transfer of it must stay one
    constant = node.const_like(value)
    if node.device is None:
        return constant
    return UOp(Ops.COPY, node.dtype, (constant,), node.device)


def split_reduce(node: UOp) -> UOp | None:
    """`sum([a, b]) -> sum(sum([a, p, b/p]))`: the first step has enough outputs for every core."""
    source, arg = node.src[0], node.arg
    if not SPLIT_REDUCEOP or not all_int(source.shape):
        return None
    shape = source.shape
    if prod(cast(tuple[int, ...], node.shape)) > FEW_OUTPUTS or prod(shape) < MANY_INPUTS:
        return None
    # the outermost reduced axes are cut, so that each part is contiguous
    axis = arg.axes[0]
    count = max((d for d in range(1, PARTIAL_OUTPUTS + 1) if shape[axis] % d == 0), default=1)
    if count <= 1:
        return None
    cut = (*shape[:axis], count, shape[axis] // count, *shape[axis + 1 :])
    inner_axes = tuple(a + 1 for a in arg.axes)
    partial = UOp(
        Ops.REDUCE_AXIS, node.dtype, (source.reshape(cut),), ReduceArg(arg.op, inner_axes)
    )
    final = ReduceArg(arg.op, (axis,))
    stored = UOp(Ops.CONTIGUOUS, node.dtype, (partial,))
    return UOp(Ops.REDUCE_AXIS, node.dtype, (stored,), final).reshape(node.shape)


def store_sources(node: UOp) -> UOp | None:
    """TRANSFER, MSELECT, MSTACK and kernels written by hand read memory, and compute nothing."""
    src = tuple(x if x.op is Ops.DEFINE_VAR else as_memory(x) for x in node.src)
    return None if src == node.src else node.replace(src=src)


def scatter_to_part(node: UOp, x: UOp) -> UOp | None:
    """`shrink(scatter(values, index)) -> scatter(values, index - start)`: a device that is to have
    a part of the rows makes no others. Rows out of range go nowhere.
    """
    values, index = x.src
    batch = len(x.arg) - 1
    (start, _), *rest = node.arg[batch:]
    if all_int(sum(node.arg, ())) or not isinstance(node.shape[batch], int):
        return None
    bounds = (*node.arg[:batch], *((0, size) for size in index.shape[batch:]))
    index, values = index.shrink(bounds), values.shrink((*bounds, *rest))
    if not isinstance(start, int) or start:
        rows = index.cast(dtypes.int)
        index = UOp(Ops.SUB, dtypes.int, (rows, broadcast_scalar(start, rows.shape)))
    return UOp(x.op, x.dtype, (values, index), node.shape[: batch + 1])


def scatter_to_padded_part(node: UOp, pad: UOp, x: UOp) -> UOp | None:
    """`scatter_to_part` where the last part is padded: what is there is unspecified."""
    batch = len(x.arg) - 1
    (before, _), *others = pad.arg[batch:]
    if before != 0 or any(amounts != (0, 0) for amounts in (*pad.arg[:batch], *others)):
        return None
    return scatter_to_part(node, x) if depends_on_device(node.arg[batch][0]) else None


def bitcast_to_view(node: UOp, x: UOp) -> UOp | None:
    """A bitcast that changes the element size reads the same memory with another shape."""
    if node.dtype.itemsize == x.dtype.itemsize:
        return None
    source = as_memory(x)
    return UOp(
        Ops.BUFFER_VIEW, node.dtype, (source,), ViewArg(0, cast(tuple[int, ...], node.shape))
    )


rules = PatternMatcher(
    [
        (UPat(Ops.CONTIGUOUS, src=(UPat.var("x"),)), drop_needless_contiguous),
        (UPat(Ops.SINK, name="node"), store_named_outputs),
        (UPat(Ops.REDUCE_AXIS, name="node"), reduce_nothing),
        (UPat((Ops.PAD, Ops.UNWINDOW), name="node"), pad_nothing),
        (UPat(Ops.REDUCE_AXIS, src=(UPat(Ops.UNWINDOW, name="x"),), name="node"), split_phases),
        (UPat(Ops.REDUCE_AXIS, name="node"), split_reduce),
        (
            UPat(Ops.SHRINK, src=(UPat(tuple(GroupOp.Scatter), name="x"),), name="node"),
            scatter_to_part,
        ),
        (
            UPat(
                Ops.SHRINK,
                src=(UPat(Ops.PAD, src=(UPat(tuple(GroupOp.Scatter), name="x"),), name="pad"),),
                name="node",
            ),
            scatter_to_padded_part,
        ),
        (
            UPat((Ops.TRANSFER, Ops.MSELECT, Ops.MSTACK, Ops.CUSTOM_KERNEL), name="node"),
            store_sources,
        ),
        (UPat(Ops.BITCAST, src=(UPat.var("x"),), name="node"), bitcast_to_view),
    ]
)


def prepare_grouping(sink: UOp) -> UOp:
    """Apply all rules."""
    return graph_rewrite(sink, rules, name="prepare grouping")
