"""Scatters of sharded values: all-gather the values where that sends less than reducing results.

Input and output: a tensor graph. A scatter of values that are sharded along the index leaves a
partial value of all rows on each device. Where few rows are written, as in the gradient of an
embedding, the values and the index are all-gathered instead, and every device scatters all of
them; or they are resharded, where the result is sharded along an axis of the rows. Invariant:
every value keeps its shape, dtype and device.
"""

from __future__ import annotations

from tinygrad.sharding import (
    Placement,
    Sharding,
    max_size,
    moved_elements,
    reduced_elements,
)
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp
from tinygrad.uop.propagation.device_rules import is_index_axis, is_placement
from tinygrad.uop.reshard import reshard

_VIEWS = (Ops.RESHAPE, Ops.PERMUTE)


def gather_scattered_values(sink: UOp) -> UOp:
    """`allreduce(scatter(values, index)) -> scatter(copy(values), copy(index))`"""
    order = sink.toposort()
    if not any(node.op is Ops.ALLREDUCE for node in order):
        return sink
    done: dict[UOp, UOp] = {}
    for node in order:
        new = node.with_sources(tuple(done[x] for x in node.src))
        gathered = _gathered(new) if node.op is Ops.ALLREDUCE else None
        done[node] = new if gathered is None else gathered
    return done[sink]


def _gathered(node: UOp) -> UOp | None:
    """The value of an ALLREDUCE of scatters without partial values, if that sends fewer bytes."""
    partial, target = node.src[0].layout, node.arg
    scatters = _scatters(node.src[0])
    if scatters is None or not isinstance(target, Sharding) or target.devices != partial.devices:
        return None
    alone = node.src[0] if node.src[0].op in GroupOp.Scatter else None
    replaced: dict[UOp, UOp] = {}
    sent = 0
    for x in scatters:
        replaced[x], nbytes = _resharded(x, target if x is alone else None)
        sent += nbytes
    found = node.src[0].substitute(replaced)
    layout = found.device
    if not isinstance(layout, Sharding) or layout.is_partial:
        return None
    sent += moved_elements(layout, target, found.shape) * found.dtype.itemsize
    shape = tuple(map(max_size, node.shape))
    if sent >= reduced_elements(partial, target, shape) * node.dtype.itemsize:
        return None
    found = found if layout == target else node.replace(op=Ops.COPY, src=(found,))
    known = node.toposort()
    for x in found.toposort():
        if x.op is Ops.COPY and x not in known:
            x.user_line = node.user_line
    return found


def _scatters(node: UOp) -> list[UOp] | None:
    """The scatters of which a partial value is the sum or a view; None if there is another."""
    if node.op in GroupOp.Scatter:
        return [node]
    if node.op not in _VIEWS and node.op is not Ops.ADD:
        return None
    found = [_scatters(x) for x in node.src]
    return None if None in found else [x for each in found for x in each or []]


def _resharded(node: UOp, target: Sharding | None) -> tuple[UOp, int]:
    """A scatter whose sources are replicated along the dimensions that shard the index, or sharded
    along an axis of the rows as in `target`; and the bytes that are sent for it.
    """
    values, index = node.src
    layout, batch = values.layout, len(node.arg) - 1
    axes: list[Placement] = [
        None if isinstance(p, int) and batch <= p < index.ndim else p for p in layout.axes
    ]
    if target is not None and target.mesh_shape == layout.mesh_shape:
        offset = index.ndim - batch - 1
        for i, p in enumerate(target.axes):
            if axes[i] != layout.axes[i] and isinstance(p, int) and p > batch:
                axes[i] = p + offset
    wanted = layout.with_axes(axes)
    by_index = wanted.with_axes([p if is_index_axis(p, index) else None for p in wanted.axes])
    moved = [_moved(values, wanted), _moved(index, by_index)]
    return node.replace(src=tuple(x for x, _ in moved)), sum(nbytes for _, nbytes in moved)


def _moved(node: UOp, layout: Sharding) -> tuple[UOp, int]:
    """A value in another layout, and the bytes that are sent for it. A value is sent before it is
    converted to a wider dtype, and taken from where it is if it was only sliced to shards.
    """
    if node.device is None or node.device == layout:
        return node, 0
    if node.op is Ops.COPY:
        (source,) = node.src
        if is_placement(node) or not moved_elements(source.device, layout, node.shape):
            return (source if source.device == layout else node.replace(arg=layout)), 0
    if node.op is Ops.CAST and node.src[0].dtype.itemsize < node.dtype.itemsize:
        moved, nbytes = _moved(node.src[0], layout)
        return node.replace(src=(moved,)), nbytes
    found = reshard(node, layout)
    copies = [x for x in found.toposort(gate=lambda x: x is not node) if x.op is Ops.COPY]
    pairs = [(x, x.src[0].device) for x in copies if x is not node]
    return found, sum(
        moved_elements(device, x.arg, x.shape) * x.dtype.itemsize
        for x, device in pairs
        if device is not None
    )
