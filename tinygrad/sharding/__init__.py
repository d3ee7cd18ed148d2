"""Layout arithmetic, independent of any graph.

Input: shapes, tensor axes and device names. Output: layouts, regions of arrays, and the bytes that
a change of layout moves.

    layout.py              `Sharding`, the value of a layout
    placement.py               what one mesh dimension does: shard, replicate, hold partial values
    sizes.py                   sizes and boxes of arrays
    device_names.py            names of devices
    mesh.py                `Mesh` and `P`: layouts by the names of mesh dimensions
    shards.py              the shapes of an array's shards
    propagation.py         layouts through movement ops and reductions
    row_ranges.py          which rows devices read by a known index
    axis_ranges.py         the range of a sharded axis that each device reads
    common_layout.py       the layout of operands that have different ones
    placement_rule.py      the layouts of a custom kernel, from a rule
    cover.py               the pieces that a change of layout sends, and their bytes
    routes.py              which device sends each piece
    block_grid.py          the blocks of an array by number
    transfer_kind.py       the name of a change of layout
    topology.py            links between devices
    device_groups.py           groups of devices that communicate, and their links
    communication_time.py      the time of a change of layout, and of an all-reduce
    partial_layouts.py     the layouts of partial sums on their way to a reduction
    node_stages.py             all-gathers and reduce-scatters in two stages
    local_devices.py       the devices that this process plans and runs
    drawing.py             pictures of layouts as text
    drawing_svg.py         and as SVG
    panels.py              the tables of blocks that both draw
"""

from tinygrad.sharding.axis_ranges import (
    RANGE_OPS,
    dynamic_slice_layout,
    kept_layout,
    moves_axis,
    same_ranges,
    source_layout,
    source_layouts,
    source_span,
)
from tinygrad.sharding.block_grid import BlockGrid
from tinygrad.sharding.common_layout import (
    common_layout,
    common_mesh,
    operand_layout,
)
from tinygrad.sharding.communication_time import (
    allreduce_seconds,
    elements_per_link,
    fastest_allreduce,
    transfer_seconds,
)
from tinygrad.sharding.cover import (
    allreduce_bytes,
    as_layout,
    cover,
    moved_elements,
    received_elements,
    sent_per_device,
    transfer_bytes,
)
from tinygrad.sharding.device_groups import node_size, partial_groups
from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.local_devices import (
    ALL_DEVICES,
    LocalDevices,
    Rank,
    current_local_devices,
    is_on_host,
    set_local_devices,
)
from tinygrad.sharding.mesh import Mesh, P
from tinygrad.sharding.node_stages import NodeStages, gather_stages, scatter_stages
from tinygrad.sharding.partial_layouts import (
    group_size,
    is_local_slice,
    next_axis,
    reduced_elements,
    reduced_first,
    scattered_first,
    scattered_stack,
    sliced_source,
    stack_layout,
    stack_shape,
)
from tinygrad.sharding.placement import (
    Interval,
    Partial,
    Placement,
    ShardingError,
    Span,
    on_axis,
    placement_axis,
)
from tinygrad.sharding.propagation import (
    LAYOUT_RULES,
    LayoutRule,
    expand_layout,
    flat_reshapes,
    movement_layout,
    permute_layout,
    reduce_layout,
    reshape_layout,
)
from tinygrad.sharding.routes import Piece, Routes, SentPiece
from tinygrad.sharding.row_ranges import RowRanges, is_monotone, row_ranges
from tinygrad.sharding.shards import global_shape, replica_count, shard_shapes
from tinygrad.sharding.sizes import Region, Shape, max_shape, max_size
from tinygrad.sharding.topology import (
    PROCESSES,
    Link,
    Processor,
    Topology,
    current_topology,
    set_topology,
)
from tinygrad.sharding.transfer_kind import transfer_kind

__all__ = [
    "ALL_DEVICES",
    "LAYOUT_RULES",
    "PROCESSES",
    "RANGE_OPS",
    "BlockGrid",
    "Interval",
    "LayoutRule",
    "Link",
    "LocalDevices",
    "Mesh",
    "NodeStages",
    "P",
    "Partial",
    "Piece",
    "Placement",
    "Processor",
    "Rank",
    "Region",
    "Routes",
    "RowRanges",
    "SentPiece",
    "Shape",
    "Sharding",
    "ShardingError",
    "Span",
    "Topology",
    "allreduce_bytes",
    "allreduce_seconds",
    "as_layout",
    "common_layout",
    "common_mesh",
    "cover",
    "current_local_devices",
    "current_topology",
    "dynamic_slice_layout",
    "elements_per_link",
    "expand_layout",
    "fastest_allreduce",
    "flat_reshapes",
    "gather_stages",
    "global_shape",
    "group_size",
    "is_local_slice",
    "is_monotone",
    "is_on_host",
    "kept_layout",
    "max_shape",
    "max_size",
    "moved_elements",
    "movement_layout",
    "moves_axis",
    "next_axis",
    "node_size",
    "on_axis",
    "operand_layout",
    "partial_groups",
    "permute_layout",
    "placement_axis",
    "received_elements",
    "reduce_layout",
    "reduced_elements",
    "reduced_first",
    "replica_count",
    "reshape_layout",
    "row_ranges",
    "same_ranges",
    "scatter_stages",
    "scattered_first",
    "scattered_stack",
    "sent_per_device",
    "set_local_devices",
    "set_topology",
    "shard_shapes",
    "sliced_source",
    "source_layout",
    "source_layouts",
    "source_span",
    "stack_layout",
    "stack_shape",
    "transfer_bytes",
    "transfer_kind",
    "transfer_seconds",
]
