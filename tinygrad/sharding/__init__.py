"""Layout arithmetic, which knows no graph.

In: shapes, tensor axes and device names. Out: layouts, regions of arrays, and bytes that must move.
"""

from tinygrad.sharding.choice import common_layout, operand_layout
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
    moves_along,
    result_span,
    source_layout,
    sources_to_slide,
)
from tinygrad.sharding.transfer import (
    Piece,
    allreduce_bytes,
    cover,
    sent_elements,
    sent_per_device,
    transfer_bytes,
)

__all__ = [
    "LAYOUT_RULES",
    "SLIDING",
    "Interval",
    "LayoutRule",
    "Mesh",
    "P",
    "Partial",
    "Piece",
    "Placement",
    "Region",
    "Shape",
    "Sharding",
    "ShardingError",
    "Span",
    "allreduce_bytes",
    "common_layout",
    "cover",
    "expand_layout",
    "moves_along",
    "on_axis",
    "operand_layout",
    "permute_layout",
    "placement_axis",
    "reduce_layout",
    "reshape_layout",
    "result_span",
    "sent_elements",
    "sent_per_device",
    "source_layout",
    "sources_to_slide",
    "transfer_bytes",
]
