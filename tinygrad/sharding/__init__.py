"""Layout arithmetic, which knows no graph.

In: shapes, tensor axes and device names. Out: layouts, regions of arrays, and bytes that must move.
"""

from tinygrad.sharding.choice import common_layout, operand_layout
from tinygrad.sharding.layout import Partial, Placement, Region, Shape, Sharding, ShardingError
from tinygrad.sharding.mesh import Mesh, P
from tinygrad.sharding.propagation import (
    LAYOUT_RULES,
    LayoutRule,
    expand_layout,
    flip_layout,
    pad_layout,
    permute_layout,
    reduce_layout,
    reshape_layout,
    shrink_layout,
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
    "allreduce_bytes",
    "common_layout",
    "cover",
    "expand_layout",
    "flip_layout",
    "operand_layout",
    "pad_layout",
    "permute_layout",
    "reduce_layout",
    "reshape_layout",
    "sent_elements",
    "sent_per_device",
    "shrink_layout",
    "transfer_bytes",
]
