"""Layouts are lowered: the tensor graph becomes the per-device graph.

In: a graph of global shapes whose devices are names, `Sharding`s, or none. Out: one graph that
every device runs, of local shapes, whose devices are names, `Spmd`s, or none. Always true: the walk
meets each node once, and what it makes is of another device type, so nothing is lowered twice. Only
COPY, ALLREDUCE, MSELECT, indexing by a tensor and writing to a part need a rule of their own; every
other op is the same op on local shapes.
"""

from __future__ import annotations

from typing import cast

from tinygrad.dtype import dtypes
from tinygrad.helpers import all_int
from tinygrad.schedule.spmd.collectives import all_reduce, partial_count
from tinygrad.schedule.spmd.local import (
    device_of,
    pad_to_shape,
    part_start,
    slice_local,
    spread,
    within,
)
from tinygrad.schedule.spmd.local_assign import assign_slice_locally
from tinygrad.schedule.spmd.local_movement import move_locally, reduce_locally
from tinygrad.schedule.spmd.transfer import transfer
from tinygrad.sharding import Interval, Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.args import CommInfo
from tinygrad.uop.device_rules import is_placement
from tinygrad.uop.device_value import DeviceValue, Spmd, TensorDevice, tensor_device
from tinygrad.uop.ops import BufferArg, UOp, sint
from tinygrad.uop.rewrite import PatternMatcher
from tinygrad.uop.slice_assign import match_slice_assign
from tinygrad.uop.upat import UPat


def _line(node: UOp) -> str | int:
    return "?" if node.user_line is None else node.user_line


def transfer_kind(source: DeviceValue, target: DeviceValue) -> str:
    """The field's name for a change of layout."""
    if not isinstance(source, Sharding):
        if not isinstance(target, Sharding):
            return "copy"
        return "broadcast" if target.is_replicated else "scatter"
    if not isinstance(target, Sharding):
        return "gather"
    if source.devices != target.devices:
        return "send"
    if target.has_intervals:
        intervals = [p for p in target.axes if isinstance(p, Interval)]
        if all(p.step == 0 for p in intervals):
            return "broadcast"
        return "halo" if all(p.step > 0 for p in intervals) else "permute"
    return "all_gather" if target.is_replicated else "all_to_all"


class Lowering:
    """One memoised walk over a graph: `done[node]` is the local form of a node.

    `rules` lower the ops that are not the same op on local shapes; they get this object as `ctx`.
    """

    def __init__(self, rules: PatternMatcher) -> None:
        self.rules = rules
        self.done: dict[UOp, UOp] = {}
        # nodes that are sources of others: the value of an assignment among them is used
        self.read: set[UOp] = set()

    def source(self, node: UOp, number: int, layout: DeviceValue) -> UOp:
        """A source in local form. What is made of constants is cut to the device's block here."""
        below = node.src[number]
        local = self.done[below]
        if isinstance(layout, Sharding) and below.device is None and below.shape:
            return slice_local(local, None, layout, below.shape)
        return local

    def lower(self, node: UOp) -> UOp:
        rewritten = self.rules.rewrite(node, self)
        if rewritten is not None:
            return rewritten
        layout = node.device
        src = tuple(self.source(node, i, layout) for i in range(len(node.src)))
        if not isinstance(layout, Sharding):
            return node.with_sources(src)
        if node.op in GroupOp.Movement:
            return move_locally(node, src[0])
        if node.op is Ops.REDUCE_AXIS:
            return reduce_locally(node, src[0])
        return UOp(node.op, node.dtype, src, node.arg)


def lower_buffer(node: UOp) -> UOp | None:
    """A stored value, as what one device holds of it."""
    arg = node.arg
    if not isinstance(arg.device, Sharding):
        return None
    shape = arg.device.local_shape(arg.shape)
    return UOp(Ops.BUFFER, node.dtype, (), BufferArg(arg.slot, shape, Spmd(arg.device.devices)))


def lower_copy(node: UOp, ctx: Lowering) -> UOp:
    """A layout change becomes a TRANSFER, or a slice of what the device holds; a placement stays a
    COPY.
    """
    source, target = node.src[0].device, node.arg
    value = ctx.done[node.src[0]]
    if is_placement(node):
        return place_constant(value, target, node.shape)
    if isinstance(source, Sharding) and source.is_partial:
        # only `simplify` makes such copies, to shard partial sums further; no byte moves
        return slice_local(value, source, cast(Sharding, target), node.shape)
    kind = transfer_kind(source, target)
    reason = CommInfo(kind, str(source), str(target), _line(node))
    return transfer(value, tensor_device(source), target, node.shape, reason)


def place_constant(value: UOp, target: TensorDevice, shape: tuple[sint, ...]) -> UOp:
    """The running device's block of a value made of constants, on the devices of `target`."""
    if isinstance(target, Sharding) and value.shape:
        value = slice_local(value, None, target, shape)
    return UOp(Ops.COPY, value.dtype, (value,), device_of(target))


def lower_allreduce(node: UOp, ctx: Lowering) -> UOp:
    """A reduction over devices; a movement that was raised above it goes below again."""
    below = node.src[0]
    target = node.arg
    chain: list[UOp] = []
    if isinstance(target, Sharding) and target.is_replicated and below.device is not None:
        while below.op in {Ops.RESHAPE, Ops.PERMUTE} and len(below.layout.split_axes) == 0:
            chain.append(below)
            below = below.src[0]
    count = partial_count(below)
    value = all_reduce(ctx.done[below], below.layout, target, below.shape, _line(node), count)
    for x in reversed(chain):
        value = UOp(x.op, x.dtype, (value,), x.arg)
    return value


def lower_mselect(node: UOp, ctx: Lowering) -> UOp:
    """One shard: the block of its device, without what lies past the end of the array."""
    block = UOp(Ops.MSELECT, node.dtype, (ctx.done[node.src[0]],), node.arg)
    return block.shrink(tuple((0, size) for size in node.shape))


def lower_mstack(node: UOp, ctx: Lowering) -> UOp:
    """The memory of all shards under one name; shards shorter than a block are padded first."""
    layout = cast(Sharding, node.arg)
    shape = layout.local_shape(node.shape)
    blocks = tuple(pad_to_shape(ctx.done[x], shape) for x in node.src)
    return UOp(Ops.MSTACK, node.dtype, blocks, Spmd(layout.devices))


def lower_gather(node: UOp, ctx: Lowering) -> UOp:
    """Rows of a table that is split along its rows: each device finds its own, the others read
    0.
    """
    table = node.src[0]
    local, rows = _local_sources(node, node.arg, ctx)
    layout, axis = table.device, node.arg
    if isinstance(layout, Sharding) and layout.shards(axis) > 1:
        rows = rows.cast(dtypes.int)
        start = part_start(layout, axis, table.shape)
        shifted = UOp(Ops.SUB, dtypes.int, (rows, spread(start, rows.shape)))
        size = table.shape[axis]
        if not isinstance(size, int) or size % layout.shards(axis):
            # behind the last row there is something on the last devices
            exists = rows.alu(Ops.CMPLT, spread(size, rows.shape))
            shifted = exists.alu(Ops.WHERE, shifted, shifted.const_like(-1))
        rows = shifted
    return UOp(Ops.GATHER, node.dtype, (local, rows), node.arg)


def lower_scatter(node: UOp, ctx: Lowering) -> UOp:
    """Rows by index; what lies behind the end of a split axis of the index goes nowhere."""
    batch = len(node.arg) - 1
    values, rows = _local_sources(node, batch, ctx)
    layout, index = node.src[0].device, node.src[1]
    if isinstance(layout, Sharding):
        for axis in layout.split_axes:
            if batch <= axis < index.ndim:
                rows = within(rows, layout, axis, index.shape, -1)
    return UOp(node.op, node.dtype, (values, rows), (*rows.shape[:batch], node.arg[-1]))


def _local_sources(node: UOp, batch: int, ctx: Lowering) -> tuple[UOp, UOp]:
    """What a device has of a table and its index, or of values and theirs. An index made of
    constants is cut along its axes, a table of constants along those of the batch.
    """
    first, index = node.src
    local, rows = ctx.done[first], ctx.done[index]
    layout = node.device
    if not isinstance(layout, Sharding):
        return local, rows
    if first.device is None:
        local = slice_local(local, None, _leading_axes(layout, batch), first.shape)
    if index.device is None:
        by = layout if node.op is Ops.GATHER else first.layout
        rows = slice_local(rows, None, _leading_axes(by, index.ndim), index.shape)
    return local, rows


def lower_assign(node: UOp, ctx: Lowering) -> UOp | None:
    """What is written to a part of a split axis is written by the devices that have it."""
    part = match_slice_assign(node) if isinstance(node.device, Sharding) else None
    if part is None or node in ctx.read or not all_int(part.value.shape):
        return None
    return assign_slice_locally(node, ctx.done[node.src[0]], ctx.done[part.value], part)


def _leading_axes(layout: Sharding, rank: int) -> Sharding:
    return layout.with_axes([p if isinstance(p, int) and p < rank else None for p in layout.axes])


# where values live and how they get there
communication_rules = PatternMatcher(
    [
        (UPat(Ops.BUFFER, name="node"), lower_buffer),
        (UPat(Ops.COPY, name="node"), lower_copy),
        (UPat(Ops.ALLREDUCE, name="node"), lower_allreduce),
    ]
)
# ops that each device does differently on its part
local_rules = PatternMatcher(
    [
        (UPat(Ops.MSELECT, name="node"), lower_mselect),
        (UPat(Ops.MSTACK, name="node"), lower_mstack),
        (UPat(Ops.GATHER, name="node"), lower_gather),
        (UPat(tuple(GroupOp.Scatter), name="node"), lower_scatter),
        (UPat(Ops.ASSIGN, name="node"), lower_assign),
    ]
)
multi_pm = communication_rules + local_rules


def lower_layouts(sink: UOp, lowering: Lowering | None = None) -> UOp:
    """The per-device graph of a tensor graph, by `multi_pm` unless `lowering` has other rules."""
    lowering = lowering or Lowering(multi_pm)
    order = sink.toposort()
    lowering.read = {x for node in order if node.op is not Ops.SINK for x in node.src}
    for node in order:
        lowering.done[node] = lowering.lower(node)
    return lowering.done[sink]
