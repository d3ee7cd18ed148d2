"""Layout decisions of GATHER (embedding lookup, index select) and scatters.

Input: the sources of the op. Output: the op, and the communication that it needs. Each of four
groups of axes may be sharded: the batch axes, common to table and index; the other axes of the
index; the row axis of the table; and the axes of a row. Invariant: no mesh dimension shards both
the index and the rows of a table, unless the index is known: then one of them is in ranges, so that
each device has the rows that its part of the index selects.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tinygrad.dtype import sum_acc_dtype
from tinygrad.helpers import prod
from tinygrad.settings import SHARDING
from tinygrad.sharding import (
    Interval,
    Partial,
    Placement,
    RowRanges,
    Sharding,
    allreduce_bytes,
    common_layout,
    is_monotone,
    moved_elements,
    on_axis,
    operand_layout,
    placement_axis,
    row_ranges,
)
from tinygrad.uop import Ops
from tinygrad.uop.node import N, Node
from tinygrad.uop.propagation.device_rules import gather_layout, is_index_axis
from tinygrad.uop.reshard import copy, device_mismatch, reshard, sent_nbytes, unsharded_layout


def gather(table: N, index: N, batch: int) -> N:
    """Rows of a table, on one device or sharded, see `UOp.gather`."""
    a, b = table.device, index.device
    target = None
    if isinstance(a, Sharding) and isinstance(b, Sharding) and a.devices == b.devices:
        if any(axis < batch for layout in (a, b) for axis in layout.split_axes):
            table, index = _align_batch(table, index, batch)
        else:
            table, index, target = _separate_dimensions(table, index, batch)
    elif None not in (a, b) and a != b:
        raise device_mismatch([a, b])
    node = table.replace(op=Ops.GATHER, src=(table, index), arg=batch)
    layout = node.device
    if isinstance(layout, Sharding) and layout.is_partial:
        if target is None or target.is_replicated:
            unsharded = _unsharded_rows_layout(node, batch)
            if unsharded is not None:
                return gather(reshard(table, unsharded, is_implicit=True), index, batch)
        return node.allreduce(target or layout.without_partial())
    return node if target is None else reshard(node, target, is_implicit=True)


def _unsharded_rows_layout(node: Node, batch: int) -> Sharding | None:
    """The layout of a table with unsharded rows, if the reshard costs less than the all-reduce of
    the partial sums that are gathered from its shards. The gradient costs as much again.
    """
    table, index = node.src
    if SHARDING.value == "strict":
        return None
    reduced = node.layout.without_partial()
    unsharded = unsharded_layout(table.layout, table.shape, batch)
    by_index = index.device if isinstance(index.device, Sharding) else unsharded.replicated()
    found = gather_layout(
        unsharded, _replicated_where_sharded(unsharded, by_index), index.ndim, batch
    )
    reshard_cost = 2 * moved_elements(table.device, unsharded, table.shape)
    reshard_cost += moved_elements(found, reduced, node.shape)
    return unsharded if reshard_cost < _allreduced_elements(node) else None


def _allreduced_elements(node: Node) -> int:
    """The elements that all devices send to all-reduce a partial value."""
    partial = node.layout
    shape = partial.without_partial().local_shape(node.shape)
    each = prod(size for size in shape if isinstance(size, int))
    axes = zip(partial.axes, partial.mesh_shape, strict=True)
    group = prod(size for p, size in axes if isinstance(p, Partial))
    return allreduce_bytes(group, each, "all2all") * len(partial)


def _align_batch(table: N, index: N, batch: int) -> tuple[N, N]:
    """Table and index in the layouts of the operands of a product that is summed over the rows."""
    # the axes of the gathered rows, and after them the row axis of the table
    row_axis = index.ndim + table.ndim - batch - 1
    of_table = [*range(batch), row_axis, *range(index.ndim, row_axis)]
    shapes: list[list[Any]] = [[1] * (row_axis + 1), [1] * (row_axis + 1)]
    for axis, size in zip(of_table, table.shape, strict=True):
        shapes[0][axis] = size
    shapes[1][: index.ndim] = index.shape
    layouts = [_with_axis_numbers(table.layout, of_table), index.layout]
    table_shape, index_shape = (tuple(shape) for shape in shapes)
    common = common_layout(
        layouts,
        [sent_nbytes(x) for x in (table, index)],
        [table_shape, index_shape],
        (row_axis,),
        table.dtype.itemsize,
    )
    back = {axis: number for number, axis in enumerate(of_table)}
    wanted = _with_axis_numbers(operand_layout(common, table_shape), back)
    return (
        reshard(table, wanted, is_implicit=True),
        reshard(index, operand_layout(common, index_shape), is_implicit=True),
    )


def _with_axis_numbers(layout: Sharding, numbers: list[int] | dict[int, int]) -> Sharding:
    """The layout after a renumbering of the tensor axes."""
    axes: list[Placement] = [numbers[p] if isinstance(p, int) else p for p in layout.axes]
    return layout.with_axes(axes)


def _separate_dimensions(table: N, index: N, batch: int) -> tuple[N, N, Sharding]:
    """Table and index, resharded so that no mesh dimension shards both, and the layout of the rows.

    Where a dimension sharded both, the gathered rows are sharded as the index. Either the table is
    all-gathered, or each device gathers all rows of its shard of the table and sends them on.
    """
    a, b = table.layout, index.layout
    replicated_table = _replicated_where_sharded(b, a)
    replicated_index = _replicated_where_sharded(a, b)
    target = gather_layout(replicated_table, b, index.ndim, batch)
    if replicated_table is a:
        return table, index, target.without_partial()
    rows = (*index.shape, *table.shape[batch + 1 :])
    found = gather_layout(a, replicated_index, index.ndim, batch).without_partial()
    target = target.without_partial()
    table_bytes = moved_elements(a, replicated_table, table.shape) * table.dtype.itemsize
    index_bytes = (
        moved_elements(b, replicated_index, index.shape) * index.dtype.itemsize
        + moved_elements(target, found, rows) * table.dtype.itemsize
    )
    if table_bytes <= index_bytes:
        return reshard(table, replicated_table, is_implicit=True), index, target
    return table, reshard(index, replicated_index, is_implicit=True), target


def _replicated_where_sharded(other: Sharding, layout: Sharding) -> Sharding:
    """`layout`, replicated over the mesh dimensions that `other` shards too."""
    if other.is_replicated or layout.is_replicated:
        return layout
    if other.mesh_shape != layout.mesh_shape:
        return layout.replicated()
    pairs = zip(layout.axes, other.axes, strict=True)
    return layout.with_axes([p if q is None else None for p, q in pairs])


def scatter(op: Ops, values: N, index: N, rows: int | Node, batch: int) -> N:
    """Combine rows by index, on one device or sharded, see `UOp.scatter`."""
    a, b = values.device, index.device
    if isinstance(a, Sharding) and isinstance(b, Sharding) and a.devices == b.devices:
        if not a.is_replicated:
            along = [p if is_index_axis(p, index) else None for p in a.axes]
            index = reshard(index, a.with_axes(along), is_implicit=True)
    elif a is not None and b is not None and a != b:
        raise device_mismatch([a, b])
    node = _scatter(op, values, index, rows, batch)
    layout = node.device
    if isinstance(layout, Sharding) and layout.is_partial:
        return node.allreduce(layout.without_partial())
    return node


def _scatter(op: Ops, values: N, index: N, rows: int | Node, batch: int) -> N:
    """The scatter of values that are sharded as the index, or that every device has: of these,
    each takes the ones of its index.
    """
    a, b = values.device, index.device
    is_everywhere = a is None or (isinstance(a, Sharding) and a.is_replicated)
    if is_everywhere and isinstance(b, Sharding) and not b.is_replicated:
        values = copy(values, b)
    return values.replace(op=op, src=(values, index), arg=(*index.shape[:batch], rows))


# ---- rows that are known while the graph is built ----


Bounds: TypeAlias = tuple[tuple[int, int], ...]


def choose_ranges(table: Node, index: Bounds) -> tuple[RowRanges, bool] | None:
    """The ranges by which rows of a table that is sharded along axis 0 are gathered by an index,
    known as the lowest and highest numbers along its first axis; and whether the rows are selected
    before they are sent. None if another way sends less.
    """
    layout, shape = table.device, table.shape
    if not isinstance(layout, Sharding) or layout.is_partial or layout.has_intervals:
        return None
    if 0 not in layout.split_axes or len(index) < 2 or not isinstance(shape[0], int):
        return None
    ranges = row_ranges(index, shape[0], layout.shards(0))
    if ranges is None:
        return None
    # a reshard to another axis is most likely reverted later, which costs as much again
    limit = 2 * moved_elements(layout, unsharded_layout(layout, shape, 0), shape)
    before = moved_elements(layout, _in_ranges(layout, ranges.read), shape)
    after = limit + 1
    if is_monotone(index):
        kept = _in_ranges(layout, ranges.readers)
        after = moved_elements(kept, layout, (len(index), *shape[1:]))
    return (ranges, after < before) if min(before, after) <= limit else None


def gather_ranges(table: N, index: N, ranges: RowRanges, is_selected_first: bool) -> N:
    """Rows of a table that is sharded along axis 0, by an index with these ranges."""
    layout = table.layout
    if not is_selected_first:
        rows = copy(table, _in_ranges(layout, ranges.read))
        return _gather_local(rows, index, layout)
    kept = _in_ranges(layout, ranges.readers)
    return copy(_gather_local(table, index, kept), layout)


def scatter_ranges(values: N, index: N, rows: int, layout: Sharding, ranges: RowRanges) -> N:
    """The adjoint of `gather_ranges`: values added to the rows of a table in `layout`."""
    along = Interval.listed(0, ranges.readers)
    by = layout.with_axes([along if p == 0 else None for p in layout.axes])
    inner = [
        along if p == 0 else on_axis(p, p + index.ndim - 1) if isinstance(p, int) else p
        for p in layout.axes
    ]
    moved = copy(values, layout.with_axes(inner))
    wide = moved.cast(sum_acc_dtype(values.dtype))
    added = wide.replace(op=Ops.SCATTER_ADD, src=(wide, copy(index, by)), arg=(rows,))
    return added.cast(values.dtype)


def _gather_local(table: N, index: N, layout: Sharding) -> N:
    """A gather in which each device holds the rows that its part of the index selects."""
    return table.replace(op=Ops.GATHER, src=(table, copy(index, _of_axis_0(layout))), arg=0)


def _in_ranges(layout: Sharding, bounds: Bounds) -> Sharding:
    """The layout with these ranges of axis 0 in place of its blocks."""
    return layout.with_axes([Interval.listed(0, bounds) if p == 0 else p for p in layout.axes])


def _of_axis_0(layout: Sharding) -> Sharding:
    return layout.with_axes([p if placement_axis(p) == 0 else None for p in layout.axes])
