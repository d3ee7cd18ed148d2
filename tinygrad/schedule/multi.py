"""Lowering of layouts: the tensor graph becomes the per-device graph.

Input: a graph with global shapes, whose devices are names, `Sharding`s, or none. Output: one graph
that every device runs, with local shapes, whose devices are names, `Spmd`s, or none. Invariant:
each node is lowered once; lowered nodes have another device type, so that no rule applies to them
again. BUFFER, COPY, ALLREDUCE, MSTACK, MSELECT, indexing by a tensor and assignment to a slice have
a rule of their own in `multi_pm`; every other op is the same op on local shapes.
"""

from __future__ import annotations

from typing import cast

from tinygrad.schedule.spmd.collectives import all_reduce, partial_sum_count
from tinygrad.schedule.spmd.local import (
    block_start,
    broadcast_scalar,
    local_device,
    local_shape,
    mask_outside,
    pad_to_shape,
    rows_in_block,
    slice_block,
)
from tinygrad.schedule.spmd.local_assign import lower_slice_assign
from tinygrad.schedule.spmd.local_movement import lower_movement, lower_reduction
from tinygrad.schedule.spmd.transfer import transfer
from tinygrad.schedule.storage_views import movement_base
from tinygrad.sharding import Sharding, transfer_kind
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.args import CommInfo
from tinygrad.uop.device_value import DeviceValue, Spmd, TensorDevice, tensor_device
from tinygrad.uop.ops import BufferArg, UOp, sint
from tinygrad.uop.propagation.device_rules import is_placement
from tinygrad.uop.rewrite import PatternMatcher
from tinygrad.uop.slice_assign import match_slice_assign
from tinygrad.uop.upat import UPat
from tinygrad.uop.user_line import UserLine


class LayoutLowering:
    """One memoised walk over a graph: `done[node]` is the lowered form of a node.

    `multi_pm` lowers the ops that are not the same op on local shapes, with this object as `ctx`.
    """

    def __init__(self) -> None:
        self.done: dict[UOp, UOp] = {}

    def line(self, node: UOp) -> UserLine | int:
        """The user's line that caused a communication, or its number."""
        return UserLine() if node.user_line is None else node.user_line

    def source(self, node: UOp, number: int, layout: DeviceValue) -> UOp:
        """A lowered source. A value made of constants is sliced to the device's block."""
        source = node.src[number]
        local = self.done[source]
        if isinstance(layout, Sharding) and source.device is None and source.shape:
            return slice_block(local, None, layout, source.shape)
        return local

    def lowered(self, view: UOp) -> UOp:
        """The lowered form of a view of a lowered node."""
        if view not in self.done:
            self.lowered(view.src[0])
            self.done[view] = self.lower(view)
        return self.done[view]

    def lower(self, node: UOp) -> UOp:
        """The lowered form of a node whose sources are lowered."""
        rewritten = multi_pm.rewrite(node, self)
        if rewritten is not None:
            return rewritten
        layout = node.device
        if not isinstance(layout, Sharding):
            return node.with_sources(tuple([self.done[x] for x in node.src]))
        src = tuple([self.source(node, i, layout) for i in range(len(node.src))])
        if node.op in GroupOp.Movement:
            return lower_movement(node, src[0])
        if node.op is Ops.REDUCE_AXIS:
            return lower_reduction(node, src[0])
        return UOp(node.op, node.dtype, src, node.arg)


def lower_buffer(node: UOp) -> UOp | None:
    """A BUFFER has the shape of one device's block."""
    arg = node.arg
    if not isinstance(arg.device, Sharding):
        return None
    shape = arg.device.local_shape(arg.shape)
    return UOp(Ops.BUFFER, node.dtype, (), BufferArg(arg.slot, shape, Spmd(arg.device.devices)))


def lower_copy(node: UOp, ctx: LayoutLowering) -> UOp:
    """A layout change becomes a TRANSFER, or a slice where the device holds its block already. A
    placement stays a COPY.
    """
    source, target = node.src[0].device, node.arg
    value = ctx.done[node.src[0]]
    if is_placement(node):
        return place_constant(value, target, node.shape)
    if isinstance(source, Sharding) and source.is_partial:
        # only `simplify` makes such copies, to shard partial sums further; no byte moves
        return slice_block(value, source, cast(Sharding, target), node.shape)
    kind = transfer_kind(tensor_device(source), target)
    info = CommInfo(kind, str(source), str(target), ctx.line(node))
    return transfer(value, tensor_device(source), target, node.shape, info)


def place_constant(value: UOp, target: TensorDevice, shape: tuple[sint, ...]) -> UOp:
    """The running device's block of a value made of constants, on the devices of `target`."""
    if isinstance(target, Sharding) and value.shape:
        value = slice_block(value, None, target, shape)
    return UOp(Ops.COPY, value.dtype, (value,), local_device(target))


def lower_allreduce(node: UOp, ctx: LayoutLowering) -> UOp:
    """A collective. Movement that `simplify` sank below it is hoisted above it again, so messages
    carry the value before the movement.
    """
    source = node.src[0]
    target = node.arg
    movement: list[UOp] = []
    if isinstance(target, Sharding) and target.is_replicated and source.device is not None:
        while source.op in {Ops.RESHAPE, Ops.PERMUTE} and len(source.layout.split_axes) == 0:
            movement.append(source)
            source = source.src[0]
    count = partial_sum_count(source)
    value = all_reduce(ctx.done[source], source.layout, target, source.shape, ctx.line(node), count)
    for x in reversed(movement):
        value = UOp(x.op, x.dtype, (value,), x.arg)
    return value


def lower_mselect(node: UOp, ctx: LayoutLowering) -> UOp:
    """One shard: the block of its device, without what lies past the end of the array."""
    block = UOp(Ops.MSELECT, node.dtype, (ctx.done[node.src[0]],), node.arg)
    return block.shrink(tuple((0, size) for size in node.shape))


def lower_mstack(node: UOp, ctx: LayoutLowering) -> UOp:
    """The memory of all shards under one name; shards shorter than a block are padded first."""
    layout = cast(Sharding, node.arg)
    shape = layout.local_shape(node.shape)
    blocks = tuple(pad_to_shape(ctx.done[x], shape) for x in node.src)
    return UOp(Ops.MSTACK, node.dtype, blocks, Spmd(layout.devices))


def lower_gather(node: UOp, ctx: LayoutLowering) -> UOp:
    """Index select. If the selected axis is sharded, each device reads its own rows, and 0 for the
    others, so the results are partial sums.
    """
    table = node.src[0]
    local, rows = _local_sources(node, node.arg, ctx)
    layout, axis = table.device, node.arg
    if isinstance(layout, Sharding) and layout.shards(axis) > 1:
        size = table.shape[axis]
        shifted = rows_in_block(
            rows, block_start(layout, axis, table.shape), local_shape(layout, table.shape)[axis]
        )
        if not isinstance(size, int) or size % layout.shards(axis):
            # past the last row, blocks hold unspecified elements
            rows = rows.cast(shifted.dtype)
            exists = rows.alu(Ops.CMPLT, broadcast_scalar(size, rows))
            shifted = exists.alu(Ops.WHERE, shifted, shifted.const_like(-1))
        rows = shifted
    return UOp(Ops.GATHER, node.dtype, (local, rows), node.arg)


def lower_scatter(node: UOp, ctx: LayoutLowering) -> UOp:
    """Scatter. Elements of the index past the end of a sharded axis are masked with -1, which is
    out of range.
    """
    batch = len(node.arg) - 1
    values, rows = _local_sources(node, batch, ctx)
    layout, index = node.src[0].device, node.src[1]
    count = node.arg[-1]
    if isinstance(layout, Sharding):
        for axis in layout.split_axes:
            if batch <= axis < index.ndim:
                rows = mask_outside(rows, layout, axis, index.shape, -1)
        if batch in node.layout.split_axes:
            # the values of the device hold all that is added to its block of the rows
            count = local_shape(node.layout, node.shape)[batch]
            rows = rows_in_block(rows, block_start(node.layout, batch, node.shape), count)
    return UOp(node.op, node.dtype, (values, rows), (*rows.shape[:batch], count))


def _local_sources(node: UOp, batch: int, ctx: LayoutLowering) -> tuple[UOp, UOp]:
    """The lowered sources of a GATHER or scatter. A table or values made of constants are sliced
    along the batch axes, an index made of constants along all of its axes.
    """
    first, index = node.src
    local, rows = ctx.done[first], ctx.done[index]
    layout = node.device
    if not isinstance(layout, Sharding):
        return local, rows
    if first.device is None:
        local = slice_block(local, None, _leading_axes(layout, batch), first.shape)
    if index.device is None:
        by = layout if node.op is Ops.GATHER else first.layout
        rows = slice_block(rows, None, _leading_axes(by, index.ndim), index.shape)
    return local, rows


def lower_assign(node: UOp, ctx: LayoutLowering) -> UOp | None:
    """An assignment that changes a slice only: the devices that hold the slice write just that. The
    value of the node is the memory after the write.
    """
    part = match_slice_assign(node)
    if part is None:
        return None
    before, target = ctx.done[node.src[1].src[2]], ctx.done[node.src[0]]
    memory, content = movement_base(target), movement_base(before)
    if content.op is Ops.ASSIGN and content.src[0] is not memory:
        # assigned through a view in another order: read the result from the memory
        content = UOp(Ops.AFTER, node.dtype, (memory, content))
    target = target.substitute({memory: content})
    array = ctx.lowered(part.array).substitute({before: target})
    written = lower_slice_assign(node, array, ctx.done[part.value], part)
    after = UOp(Ops.AFTER, node.dtype, (content, written))
    return target.substitute({content: after})


def _leading_axes(layout: Sharding, rank: int) -> Sharding:
    """The layout that shards only the first `rank` axes."""
    return layout.with_axes([p if isinstance(p, int) and p < rank else None for p in layout.axes])


multi_pm = PatternMatcher(
    [
        # where values live and how they get there
        (UPat(Ops.BUFFER, name="node"), lower_buffer),
        (UPat(Ops.COPY, name="node"), lower_copy),
        (UPat(Ops.ALLREDUCE, name="node"), lower_allreduce),
        (UPat(Ops.MSELECT, name="node"), lower_mselect),
        (UPat(Ops.MSTACK, name="node"), lower_mstack),
        # ops that each device does differently on its part
        (UPat(Ops.GATHER, name="node"), lower_gather),
        (UPat(tuple(GroupOp.Scatter), name="node"), lower_scatter),
        (UPat(Ops.ASSIGN, name="node"), lower_assign),
    ]
)


def lower_layouts(sink: UOp, lowering: LayoutLowering | None = None) -> UOp:
    """The per-device graph of a tensor graph, by `lowering` if it is given."""
    lowering = lowering or LayoutLowering()
    for node in sink.toposort():
        lowering.done[node] = lowering.lower(node)
    # what is asked of an assignment is that it runs: its view of the memory is not computed
    sources = [(node, lowering.done[node]) for node in sink.src]
    found = [movement_base(new) if node.op is Ops.ASSIGN else new for node, new in sources]
    return lowering.done[sink].with_sources(tuple(found))
