"""Device propagation: the device of a node, from the devices of its sources.

Input: a node whose sources have a device. Output: its `DeviceValue`.
"""

from __future__ import annotations

from collections.abc import Callable

from tinygrad.sharding import (
    Interval,
    Partial,
    Placement,
    Sharding,
    common_mesh,
    movement_layout,
    on_axis,
    placement_axis,
    reduce_layout,
)
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import DeviceValue, Spmd
from tinygrad.uop.node import Node
from tinygrad.uop.reduction import SCATTER_REDUCE_OPS


def compute_device(node: Node) -> DeviceValue:
    """The device of a node, by the rule of its op; elementwise, the device of its sources."""
    rule = DEVICE_RULES.get(node.op)
    if rule is not None:
        return rule(node)
    for x in node.src:
        device = x.device
        if device is not None:
            return device
    return None


def _device_of_argument(node: Node) -> DeviceValue:
    device: DeviceValue = node.arg.device
    return device


def _argument(node: Node) -> DeviceValue:
    device: DeviceValue = node.arg
    return device


def _movement_device(node: Node) -> DeviceValue:
    layout = node.src[0].device
    if isinstance(layout, Sharding):
        return movement_layout(node.op.name, layout, node.src[0].shape, node.arg)
    return layout


def _reduce_device(node: Node) -> DeviceValue:
    layout = node.src[0].device
    if isinstance(layout, Sharding):
        return reduce_layout(layout, node.arg.axes, node.arg.op.name)
    return layout


def _written_device(node: Node) -> DeviceValue:
    written: Node = node.src[node.arg.output]
    return written.device


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

    Each mesh dimension shards at most one of table and index, or both along one batch axis; or
    rows and index, of which one is in an `Interval`: then a device holds the rows that its range
    of the index selects.
    """
    if len(table) == 1:
        return table
    dimensions = common_mesh(table, index)
    assert dimensions is not None, f"the meshes of {table} and {index} do not nest"
    axes: list[Placement] = []
    for _, p, q in dimensions:
        axis = placement_axis(p)
        if axis is None or axis < batch:
            axes.append(q if p is None else p)
        elif axis > batch:
            axes.append(on_axis(p, axis + rank - batch - 1))
        else:
            is_local = q is not None and (isinstance(p, Interval) or isinstance(q, Interval))
            axes.append(q if is_local else Partial("ADD"))
    return Sharding(table.devices, axes, [size for size, _, _ in dimensions])


def is_index_axis(placement: Placement, index: Node) -> bool:
    """Whether a placement of gathered rows shards an axis of the index."""
    return isinstance(placement, int) and placement < index.ndim


def scatter_device(node: Node) -> DeviceValue:
    """The device of a scatter: values that are sharded along the index yield partial values; but
    those in an `Interval` hold all that is added to a block of the rows.
    """
    values, index = node.src
    layout, batch = values.device, len(node.arg) - 1
    if not isinstance(layout, Sharding):
        return layout if layout is not None else index.device
    axes: list[Placement] = []
    for p in layout.axes:
        axis = placement_axis(p)
        if axis is None or axis < batch:
            axes.append(p)
        elif axis >= index.ndim:
            axes.append(on_axis(p, axis - index.ndim + batch + 1))
        elif isinstance(p, Interval):
            axes.append(batch)
        else:
            axes.append(Partial(SCATTER_REDUCE_OPS[node.op].name))
    return layout.with_axes(axes)


def selected_device(node: Node) -> str:
    """The device of an MSELECT: one of the devices of its source."""
    device = node.src[0].device
    assert isinstance(device, Sharding | Spmd), f"MSELECT of a value on {device!r}"
    number: int = node.arg
    return device.devices[number]


DEVICE_RULES: dict[Ops, Callable[[Node], DeviceValue]] = {
    **dict.fromkeys((Ops.BUFFER, Ops.TRANSFER), _device_of_argument),
    **dict.fromkeys((Ops.COPY, Ops.ALLREDUCE, Ops.MSTACK), _argument),
    **dict.fromkeys(GroupOp.Movement, _movement_device),
    **dict.fromkeys(GroupOp.Scatter, scatter_device),
    Ops.MSELECT: selected_device,
    Ops.REDUCE_AXIS: _reduce_device,
    Ops.GATHER: gather_device,
    Ops.CUSTOM_KERNEL: _written_device,
    Ops.SINK: lambda _: None,
}
"""The ops whose device is not simply that of their sources."""
