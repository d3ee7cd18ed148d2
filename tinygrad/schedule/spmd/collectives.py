"""ALLREDUCE in the per-device graph: partial sums become their reduction.

Input: the local value of a partial value, its layout, and the layout of the result. Output: the
local result. Where the layout asked for is replicated, `allreduce_algorithms.py` computes it by the
algorithm that is the fastest on the topology. Where it is sharded, a reduce-scatter does; where it
is one device, a reduce. Where it is sharded along some of the partial dimensions alone, a
reduce-scatter along these comes first, if that is faster. On a mesh, each group of devices along
the partial dimensions communicates by itself.
"""

from __future__ import annotations

from dataclasses import replace

from tinygrad.helpers import all_int, ceildiv
from tinygrad.schedule.spmd.allreduce_algorithms import (
    all_reduce_by,
    can_library_reduce,
    has_pieces,
    reduce_leading_axis,
)
from tinygrad.schedule.spmd.local import (
    local_shape,
    pad_to_max_shape,
    slice_block,
)
from tinygrad.schedule.spmd.transfer import transfer
from tinygrad.settings import ALL2ALL, RING
from tinygrad.sharding import (
    NodeStages,
    Sharding,
    current_local_devices,
    current_topology,
    fastest_allreduce,
    group_size,
    max_shape,
    next_axis,
    scatter_stages,
    scattered_first,
    scattered_stack,
    sliced_source,
    stack_layout,
    stack_shape,
)
from tinygrad.uop import Ops
from tinygrad.uop.args import CommInfo
from tinygrad.uop.device_value import TensorDevice
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.user_line import UserLine


def partial_sum_count(node: UOp) -> int:
    """The number of devices in each group that hold a partial sum, the first ones. The others have
    the identity, as their blocks of the reduction axis are past its end.
    """
    group = group_size(node.layout)
    found: int = 0
    for x in node.toposort(gate=_is_partial):
        if not _is_partial(x) or any(map(_is_partial, x.src)):
            continue
        if x.op is not Ops.REDUCE_AXIS:
            return group
        layout, shape = x.src[0].layout, x.src[0].shape
        sharded = [axis for axis in x.arg.axes if layout.shards(axis) == group]
        if not sharded:
            return group
        block = layout.span(sharded[0], shape).length
        found = max(found, ceildiv(max_shape(shape)[sharded[0]], max(1, block)))
    return found if found > 1 else group


def _is_partial(node: UOp) -> bool:
    return isinstance(node.device, Sharding) and node.device.is_partial


def all_reduce(
    value: UOp,
    source: Sharding,
    target: TensorDevice,
    shape: tuple[sint, ...],
    line: UserLine | int,
    count: int,
) -> UOp:
    """The reduction of a value in the partial layout `source`, in the layout `target`.

    `value` and the result are local, `shape` is the global one. The first `count` devices of each
    group hold partial sums, see `partial_sum_count`. `line` is the user's.
    """
    if not all_int(shape):
        full = all_reduce(pad_to_max_shape(value), source, target, max_shape(shape), line, count)
        return full.shrink(tuple((0, d) for d in local_shape(target, shape)))
    op = Ops[source.partial_ops[0]]
    if isinstance(target, Sharding) and target.devices == source.devices:
        refined = sliced_source(source, target, shape)
        if refined != source:
            value, source = slice_block(value, source, refined, shape), refined

    def info(kind: str, algorithm: str = "") -> CommInfo:
        return CommInfo(kind, str(source), str(target), line, algorithm)

    if not isinstance(target, Sharding):
        stack = value.reshape((1, *value.shape))
        gathered = transfer(stack, stack_layout(source), target, (count, *shape), info("reduce"))
        return reduce_leading_axis(gathered, op).reshape(shape)
    if target.devices != source.devices:
        between = _layout_to_send(source, target)
        local = all_reduce(value, source, between, shape, line, count)
        return transfer(local, between, target, shape, info("send"))
    block = target.local_shape(shape)
    if target == source.without_partial():
        algorithm = _algorithm_of(value, source, op)
        comm = info("all_reduce", algorithm)
        if algorithm != "direct" or has_pieces(source, count):
            return all_reduce_by(algorithm, value, source, op, comm, count)
        return _reduce_stack(value, source, target, shape, comm, count).reshape(block)
    comm, itemsize = info("reduce_scatter"), value.dtype.itemsize
    first = scattered_first(source, target, shape, itemsize, count)
    if first is not None:
        local = _scatter_some(value, source, first, shape, comm)
        return all_reduce(local, first, target, shape, line, group_size(first))
    stages = scatter_stages(source, target, shape, itemsize)
    if stages is not None and count == group_size(source):
        return _scatter_in_stages(value, stages, target, shape, comm)
    return _reduce_stack(value, source, target, shape, comm, count).reshape(block)


def _reduce_stack(
    value: UOp,
    source: Sharding,
    target: Sharding,
    shape: tuple[int, ...],
    info: CommInfo,
    count: int,
) -> UOp:
    """Reshard the stack of partial sums to `target` in one round, and reduce it to (1, *local)."""
    stack = value.reshape((1, *value.shape))
    stacked = target.with_axes([next_axis(p) for p in target.axes])
    received = transfer(stack, stack_layout(source), stacked, (count, *shape), info)
    return reduce_leading_axis(received, Ops[source.partial_ops[0]])


def _algorithm_of(value: UOp, source: Sharding, op: Ops) -> str:
    """The fastest algorithm of an all-reduce that can reduce the value."""
    algorithm = choose_algorithm(source, value.nbytes)
    if algorithm == "nccl" and not can_library_reduce(op, value.dtype):
        return "all2all"
    return algorithm


def _layout_to_send(source: Sharding, target: Sharding) -> Sharding:
    """The layout of a reduction on the source's devices, before it is sent to other devices.

    It is sharded like the target if there are as many devices: then each sends one block.
    """
    if target.is_replicated or len(target) != len(source):
        return source.without_partial()
    return Sharding(source.devices, target.axes, target.mesh_shape)


def _scatter_some(
    value: UOp, source: Sharding, between: Sharding, shape: tuple[int, ...], info: CommInfo
) -> UOp:
    """Reduce-scatter along the partial dimensions that are not partial in `between`."""
    before, after = scattered_stack(source, between)
    stack = value.reshape((1, 1, *value.shape))
    received = transfer(stack, before, after, stack_shape(source, between, shape), info)
    reduced = reduce_leading_axis(received, Ops[source.partial_ops[0]])
    return reduced.reshape(between.local_shape(shape))


def _scatter_in_stages(
    value: UOp, stages: NodeStages, target: Sharding, shape: tuple[int, ...], info: CommInfo
) -> UOp:
    """Reduce-scatter within each node, then between nodes."""
    info = replace(info, algorithm="hierarchical")
    padding = [
        (0, -size % stages.counts[axis] if axis in stages.counts else 0)
        for axis, size in enumerate(shape)
    ]
    value = value.pad(tuple(padding)).reshape(stages.unsharded.local_shape(stages.shape))
    value = _scatter_some(value, stages.unsharded, stages.between, stages.shape, info)
    count = group_size(stages.between)
    local = _reduce_stack(value, stages.between, stages.sharded, stages.shape, info, count)
    return local.reshape(target.local_shape(shape))


def choose_algorithm(source: Sharding, nbytes: int) -> str:
    """The algorithm of an all-reduce of `nbytes`: the fastest, or the one that settings ask for.

    Settings choose among the algorithms for many bytes; for few it is always direct, or peer where
    no memory is that of another process.
    """
    fastest = fastest_allreduce(current_topology(), source, nbytes)
    if not current_local_devices().is_one_process:
        fastest = {"peer": "direct", "nccl": "all2all"}.get(fastest, fastest)
    if fastest in {"peer", "direct"}:
        return fastest
    if (RING or not ALL2ALL) and len(source.mesh_shape) == 1:
        return "ring"
    return "all2all" if ALL2ALL > 1 or RING or not ALL2ALL else fastest
