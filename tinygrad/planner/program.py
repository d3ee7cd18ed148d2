"""What one device computes and stores: its part of a tensor graph, planned like a real one.

In: a simplified tensor graph. Out: the seconds that its kernels take, the bytes of memory that they
need at most, and what moves. Always true: kernels, lifetimes and what is gathered twice are those
that the scheduler would choose; of the messages of a movement only their sum is known, so planning
takes no longer with more devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from tinygrad.device import Device
from tinygrad.execution.schedule import memory_layout
from tinygrad.helpers import all_int, prod
from tinygrad.planner.movement import Ints, Movement, is_even, movements
from tinygrad.schedule.multi import Lowering, multi_pm
from tinygrad.schedule.pipeline import PlanOptions, plan_graph
from tinygrad.schedule.plan import KernelItem, Plan, TransferItem
from tinygrad.schedule.spmd.collectives import choose_algorithm, group_size, reduce_first
from tinygrad.schedule.spmd.local import local_shape, max_shape, padded_flat
from tinygrad.schedule.spmd.transfer import stays
from tinygrad.sharding import Sharding, current_topology
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.args import BufferArg, CommInfo, Message, TransferArg
from tinygrad.uop.device_value import Spmd, TensorDevice, device_names, tensor_device
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.upat import PatternMatcher, UPat


@dataclass(frozen=True)
class Received(CommInfo):
    """A movement that stands for all its messages, between two `layouts`."""

    moved: tuple[Movement, ...] = ()
    layouts: tuple[Sharding | str, Sharding | str] = ("", "")


@dataclass(frozen=True)
class Program:
    """`seconds` of computation, the most `nbytes` of results and temporaries at any time, and all
    movements.
    """

    seconds: float
    nbytes: int
    moved: tuple[Movement, ...]


def _first(layout: Sharding | str) -> Spmd | str:
    """The first of several devices stands for all of them."""
    return Spmd(layout.devices[:1]) if isinstance(layout, Sharding) else layout


def _buffer(node: UOp) -> UOp | None:
    arg = node.arg
    if not isinstance(arg.device, Sharding):
        return None
    shape = arg.device.local_shape(arg.shape)
    return UOp(Ops.BUFFER, node.dtype, (), BufferArg(arg.slot, shape, _first(arg.device)))


def _received(node: UOp, ctx: Lowering) -> UOp:
    """What a device holds after a movement: a part of what it held, or memory that is received."""
    source, target = node.src[0].device, node.arg
    value = ctx.done[node.src[0]]
    shape = local_shape(target, node.shape)
    if source is None:
        return UOp(Ops.COPY, node.dtype, (_beginning(value, shape),), _first(target))
    source = tensor_device(source)
    has_terms = isinstance(source, Sharding) and source.is_partial
    if not has_terms and isinstance(target, Sharding) and stays(source, target, node.shape):
        return _beginning(value, shape)
    sizes = max_shape(shape)
    moved = movements(node)
    kind = moved[0].kind if moved else "none"
    reason = Received(kind, "", "", "", moved=moved, layouts=(source, target))
    if isinstance(source, Sharding) and source.is_partial:
        whole = _reduced(value, source, target, sizes, reason)
    elif is_even(source, max_shape(node.shape)) and is_even(target, max_shape(node.shape)):
        whole = _message(value, target, sizes, reason)
    else:
        # runs are packed where they are sent, and unpacked where they arrive
        whole = _message(value.contiguous(), target, sizes, reason).contiguous()
    return whole if sizes == shape else whole.shrink(tuple((0, size) for size in shape))


def _message(value: UOp, target: TensorDevice, sizes: Ints, reason: Received) -> UOp:
    """Memory that is received."""
    arg = TransferArg(_first(target), (1, *sizes), (Message(0, 0, 0, 0),), reason)
    return UOp(Ops.TRANSFER, value.dtype, (value,), arg).reshape(sizes)


def _reduced(
    value: UOp, source: Sharding, target: TensorDevice, sizes: Ints, reason: Received
) -> UOp:
    """Terms that arrive side by side and are reduced; of an all-reduce of many bytes, pieces of
    them, of which the sums arrive then.
    """
    op, count = Ops[source.partial_ops[0]], group_size(source)
    is_whole = target == source.without_partial()
    if not is_whole or choose_algorithm(source, value.nbytes) == "direct":
        stack = _message(value, target, (count, *sizes), reason)
        return reduce_first(stack, op).reshape(sizes)
    flat = padded_flat(value, count)
    length = flat.size // count
    pieces = _message(flat, target, (count, length), replace(reason, moved=()))
    sums = _message(reduce_first(pieces, op), target, (count * length,), reason)
    return sums.shrink(((0, value.size),)).reshape(sizes)


def _beginning(value: UOp, shape: tuple[sint, ...]) -> UOp:
    """The first device's part of a value that it holds more of. A block may end behind it."""
    sizes = list(zip(value.shape, shape, strict=True))
    behind = [(0, max(0, n - have)) if all_int((have, n)) else (0, 0) for have, n in sizes]
    return value.pad(tuple(behind)).shrink(tuple((0, n) for n in shape))


one_device_pm = (
    PatternMatcher(
        [
            (UPat(Ops.BUFFER, name="node"), _buffer),
            (UPat(Ops.COPY, name="node"), _received),
            (UPat(Ops.ALLREDUCE, name="node"), _received),
        ]
    )
    + multi_pm
)


def one_device_plan(sink: UOp) -> Plan:
    """The plan of the first device's part of a simplified graph."""
    buffers = [node for node in sink.toposort() if node.op is Ops.BUFFER]
    numbered = {
        node: node.replace(arg=BufferArg(-1 - i, node.arg.shape, node.arg.device))
        for i, node in enumerate(buffers)
    }
    device = device_names(buffers[0].arg.device)[0] if buffers else Device.DEFAULT
    return plan_graph(sink.substitute(numbered), PlanOptions(len(buffers), device, one_device_pm))


def program(sink: UOp) -> Program:
    """Seconds, memory and movements of one device's part of a simplified graph."""
    plan = one_device_plan(sink)
    layout = memory_layout(plan, True)
    alone = sum(
        place.entry.size * place.entry.dtype.itemsize
        for places in layout.places
        for place in places
        if place.offset is None
    )
    seconds = sum(_seconds(item) for item in plan.items if isinstance(item, KernelItem))
    reasons = [item.reason for item in plan.items if isinstance(item, TransferItem)]
    moved = [movement for reason in reasons for movement in cast(Received, reason).moved]
    return Program(seconds, alone + sum(layout.arenas.values()), tuple(moved))


def _seconds(item: KernelItem) -> float:
    """The time of a kernel: of its arithmetic or of its memory, whichever takes longer."""
    processor = current_topology().processor(item.devices[0])
    nbytes = sum(part.size * part.dtype.itemsize for part in item.parts[0])
    operations = sum(_operations(node) for node in item.ast.toposort())
    return max(operations / processor.flops, nbytes / processor.bandwidth)


def _operations(node: UOp) -> int:
    if node.op is Ops.REDUCE_AXIS:
        return prod(max_shape(node.src[0].shape))
    return prod(max_shape(node.shape)) if node.op in GroupOp.ALU else 0
