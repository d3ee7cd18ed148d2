"""Layout arithmetic, which knows no graph.

In: shapes, tensor axes and device names. Out: layouts, regions of arrays, and bytes that must move.
"""

from tinygrad.sharding.choice import combined_layout, common_layout, operand_layout
from tinygrad.sharding.layout import (
    Interval,
    Partial,
    Placement,
    Region,
    Shape,
    Sharding,
    ShardingError,
    Span,
    on_axis,
    placement_axis,
)
from tinygrad.sharding.mesh import Mesh, P
from tinygrad.sharding.propagation import (
    LAYOUT_RULES,
    LayoutRule,
    expand_layout,
    permute_layout,
    reduce_layout,
    reshape_layout,
)
from tinygrad.sharding.sliding import (
    SLIDING,
    layout_to_pick,
    moves_along,
    result_span,
    source_layout,
    sources_to_slide,
)
from tinygrad.sharding.topology import (
    Link,
    Processor,
    Topology,
    allreduce_seconds,
    current_topology,
    declare,
    fastest_allreduce,
    node_size,
    sent_over,
    transfer_seconds,
)
from tinygrad.sharding.transfer import (
    Piece,
    allreduce_bytes,
    cover,
    crossing_elements,
    lacking_elements,
    sent_per_device,
    transfer_bytes,
)

__all__ = [
    "LAYOUT_RULES",
    "SLIDING",
    "Interval",
    "LayoutRule",
    "Link",
    "Mesh",
    "P",
    "Partial",
    "Piece",
    "Placement",
    "Processor",
    "Region",
    "Shape",
    "Sharding",
    "ShardingError",
    "Span",
    "Topology",
    "allreduce_bytes",
    "allreduce_seconds",
    "combined_layout",
    "common_layout",
    "cover",
    "crossing_elements",
    "current_topology",
    "declare",
    "expand_layout",
    "fastest_allreduce",
    "lacking_elements",
    "layout_to_pick",
    "moves_along",
    "node_size",
    "on_axis",
    "operand_layout",
    "permute_layout",
    "placement_axis",
    "reduce_layout",
    "reshape_layout",
    "result_span",
    "sent_over",
    "sent_per_device",
    "source_layout",
    "sources_to_slide",
    "transfer_bytes",
    "transfer_seconds",
]
