"""Where the value of a node lives, from where those of its sources do.

In: a node whose sources know their device. Out: a name, a `Sharding`, an `Spmd` of the per-device
graph, or None for what is made of constants alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tinygrad.sharding import LAYOUT_RULES, Partial, Placement, Sharding, reduce_layout
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.args import Spmd, TransferArg
from tinygrad.uop.reduction import COMBINES

if TYPE_CHECKING:
    from tinygrad.uop.ops import UOp


def compute_device(node: UOp) -> Any:
    """The device of a node, by its op."""
    op = node.op
    if op is Ops.BUFFER:
        return node.arg.device
    if op in {Ops.COPY, Ops.ALLREDUCE}:
        return node.arg.device if isinstance(node.arg, TransferArg) else node.arg
    if op is Ops.MSELECT:
        return node.src[0].device.devices[node.arg]
    if op is Ops.MSTACK:
        return stacked_device(node)
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
        return node.src[node.arg.output].device
    if op is Ops.SINK:
        return None
    return next((x.device for x in node.src if x.device is not None), None)


def gather_device(node: UOp) -> Any:
    """Where the rows are that a GATHER finds."""
    table, index = node.src
    if isinstance(table.device, Sharding) and isinstance(index.device, Sharding):
        return gather_layout(table.device, index.device, index.ndim)
    if isinstance(table.device, Sharding):
        return gather_layout(table.device, table.device.replicated(), index.ndim)
    return index.device if isinstance(index.device, Sharding) else table.device or index.device


def gather_layout(table: Sharding, index: Sharding, rank: int) -> Sharding:
    """The layout of the rows that an index of `rank` axes picks: a table split along its rows
    yields partial sums.

    Over each dimension of the mesh, one of the two is split at most.
    """
    if table.is_replicated:
        return index
    axes: list[Placement] = [
        Partial("ADD") if p == 0 else p + rank - 1 if isinstance(p, int) else p for p in table.axes
    ]
    if not index.is_replicated:
        axes = [p if q is None else q for p, q in zip(axes, index.axes, strict=True)]
    return table.with_axes(axes)


def is_index_axis(placement: Placement, index: UOp) -> bool:
    """Whether an axis of the rows that an index picks is one of the index."""
    return isinstance(placement, int) and placement < index.ndim


def scatter_device(node: UOp) -> Any:
    """The layout of rows combined by index: rows that are split yield partial values."""
    values, index = node.src
    layout = values.device
    if not isinstance(layout, Sharding):
        return layout if layout is not None else index.device
    axes: list[Placement] = []
    for p in layout.axes:
        if is_index_axis(p, index):
            axes.append(Partial(COMBINES[node.op].name))
        else:
            axes.append(p - index.ndim + 1 if isinstance(p, int) else p)
    return layout.with_axes(axes)


def stacked_device(node: UOp) -> Spmd:
    """The device of an MSTACK: those of its parts."""
    return Spmd(tuple(cast(str, x.device) for x in node.src))
