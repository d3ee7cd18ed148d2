"""Device propagation: the device of a node, from the devices of its sources.

Input: a node whose sources have a device. Output: its `DeviceValue`.
"""

from __future__ import annotations

from typing import cast

from tinygrad.sharding import (
    LAYOUT_RULES,
    Partial,
    Placement,
    Sharding,
    combined_layout,
    reduce_layout,
)
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import DeviceValue, Spmd
from tinygrad.uop.node import Node
from tinygrad.uop.reduction import SCATTER_REDUCE_OPS


def compute_device(node: Node) -> DeviceValue:
    """The device of a node, by the rule of its op."""
    op = node.op
    if op in {Ops.BUFFER, Ops.TRANSFER}:
        return cast(DeviceValue, node.arg.device)
    if op in {Ops.COPY, Ops.ALLREDUCE, Ops.MSTACK}:
        return cast(DeviceValue, node.arg)
    if op is Ops.MSELECT:
        return selected_device(node)
    if op is Ops.REDUCE_AXIS:
        layout = node.src[0].device
        if isinstance(layout, Sharding):
            return reduce_layout(layout, node.arg.axes, node.arg.op.name)
        return layout
    if op in GroupOp.Movement:
        layout = node.src[0].device
        if isinstance(layout, Sharding):
            return LAYOUT_RULES[op.name](layout, node.src[0].shape, node.arg)
        return layout
    if op is Ops.GATHER:
        return gather_device(node)
    if op in GroupOp.Scatter:
        return scatter_device(node)
    if op is Ops.CUSTOM_KERNEL:
        written: Node = node.src[node.arg.output]
        return written.device
    if op is Ops.SINK:
        return None
    return next((x.device for x in node.src if x.device is not None), None)


def is_placement(node: Node) -> bool:
    """Whether this COPY places an expression of constants, which is on no device: each device
    computes it, or its own shard of it, and no byte moves.
    """
    return node.op is Ops.COPY and node.src[0].device is None


def gather_device(node: Node) -> DeviceValue:
    """The device of a GATHER: with a sharded table, the layout of the gathered rows."""
    table, index = node.src
    if isinstance(table.device, Sharding):
        by = index.device if isinstance(index.device, Sharding) else table.device.replicated()
        return gather_layout(table.device, by, index.ndim, node.arg)
    return index.device if isinstance(index.device, Sharding) else table.device or index.device


def gather_layout(table: Sharding, index: Sharding, rank: int, batch: int) -> Sharding:
    """The layout of the rows that an index of `rank` axes selects. A table that is sharded along
    its rows yields partial sums.

    Each mesh dimension shards at most one of table and index, or both along one batch axis.
    """
    axes: list[Placement] = []
    for p in table.axes:
        if p == batch:
            axes.append(Partial("ADD"))
        else:
            axes.append(p + rank - batch - 1 if isinstance(p, int) and p > batch else p)
    found = combined_layout(table.with_axes(axes), index)
    assert found is not None, f"the meshes of {table} and {index} do not nest"
    return found


def is_index_axis(placement: Placement, index: Node) -> bool:
    """Whether a placement of gathered rows shards an axis of the index."""
    return isinstance(placement, int) and placement < index.ndim


def scatter_device(node: Node) -> DeviceValue:
    """The device of a scatter: values that are sharded along the index yield partial values."""
    values, index = node.src
    layout, batch = values.device, len(node.arg) - 1
    if not isinstance(layout, Sharding):
        return layout if layout is not None else index.device
    axes: list[Placement] = []
    for p in layout.axes:
        if isinstance(p, int) and p >= index.ndim:
            axes.append(p - index.ndim + batch + 1)
        else:
            in_batch = not isinstance(p, int) or p < batch
            axes.append(p if in_batch else Partial(SCATTER_REDUCE_OPS[node.op].name))
    return layout.with_axes(axes)


def selected_device(node: Node) -> str:
    """The device of an MSELECT: one of the devices of its source."""
    device = node.src[0].device
    assert isinstance(device, Sharding | Spmd), f"MSELECT of a value on {device!r}"
    number: int = node.arg
    return device.devices[number]
