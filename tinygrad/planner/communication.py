"""The cost of one COPY or ALLREDUCE of the tensor graph.

Input: a node. Output: the collectives that it becomes, each with the bytes that cross devices and
its seconds. Invariant: the bytes are those of the messages that lowering makes; where shards are
even they are computed without lowering.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tinygrad.dtype import DType
from tinygrad.helpers import ceildiv, prod
from tinygrad.schedule.spmd.collectives import (
    all_reduce,
    choose_algorithm,
    partial_sum_count,
)
from tinygrad.schedule.spmd.local import local_device, local_shape
from tinygrad.schedule.spmd.transfer import transfer
from tinygrad.settings import ALL2ALL, RING
from tinygrad.sharding import (
    LocalDevices,
    Sharding,
    Topology,
    allreduce_bytes,
    allreduce_seconds,
    current_local_devices,
    current_topology,
    elements_per_link,
    gather_stages,
    group_size,
    max_shape,
    scatter_stages,
    scattered_first,
    sliced_source,
    stack_layout,
    transfer_kind,
    transfer_seconds,
)
from tinygrad.uop import Ops
from tinygrad.uop.args import BufferArg, CommInfo
from tinygrad.uop.device_value import TensorDevice, device_names
from tinygrad.uop.ops import UOp
from tinygrad.uop.user_line import UserLine

Ints = tuple[int, ...]


@dataclass(frozen=True)
class CommCost:
    """One collective: its kind, the bytes that cross devices in total, and its seconds."""

    kind: str
    nbytes: int
    seconds: float


def communication_costs(node: UOp) -> tuple[CommCost, ...]:
    """The cost of a COPY or ALLREDUCE; () for one that places constants or slices locally.

    >>> x = Tensor.empty(8, 8, device=Sharding(("NULL:0", "NULL:1"), 0))
    >>> [(cost.kind, cost.nbytes) for cost in communication_costs(x.sum(0).uop.src[0])]
    [('all_reduce', 64)]
    """
    source = node.src[0].device
    shape = max_shape(node.shape)
    if source is None or source == node.arg or 0 in shape:
        return ()
    # these choose the algorithm of an all-reduce
    is_one_process = current_local_devices().is_one_process
    how = (current_topology(), RING.value, ALL2ALL.value, is_one_process)
    is_partial = isinstance(source, Sharding) and source.is_partial
    count = partial_sum_count(node.src[0]) if is_partial else 0
    return _known_costs(how, count, node.dtype, source, node.arg, shape)


@lru_cache(maxsize=1 << 14)
def _known_costs(
    how: tuple[Topology, int, int, bool],
    num_partials: int,
    dtype: DType,
    source: TensorDevice,
    target: TensorDevice,
    shape: Ints,
) -> tuple[CommCost, ...]:
    if isinstance(source, Sharding) and source.is_partial:
        known = _all_reduce(source, target, shape, dtype.itemsize, num_partials)
    else:
        known = _copy(transfer_kind(source, target), source, target, shape, dtype.itemsize)
    found = known or tuple(_lowered(num_partials, dtype, source, target, shape))
    return tuple(movement for movement in found if movement.nbytes)


def is_even(layout: TensorDevice, shape: Ints) -> bool:
    """Whether all shards of an array of known `shape` have the same size."""
    return isinstance(layout, str) or (not layout.has_intervals and layout.is_even(shape))


def is_in_stages(source: TensorDevice, target: TensorDevice, shape: Ints, itemsize: int) -> bool:
    """Whether a change of layout is an all-gather between nodes, and then within each."""
    if not isinstance(source, Sharding) or not isinstance(target, Sharding):
        return False
    return gather_stages(source, target, shape, itemsize) is not None


def _copy(
    kind: str, source: TensorDevice, target: TensorDevice, shape: Ints, itemsize: int
) -> tuple[CommCost, ...]:
    """The cost of a change of layout in one round; () if shards are uneven."""
    if not (is_even(source, shape) and is_even(target, shape)):
        return ()
    if is_in_stages(source, target, shape, itemsize):
        return ()
    sent = elements_per_link(current_topology(), source, target, shape)
    nbytes = sum(count for _, count in sent) * itemsize
    return (CommCost(kind, nbytes, transfer_seconds(source, target, shape, itemsize)),)


def _all_reduce(
    source: Sharding, target: TensorDevice, shape: Ints, itemsize: int, num_partials: int
) -> tuple[CommCost, ...]:
    """The cost of an all-reduce; () where it has to be lowered to be known."""
    count = group_size(source)
    if not isinstance(target, Sharding) or target.devices != source.devices:
        return ()
    source = sliced_source(source, target, shape)
    size = prod(source.local_shape(shape))
    algorithm = choose_algorithm(source, size * itemsize)
    is_whole = target == source.without_partial()
    if is_whole and algorithm == "peer":
        # of each group, all devices but one read each partial sum
        nbytes = len(source) // count * num_partials * (count - 1) * size * itemsize
        seconds = allreduce_seconds(source, size * itemsize, algorithm)
        return (CommCost("all_reduce", nbytes, seconds),)
    if num_partials != count and not (is_whole and algorithm == "nccl"):
        return ()
    if not is_whole and scattered_first(source, target, shape, itemsize, count) is not None:
        return ()
    if not is_whole and scatter_stages(source, target, shape, itemsize) is not None:
        return ()
    if not is_whole:
        up = [p + 1 if isinstance(p, int) else p for p in target.axes]
        stack = (count, *shape)
        kind = "reduce_scatter"
        return _copy(kind, stack_layout(source), target.with_axes(up), stack, itemsize)
    seconds = allreduce_seconds(source, size * itemsize, algorithm)
    if algorithm == "nccl":
        algorithm = "ring"
    elif algorithm != "direct":
        # padded pieces are sent; a hierarchical all-reduce sends as many as two all-to-alls
        algorithm, size = "all2all", ceildiv(size, count) * count
    nbytes = len(source) * allreduce_bytes(count, size * itemsize, algorithm)
    return (CommCost("all_reduce", nbytes, seconds),)


def _lowered(
    num_partials: int, dtype: DType, source: TensorDevice, target: TensorDevice, shape: Ints
) -> Iterator[CommCost]:
    """The cost of each round of messages that lowering makes."""
    arg = BufferArg(-1, max_shape(local_shape(source, shape)), local_device(source))
    value = UOp(Ops.BUFFER, dtype, (), arg)
    with LocalDevices.standing_for_all((*device_names(source), *device_names(target))):
        if isinstance(source, Sharding) and source.is_partial:
            local = all_reduce(value, source, target, shape, UserLine(), num_partials)
        else:
            info = CommInfo(transfer_kind(source, target), "", "", UserLine())
            local = transfer(value, source, target, shape, info)
    for node in local.toposort():
        if node.op is Ops.TRANSFER:
            yield _round(node)


def _round(node: UOp) -> CommCost:
    arg = node.arg
    sources, targets = device_names(node.src[0].device), device_names(arg.device)
    piece = arg.piece_size(prod(arg.shape)) * node.dtype.itemsize
    topology, nbytes = current_topology(), 0
    loads: dict[tuple[Any, ...], int] = {}
    for move in arg.messages:
        source, target = sources[move.source], targets[move.target]
        if source == target:
            continue
        sent = move.pieces * piece
        nbytes += sent
        link = topology.link(source, target)
        for end in ((link, "from", source), (link, "to", target)):
            loads[end] = loads.get(end, 0) + sent
    seconds = max((end[0].seconds(load) for end, load in loads.items()), default=0.0)
    return CommCost(arg.info.kind, nbytes, seconds)
