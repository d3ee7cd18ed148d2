"""The program of one device: its part of a tensor graph, planned by the scheduler itself.

Input: an optimized tensor graph. Output: the seconds that its kernels take, the peak memory, and
the cost of all communication. Invariant: fusion, lifetimes and rematerialization are those that the
scheduler chooses. The messages of a layout change are not made, only their sum is known, so
planning takes no longer with more devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from tinygrad.device import Device
from tinygrad.execution.temporaries import memory_layout
from tinygrad.helpers import all_int
from tinygrad.planner.communication import CommCost, Ints, communication_costs, is_even
from tinygrad.schedule.execution_plan import (
    ExecutionPlan,
    KernelItem,
    TransferItem,
    operations_of,
)
from tinygrad.schedule.multi import LayoutLowering, local_rules
from tinygrad.schedule.pipeline import PlanOptions, plan_graph
from tinygrad.schedule.spmd.allreduce_algorithms import reduce_leading_axis
from tinygrad.schedule.spmd.collectives import choose_algorithm
from tinygrad.schedule.spmd.local import local_shape, pad_flat
from tinygrad.sharding import (
    LocalDevices,
    Sharding,
    current_topology,
    gather_stages,
    group_size,
    is_local_slice,
    max_shape,
    scatter_stages,
    scattered_first,
    sliced_source,
)
from tinygrad.uop import Ops
from tinygrad.uop.args import BufferArg, CommInfo, Message, TransferArg
from tinygrad.uop.device_value import Spmd, TensorDevice, device_names, tensor_device
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.rewrite import PatternMatcher
from tinygrad.uop.upat import UPat
from tinygrad.uop.user_line import UserLine


@dataclass(frozen=True)
class DeviceProgram:
    """What one device does: `seconds` of computation, at most `nbytes` of results and temporaries
    at any time, and all `communication`.
    """

    seconds: float
    nbytes: int
    communication: tuple[CommCost, ...]


@dataclass(frozen=True)
class LayoutChange:
    """A COPY or ALLREDUCE from one layout to another, and what its collectives cost."""

    source: TensorDevice
    target: TensorDevice
    costs: tuple[CommCost, ...]


class OneDeviceLowering(LayoutLowering):
    """Lowers a graph for its first device alone. One opaque message, from the device to itself,
    stands for all messages of a layout change; its `CommInfo.line` is the number in `changes`.
    """

    def __init__(self) -> None:
        super().__init__(one_device_rules)
        self.changes: dict[LayoutChange, int] = {}

    def describe(self, node: UOp) -> CommInfo:
        """The `CommInfo` of a COPY or ALLREDUCE."""
        change = LayoutChange(
            tensor_device(node.src[0].device), node.arg, communication_costs(node)
        )
        number = self.changes.setdefault(change, len(self.changes))
        kind = change.costs[0].kind if change.costs else "none"
        return CommInfo(kind, str(change.source), str(change.target), number)


def _first(layout: TensorDevice) -> Spmd | str:
    """The first of several devices stands for all of them."""
    return Spmd(layout.devices[:1]) if isinstance(layout, Sharding) else layout


def _buffer(node: UOp) -> UOp | None:
    arg = node.arg
    if not isinstance(arg.device, Sharding):
        return None
    shape = arg.device.local_shape(arg.shape)
    return UOp(Ops.BUFFER, node.dtype, (), BufferArg(arg.slot, shape, _first(arg.device)))


def _change_layout(node: UOp, ctx: OneDeviceLowering) -> UOp:
    """What the first device holds after a layout change: a slice of what it held, or memory that
    it receives.
    """
    source, target = node.src[0].device, node.arg
    value = ctx.done[node.src[0]]
    shape = local_shape(target, node.shape)
    if source is None:
        return UOp(Ops.COPY, node.dtype, (_first_block(value, shape),), _first(target))
    source = tensor_device(source)
    is_partial = isinstance(source, Sharding) and source.is_partial
    if (
        not is_partial
        and isinstance(target, Sharding)
        and is_local_slice(source, target, node.shape)
    ):
        return _first_block(value, shape)
    sizes = max_shape(shape)
    info = ctx.describe(node)
    if isinstance(source, Sharding) and source.is_partial:
        whole = _reduced(value, source, target, max_shape(node.shape), info)
    elif is_even(source, max_shape(node.shape)) and is_even(target, max_shape(node.shape)):
        whole = _message(_first_stage(value, source, target, node.shape, info), target, sizes, info)
    else:
        # uneven blocks are packed by the sender and unpacked by the receiver
        whole = _message(value.contiguous(), target, sizes, info).contiguous()
    return whole if sizes == shape else whole.shrink(tuple((0, size) for size in shape))


def _first_stage(
    value: UOp, source: TensorDevice, target: TensorDevice, shape: tuple[sint, ...], info: CommInfo
) -> UOp:
    """What the device receives from other nodes before an all-gather within its own."""
    if not isinstance(source, Sharding) or not isinstance(target, Sharding):
        return value
    stages = gather_stages(source, target, max_shape(shape), value.dtype.itemsize)
    if stages is None:
        return value
    sizes = cast(Ints, stages.between.local_shape(stages.shape))
    return _message(value, target, sizes, replace(info, line=UserLine()))


def _message(value: UOp, target: TensorDevice, sizes: Ints, info: CommInfo) -> UOp:
    """An opaque message: memory of `sizes` that the device receives."""
    arg = TransferArg(_first(target), (1, *sizes), (Message(0, 0, 0, 0),), info)
    return UOp(Ops.TRANSFER, value.dtype, (value,), arg).reshape(sizes)


def _reduced(
    value: UOp, source: Sharding, target: TensorDevice, shape: Ints, info: CommInfo
) -> UOp:
    """Partial values of a global `shape` that are received as a stack and reduced. A large
    all-reduce exchanges pieces of them first, and then the reduced pieces.
    """
    if isinstance(target, Sharding) and target.devices == source.devices:
        refined = sliced_source(source, target, shape)
        if refined != source:
            value, source = _first_block(value, refined.local_shape(shape)), refined
    op, count = Ops[source.partial_ops[0]], group_size(source)
    is_whole = target == source.without_partial()
    sizes = max_shape(local_shape(target, shape))
    if isinstance(target, Sharding) and target.devices == source.devices and not is_whole:
        between = scattered_first(source, target, shape, value.dtype.itemsize, count)
        if between is not None:
            part = between.local_shape(shape)
            rows = (count // group_size(between), *part)
            stack = reduce_leading_axis(
                _message(value, between, rows, replace(info, line=UserLine())), op
            )
            return _reduced(stack.reshape(part), between, target, shape, info)
        stages = scatter_stages(source, target, shape, value.dtype.itemsize)
        if stages is not None:
            part = cast(Ints, stages.between.local_shape(stages.shape))
            rows = (count // group_size(stages.between), *part)
            value = reduce_leading_axis(
                _message(value, stages.between, rows, replace(info, line=UserLine())), op
            )
            count = group_size(stages.between)
    if not is_whole or choose_algorithm(source, value.nbytes) == "direct":
        stack = _message(value, target, (count, *sizes), info)
        return reduce_leading_axis(stack, op).reshape(sizes)
    flat = pad_flat(value, count)
    length = flat.size // count
    pieces = _message(flat, target, (count, length), replace(info, line=UserLine()))
    sums = _message(reduce_leading_axis(pieces, op), target, (count * length,), info)
    return sums.shrink(((0, value.size),)).reshape(sizes)


def _select(node: UOp, ctx: OneDeviceLowering) -> UOp:
    """Any shard is as large as the first one, whose device stands for all."""
    return _first_block(ctx.done[node.src[0]], node.shape)


def _stack(node: UOp, ctx: OneDeviceLowering) -> UOp:
    """Of a stack, the first device holds the first part."""
    return _first_block(ctx.done[node.src[0]], local_shape(node.arg, node.shape))


def _first_block(value: UOp, shape: tuple[sint, ...]) -> UOp:
    """The first block, of `shape`, of a value; padded where the block ends past it."""
    sizes = list(zip(value.shape, shape, strict=True))
    padding = [(0, max(0, n - have)) if all_int((have, n)) else (0, 0) for have, n in sizes]
    return value.pad(tuple(padding)).shrink(tuple((0, n) for n in shape))


one_device_rules = local_rules + PatternMatcher(
    [
        (UPat(Ops.BUFFER, name="node"), _buffer),
        (UPat(Ops.COPY, name="node"), _change_layout),
        (UPat(Ops.ALLREDUCE, name="node"), _change_layout),
        (UPat(Ops.MSELECT, name="node"), _select),
        (UPat(Ops.MSTACK, name="node"), _stack),
    ]
)


def one_device_plan(sink: UOp, lowering: OneDeviceLowering) -> ExecutionPlan:
    """The plan of the first device's part of an optimized graph."""
    buffers = [node for node in sink.toposort() if node.op is Ops.BUFFER]
    numbered = {
        node: node.replace(arg=BufferArg(-1 - i, node.arg.shape, node.arg.device))
        for i, node in enumerate(buffers)
    }
    device = device_names(buffers[0].arg.device)[0] if buffers else Device.DEFAULT
    # every process plans it, and finds the same costs
    with LocalDevices():
        return plan_graph(sink.substitute(numbered), PlanOptions(len(buffers), device, lowering))


def device_program(sink: UOp) -> DeviceProgram:
    """Seconds, memory and communication of one device's part of an optimized graph."""
    lowering = OneDeviceLowering()
    plan = one_device_plan(sink, lowering)
    layout = memory_layout(plan, True)
    alone = sum(
        place.entry.size * place.entry.dtype.itemsize
        for places in layout.places
        for place in places
        if place.offset is None
    )
    seconds = sum(_seconds(item) for item in plan.items if isinstance(item, KernelItem))
    changes = list(lowering.changes)
    numbers = [item.info.line for item in plan.items if isinstance(item, TransferItem)]
    costs = [cost for n in numbers if isinstance(n, int) for cost in changes[n].costs]
    return DeviceProgram(seconds, alone + sum(layout.arenas.values()), tuple(costs))


def _seconds(item: KernelItem) -> float:
    """The roofline time of a kernel: that of its arithmetic or of its memory traffic."""
    processor = current_topology().processor(item.devices[0])
    nbytes = sum(parts[0].size * parts[0].dtype.itemsize for parts in item.params)
    operations = sum(map(operations_of, item.ast.toposort()))
    return max(operations / processor.flops, nbytes / processor.bandwidth)
